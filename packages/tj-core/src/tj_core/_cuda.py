"""The part of the exchange that knows of CUDA streams.

NOTE [Ready before use, done before reuse]
    torch to JAX: ``__dlpack__(stream=s)`` makes JAX's stream ``s`` wait for what torch's current stream has still to
    do; ``record_stream`` keeps torch's allocator from handing the memory out again before ``s`` is done with it.
    JAX to torch: ``torch.from_dlpack`` gives JAX torch's current stream, which then waits for the array. JAX's
    allocator takes the memory back as soon as the last tensor over it is gone: work on it that torch has queued by
    then must be on the stream that was current at the conversion, or be waited for.

The calls are those documented by the array API standard, ``torch.Tensor.__dlpack__`` and
``jax.Device.get_stream_for_external_ready_events``.
"""

from __future__ import annotations

from typing import Any

import jax
import torch
import torch.utils.dlpack

from ._kinds import cannot_share
from ._layouts import fresh, why_not_shared


class _OnStream:
    """A tensor that exports itself on its own device, whichever device is current, and on the stream asked for."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        with torch.cuda.device(self.tensor.device):
            if stream is not None:
                self.tensor.record_stream(torch.cuda.ExternalStream(stream, device=self.tensor.device))
            return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.tensor.__dlpack_device__()


def import_cuda(tensor: torch.Tensor, device: jax.Device, copy: bool | None) -> jax.Array:
    """The array on ``device`` over the memory of a CUDA tensor, or over a copy of it.

    See NOTE [Ready before use, done before reuse].
    """
    if copy is not True:
        array = _try_share(tensor, device)
        if array is not None:
            return array
        if copy is False:
            raise cannot_share(why_not_shared(tensor))
    return _take(fresh(tensor), device)


def _try_share(tensor: torch.Tensor, device: jax.Device) -> jax.Array | None:
    if tensor.is_conj() or tensor.is_neg() or not _is_dense(tensor):
        return None
    try:
        return _take(tensor, device)
    except (RuntimeError, BufferError, ValueError):
        return None


def _take(tensor: torch.Tensor, device: jax.Device) -> jax.Array:
    array: jax.Array = jax.dlpack.from_dlpack(_OnStream(tensor), device=device)
    return array


def _is_dense(tensor: torch.Tensor) -> bool:
    # Permuted memory is copied here: not every version reads it rightly, and the probe runs on the CPU only.
    return tensor.is_contiguous()


def export_cuda(array: jax.Array) -> torch.Tensor:
    """The tensor over the memory of an array on a GPU; see NOTE [Ready before use, done before reuse]."""
    return torch.utils.dlpack.from_dlpack(array)
