"""What the demo shows at its end: a table in the terminal and a chart in a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from rich.table import Table
from runs import Pair, Run

TWIN_COLOUR = "#1b1b1b"
BRIDGE_COLOURS = ("#f58a3c", "#4a90d9")
BOUND_COLOUR = "#c0392b"
COLUMNS = ("", "accuracy", "first", "a step", "/ twin", "distance", "bound")
CAPTION = """accuracy: on held-out images; first: the first step, with tracing and compilation; a step: the median of
all later steps; / twin: that time over the twin's; distance: the largest between two losses; bound:
what float32 rounding may put there"""


def _row(run: Run, *comparison: str) -> tuple[str, ...]:
    return (run.title, f"{run.accuracy:.1%}", f"{run.first_step:.2f} s", f"{run.usual_step * 1e3:.2f} ms", *comparison)


def table(pairs: Sequence[Pair]) -> Table:
    """One line for each training; the deviation of a bridge is that of its losses from its twin's."""
    result = Table(title="Handwritten digits, across the bridge and natively", caption=" ".join(CAPTION.split()))
    for column in COLUMNS:
        result.add_column(column, justify="right" if column else "left", no_wrap=True)
    for pair in pairs:
        result.add_row(
            *_row(pair.bridge, f"{pair.slowdown:.2f}", f"{max(pair.deviations):.1e}", f"{pair.bound:.0e}"), style="bold"
        )
        result.add_row(*_row(pair.twin, "1", "", ""), end_section=True)
    return result


def chart(pairs: Sequence[Pair], path: Path) -> None:
    """Write a PNG: above, each bridge's losses with its twin's drawn over them; below, how far the two are apart."""
    figure, axes = plt.subplots(
        2, len(pairs), figsize=(6.5 * len(pairs), 8), sharex=True, sharey="row", height_ratios=(4, 3), squeeze=False
    )
    for (losses, deviations), pair, colour in zip(axes.T, pairs, BRIDGE_COLOURS, strict=False):
        _draw_losses(losses, pair, colour)
        _draw_deviations(deviations, pair, colour)
    axes[0, 0].set_ylabel("training loss (cross entropy)")
    axes[1, 0].set_ylabel("distance of the two losses")
    figure.suptitle("Two trainings on handwritten digits: across the bridge, and natively", fontsize=15)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_losses(axes: Axes, pair: Pair, colour: str) -> None:
    axes.plot(pair.bridge.losses, color=colour, linewidth=4.5, label=f"{pair.bridge.title}")
    axes.plot(pair.twin.losses, color=TWIN_COLOUR, linewidth=0.9, label=f"{pair.twin.title}")
    axes.set_title(pair.title, fontsize=12)
    axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")


def _draw_deviations(axes: Axes, pair: Pair, colour: str) -> None:
    equal = pair.deviations.count(0.0)  # which a logarithmic axis cannot show
    label = f"|bridge - twin|, and {equal} of {len(pair.deviations)} steps equal to the bit"
    axes.plot(pair.deviations, ".", color=colour, markersize=4, label=label)
    axes.axhline(pair.bound, color=BOUND_COLOUR, linestyle="--", label=f"allowed by float32 rounding: {pair.bound:.1e}")
    axes.set_yscale("log")
    axes.set_ylim(top=pair.bound * 60)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    axes.legend(loc="upper right")
