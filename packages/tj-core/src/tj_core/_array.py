"""One array becomes one tensor.

JAX waits for an array on the CPU before it hands out its memory, so a tensor never shows values that are still to
be computed.
"""

from __future__ import annotations

from typing import Any

import jax
import torch
from jax.sharding import SingleDeviceSharding

from ._cuda import export_cuda
from ._devices import as_torch_device, torch_device_of
from ._dtypes import JAX_TO_TORCH, reason_refused
from ._errors import UnsupportedDtypeError
from ._exchange import EXCHANGE
from ._kinds import cannot_share, deleted_error, is_key, key_error, sharded_error, tracer_error

# Shardings seen to be one CPU device of this process, which need no further look. As many as there are such devices
# and kinds of memory, and never more than this.
_CPU_SHARDINGS: set[Any] = set()
_MOST_SHARDINGS = 1024


def array_to_tensor(array: jax.Array) -> torch.Tensor:
    """The tensor over the memory of ``array``, which is waited for."""
    try:
        if array.sharding in _CPU_SHARDINGS and array.dtype in EXCHANGE.shared_numpy_dtypes:
            return EXCHANGE.from_capsule(EXCHANGE.give(array))
    except Exception:  # the complete conversion finds the reason
        pass
    return convert_array(array, None, None)


def convert_array(array: jax.Array, device: Any, copy: bool | None) -> torch.Tensor:
    """The complete conversion: every kind of array, a target device, and the wish to share or not to."""
    EXCHANGE.ready()
    local = _local(array)
    dtype = JAX_TO_TORCH.get(local.dtype)
    if dtype is None:
        raise UnsupportedDtypeError(
            f"value: an array of dtype {local.dtype} cannot become a torch tensor: {reason_refused(str(local.dtype))}; "
            "convert it with .astype() first"
        )
    tensor, shared = _export(local, dtype, copy)
    target = tensor.device if device is None else as_torch_device(device)
    if target.type == tensor.device.type and target.index in (None, tensor.device.index):
        return tensor.clone() if copy is True and shared else tensor
    if copy is False:
        raise cannot_share(f"the array is on {tensor.device} and device={target} has other memory")
    return tensor.to(target)


def _local(array: Any) -> jax.Array:
    """The single-device array that stands for ``array``; raises for what has none."""
    if isinstance(array, jax.core.Tracer):
        raise tracer_error(array)
    if is_key(array):
        raise key_error(array)
    if array.is_deleted():
        raise deleted_error()
    if len(array.sharding.device_set) == 1 and array.is_fully_addressable:
        return array  # type: ignore[no-any-return]
    if not array.is_fully_replicated or not array.addressable_shards:
        raise sharded_error(array)
    return array.addressable_data(0)  # type: ignore[no-any-return]


def _export(array: jax.Array, dtype: torch.dtype, copy: bool | None) -> tuple[torch.Tensor, bool]:
    """The tensor, and whether it shares the array's memory."""
    on_cpu = torch_device_of(next(iter(array.devices()))).type == "cpu"
    if array.dtype not in EXCHANGE.shared_numpy_dtypes:
        if copy is False:
            raise cannot_share(f"the installed versions cannot exchange {array.dtype} by reference")
        with jax.ensure_compile_time_eval():
            bits = array.view(jax.numpy.uint8)
        return (EXCHANGE.from_capsule(EXCHANGE.give(bits)) if on_cpu else export_cuda(bits)).view(dtype), False
    if not on_cpu:
        return export_cuda(array), True
    if len(_CPU_SHARDINGS) < _MOST_SHARDINGS and isinstance(array.sharding, SingleDeviceSharding):
        _CPU_SHARDINGS.add(array.sharding)
    return EXCHANGE.from_capsule(EXCHANGE.give(array)), True
