"""Random numbers inside a program: torch's generator, seeded from an operand for the time of one run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._subclasses.fake_tensor import FakeTensor

# torch's default generator belongs to the process, and callbacks may run on several threads at once.
_GENERATOR = threading.RLock()


@contextmanager
def seeded(seed: torch.Tensor) -> Iterator[None]:
    """Draws inside depend on ``seed`` (a uint32 scalar) alone; torch's generator is put back afterwards."""
    if isinstance(seed, FakeTensor):
        yield
        return
    with _GENERATOR, torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(int(seed.item()))
        yield
