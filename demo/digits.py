"""Both frameworks train on handwritten digits through the bridge, each beside its native twin.

    python demo/digits.py [--output demo-output] [--epochs 12]

Prints a table, writes ``digits.png``, and exits with status 1 if a claim does not hold: that a training across the
bridge follows its twin to float32 rounding, and that every training passes 95% on images it has not seen.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import data
import flax_in_torch
import report
import torch
import torch_in_jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from runs import Pair, Run


def pairs() -> tuple[Pair, Pair]:
    """The two trainings and their twins, not yet begun."""
    return (
        Pair(
            "A Flax classifier in a torch loop",
            Run("Flax in torch", flax_in_torch.TorchLoop()),
            Run("Flax alone", flax_in_torch.FlaxLoop()),
        ),
        Pair(
            "A torch CNN in a jitted optax loop",
            Run("torch in JAX", torch_in_jax.JaxLoop()),
            Run("torch alone", torch_in_jax.TorchLoop()),
        ),
    )


def train(trainings: tuple[Pair, ...], digits: data.Digits, epochs: int, console: Console) -> None:
    """Train all four. A bridge and its twin take turns, an epoch each, so that what slows the machine slows both."""
    columns = (TextColumn("{task.description:<36}"), BarColumn(None), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        for pair in trainings:
            runs = (pair.bridge, pair.twin)
            task = progress.add_task(pair.title, total=len(runs) * epochs * digits.steps_per_epoch)
            for epoch in range(epochs):
                for run in runs:
                    for images, labels in digits.epoch(epoch):
                        run.step(images, labels)
                        progress.advance(task)
            for run in runs:
                run.accuracy = run.trainer.accuracy(digits.test_images, digits.test_labels)


def main() -> int:
    """Run the demo; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="folder for the chart")
    parser.add_argument("--epochs", type=int, default=12, help="passes over the 1437 training images")
    options = parser.parse_args()

    # These networks are too small to gain by a second thread, and waiting for one is what a busy machine makes slow.
    torch.set_num_threads(1)
    console = Console()
    trainings = pairs()
    train(trainings, data.load(), options.epochs, console)
    console.print(report.table(trainings))
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "digits.png"
    report.chart(trainings, path)
    console.print(f"The curves: {path}", soft_wrap=True)

    broken = [claim for pair in trainings for claim in pair.broken_claims()]
    for claim in broken:
        console.print(f"[bold red]Not so:[/] {claim}")
    if not broken:
        console.print("[bold green]All claims hold:[/] curves agree to float32 rounding, accuracies pass 95%.")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
