"""Arrays over the memory of tensors, and a module's memory of those over its parameters.

NOTE [Arrays over parameters are kept]: making an array over a tensor, and handing JAX an array it has not met, costs
more than a small layer computes. A parameter is the same memory at the next call, so its array is too, and sees what an
optimizer wrote there. It is kept while the tensor object, its address, shape, strides and dtype are what they were; a
kept array keeps its memory alive, so no other tensor can have come to that address. Copies are never kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import jax
import torch

from ._core import core
from ._outputs import Arrays

Tensors: TypeAlias = tuple[torch.Tensor, ...]


def to_jax(tensors: Iterable[torch.Tensor]) -> Arrays:
    """An array over, or a finished copy of, each tensor."""
    return tuple([core.torch_to_jax(t) for t in tensors])


def to_torch(arrays: Sequence[jax.Array]) -> Tensors:
    """A tensor over each array, once it is computed."""
    return tuple([core.jax_to_torch(a) for a in arrays])


class SharedArrays:
    """The arrays over the first ``count`` tensors of every call, which are its owner's; see the NOTE above.

    It is empty in every copy and pickle of its owner.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._kept: dict[int, tuple[Any, jax.Array]] = {}

    def get(self, place: int, tensor: torch.Tensor, x64: bool) -> jax.Array:
        """The array over ``tensor``, which is the argument number ``place``; ``x64`` as JAX has it now."""
        if place >= self._count:
            array: jax.Array = core.torch_to_jax(tensor)
            return array
        state = (x64, id(tensor), tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        kept = self._kept.get(place)
        if kept is not None and kept[0] == state:
            return kept[1]
        array = core.torch_to_jax(tensor)
        if tensor.is_cpu and tensor.data_ptr() == array.unsafe_buffer_pointer():
            self._kept[place] = state, array
        else:
            self._kept.pop(place, None)
        return array

    def clear(self) -> None:
        """Let go of the memory."""
        self._kept.clear()

    def __reduce__(self) -> Any:
        return SharedArrays, (self._count,)
