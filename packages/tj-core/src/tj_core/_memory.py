"""Whether a tensor and an array lie in the same memory."""

from __future__ import annotations

from typing import Any

import jax
import torch

from ._errors import UnsupportedKindError
from ._kinds import deleted_error, is_key, key_error, refused_tensor, tracer_error


def shares_memory(tensor: torch.Tensor, array: jax.Array, /) -> bool:
    """Whether ``tensor`` and ``array`` have bytes in common, so that a write to the one would show in the other.

    Args:
        tensor: a torch tensor of any shape, dtype and strides, on any device.
        array: a concrete JAX array of any shape and dtype; of a sharded array every local shard is looked at.

    Returns:
        True if the span of memory from the first to the last element of the tensor meets that of the array.
        Empty ones share nothing. Nothing is copied.

    Raises:
        UnsupportedKindError: the arguments are not a tensor and an array that have memory (see ``torch_to_jax``).

    Example:
        >>> import torch
        >>> from tj_core import shares_memory, torch_to_jax
        >>> tensor = torch.zeros(16)
        >>> shares_memory(tensor, torch_to_jax(tensor)), shares_memory(tensor, torch_to_jax(tensor, copy=True))
        (True, False)
    """
    if not isinstance(tensor, torch.Tensor):
        raise UnsupportedKindError(f"tensor: expected a torch.Tensor, got {type(tensor).__name__}")
    if not isinstance(array, jax.Array):
        raise UnsupportedKindError(f"array: expected a jax.Array, got {type(array).__name__}")
    error = refused_tensor(tensor)
    if error is not None:
        raise error
    first, last = _span_of_tensor(tensor)
    return any(first < end and start < last for start, end in _spans_of_array(array))


def _span_of_tensor(tensor: torch.Tensor) -> tuple[int, int]:
    """The half-open span of addresses that the elements lie in."""
    if tensor.numel() == 0:
        return 0, 0
    with torch._C.DisableTorchFunctionSubclass():
        start = tensor.detach().data_ptr()
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (reach + 1) * tensor.element_size()


def _spans_of_array(array: Any) -> list[tuple[int, int]]:
    if isinstance(array, jax.core.Tracer):
        raise tracer_error(array)
    if is_key(array):
        raise key_error(array)
    if array.is_deleted():
        raise deleted_error()
    shards = (shard.data for shard in array.addressable_shards)
    return [(start := shard.unsafe_buffer_pointer(), start + shard.nbytes) for shard in shards]
