"""The batching that torch uses for ``is_grads_batched`` and ``vectorize=True``, which is older than ``torch.func``.

It has no rule that a Function can give. Here its batch dimension is taken off the tensors, and put back on the
results of the batched function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from ._outputs import Mask

Tensors = tuple[torch.Tensor, ...]
_torch: Any = torch


class Peeled(NamedTuple):
    """Tensors without their batch dimension at one level, which lies first where ``batched``."""

    tensors: Tensors
    batched: Mask
    size: int


def peel(tensors: Tensors, level: int) -> Peeled:
    """Take the batch dimension of ``level`` off; a tensor that has none comes back as it was."""
    # Where there is no dimension at this level, torch makes one of size 1.
    found = [_torch._remove_batch_dim(t, level, 1, 0) if is_batched(t) else t[None] for t in tensors]
    size = max(t.shape[0] for t in found)
    batched = tuple([t.shape[0] == size for t in found])
    return Peeled(tuple([t if b else t[0] for t, b in zip(found, batched, strict=True)]), batched, size)


def is_batched(tensor: torch.Tensor) -> bool:
    """Whether this tensor has a batch dimension of the older kind, at any level."""
    key: Any = torch._C._parse_dispatch_key("Batched")
    return bool(torch._C._dispatch_keys(tensor).has(key))


def over_batch(run: Callable[[Peeled], Tensors], tensors: Tensors) -> Tensors:
    """``run`` on the tensors without the innermost batch dimension, outside of that batching."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    torch._C._vmapmode_decrement_nesting()
    try:
        out = run(peel(tensors, level))
    finally:
        torch._C._vmapmode_increment_nesting()
    return tuple([_torch._add_batch_dim(t, 0, level) for t in out])
