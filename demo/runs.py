"""A training as the rest of the demo sees it, whichever framework runs it, and a bridge beside its native twin."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field
from typing import Protocol

from data import BATCH_SIZE
from torch import Tensor

# Plain SGD with momentum, since torch and optax compute it by the same formula: buffer = momentum * buffer + gradient,
# weight = weight - rate * buffer.
LEARNING_RATE = 0.05
MOMENTUM = 0.9

FLOAT32_ROUNDOFF = 2.0**-24
ACCURACY_CLAIM = 0.95


class Trainer(Protocol):
    """A model, its optimizer and its loop body."""

    def step(self, images: Tensor, labels: Tensor) -> float:
        """One update of the weights; returns the loss before it."""

    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """The share of ``images`` that the trained model names right."""


@dataclass
class Run:
    """A training as it goes: the loss of every step, and the seconds that each took."""

    title: str
    trainer: Trainer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    accuracy: float = 0.0

    def step(self, images: Tensor, labels: Tensor) -> None:
        """Take one step, and note its loss and its time. Reading the loss as a float waits until it is computed."""
        start = time.perf_counter()
        self.losses.append(self.trainer.step(images, labels))
        self.seconds.append(time.perf_counter() - start)

    @property
    def first_step(self) -> float:
        """Seconds of the first step, in which everything is traced and compiled."""
        return self.seconds[0]

    @property
    def usual_step(self) -> float:
        """The median of the seconds of all later steps: batch handed over, loss, gradients, update, loss read."""
        return statistics.median(self.seconds[1:])


@dataclass
class Pair:
    """A training that crosses the bridge, and the native one from the same weights on the same batches."""

    title: str
    bridge: Run
    twin: Run

    @property
    def deviations(self) -> list[float]:
        """How far apart the two losses are at each step."""
        return [abs(a - b) for a, b in zip(self.bridge.losses, self.twin.losses, strict=True)]

    @property
    def bound(self) -> float:
        """What float32 rounding may put between the two curves.

        A loss is the mean over a batch. Whatever the order of summation, the sum of n float32 numbers of one sign is
        exact up to n roundings of 2**-24 each (N. Higham, Accuracy and Stability of Numerical Algorithms, chapter 4).
        Rounding of the weights adds less than that while training converges; an error of a thousandth in the gradients
        puts the curves a hundred times this bound apart.
        """
        return BATCH_SIZE * FLOAT32_ROUNDOFF * max(self.twin.losses)

    @property
    def slowdown(self) -> float:
        """Time of a step of the bridge over that of its twin, both after compilation."""
        return self.bridge.usual_step / self.twin.usual_step

    def broken_claims(self) -> list[str]:
        """What this demo claims and this pair does not bear out, in words."""
        broken = [
            f"{run.title}: test accuracy {run.accuracy:.1%} does not pass {ACCURACY_CLAIM:.0%}"
            for run in (self.bridge, self.twin)
            if not run.accuracy > ACCURACY_CLAIM
        ]
        if not max(self.deviations) <= self.bound:
            broken.append(f"{self.title}: the losses part by {max(self.deviations):.1e}, more than {self.bound:.1e}")
        return broken
