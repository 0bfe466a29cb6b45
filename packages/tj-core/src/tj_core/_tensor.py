"""One tensor becomes one array.

NOTE [What a shared tensor must pass]
    A TensorImpl of its own in the capsule (``.data``): ``tensor.data = ...`` and ``tensor.set_()`` let go of the memory
    under an array that was exported from the tensor itself.
    A storage that cannot be resized (pinned, as by ``tensor.numpy()``): a later ``resize_()`` is then torch's error,
    where it would free the memory under the array.
    An address: 0 where there is no memory (fake and functionalized tensors; wrapped and sparse ones raise), else a
    multiple of 64, or JAX copies it in the background while torch may already write to it.
    No conjugate and no negative bit, which the exchange drops in silence.
    Dense and permuted at most, which JAX checks itself; but some versions read permuted memory wrongly.
Whatever does not pass takes the complete conversion, which copies what can be copied and names what cannot cross.
"""

from __future__ import annotations

import warnings
from typing import Any

import jax
import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils._python_dispatch import _disable_current_modes

from ._cuda import import_cuda
from ._devices import as_jax_device, jax_device_of
from ._dtypes import ROW_OF_TORCH, TORCH_TO_JAX, WIDE, name_of, reason_refused
from ._errors import PrecisionLossWarning, SharingError, UnsupportedDtypeError, ValueRangeError
from ._exchange import EXCHANGE
from ._kinds import cannot_share, refused_tensor
from ._layouts import ALIGNMENT, fresh, why_not_shared

_PINNED_AS = {torch.bfloat16: torch.int16} | {
    d: torch.uint8 for d, row in ROW_OF_TORCH.items() if row.passage == "bits"
}
# Classes whose instances are their storage and nothing else; subclasses may be anything.
PLAIN_CLASSES: frozenset[type] = frozenset({torch.Tensor, torch.nn.Parameter})

_warned = False


def tensor_to_array(tensor: torch.Tensor) -> jax.Array:
    """The array over the memory of ``tensor`` where that can be, over a finished copy where not."""
    return plain_to_array(tensor) if type(tensor) in PLAIN_CLASSES else convert_tensor(tensor, None, None)


def plain_to_array(tensor: torch.Tensor) -> jax.Array:
    """The same for a tensor of the ``PLAIN_CLASSES``; the way that is to cost no more than the exchange."""
    try:
        dtype = tensor.dtype
        if dtype in EXCHANGE.shared_dtypes or (dtype in WIDE and jax.config.read("jax_enable_x64")):
            array = _share(tensor, EXCHANGE.cpu)
            if array is not None:
                return array
    except Exception:  # the complete conversion finds the reason, or another way
        pass
    return convert_tensor(tensor, None, None)


def _share(tensor: torch.Tensor, device: jax.Device) -> jax.Array | None:
    """See NOTE [What a shared tensor must pass]; None or an exception where it does not."""
    data = tensor.data
    address = data.data_ptr()
    suits = (address or not data.numel()) and not address % ALIGNMENT and data.is_cpu
    if not suits or data.is_neg() or data.is_conj() or not (EXCHANGE.permuted or data.is_contiguous()):
        return None
    if data.untyped_storage().resizable():
        _pin(data)
    return EXCHANGE.take(EXCHANGE.to_capsule(data), device, None)


def _pin(data: torch.Tensor) -> None:
    # numpy() has no bfloat16 and no float8, but any view pins the storage.
    view = _PINNED_AS.get(data.dtype)
    (data if view is None else data.view(view)).numpy()


def convert_tensor(tensor: torch.Tensor, device: Any, copy: bool | None) -> jax.Array:
    """The complete conversion: every kind of tensor, a target device, and the wish to share or not to."""
    EXCHANGE.ready()
    error = refused_tensor(tensor)
    if error is not None:
        raise error
    # A tensor that is not wrapped is a constant to whatever torch is tracing or transforming around us.
    with _disable_current_modes(), temporarily_clear_interpreter_stack():
        return _convert(_plain(tensor), device, copy)


def _convert(plain: torch.Tensor, device: Any, copy: bool | None) -> jax.Array:
    target = jax_device_of(plain.device) if device is None else as_jax_device(device)
    if plain.dtype not in TORCH_TO_JAX:
        raise _refused_dtype(plain.dtype)
    if plain.dtype in WIDE and not jax.config.read("jax_enable_x64"):
        if copy is False:
            raise cannot_share(f"{plain.dtype} becomes {WIDE[plain.dtype]} while jax_enable_x64 is off")
        plain, copy = _narrow(plain), None
    return _place(plain, target, copy)


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without its gradient and its subclass."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().as_subclass(torch.Tensor)


def _refused_dtype(dtype: torch.dtype) -> UnsupportedDtypeError:
    return UnsupportedDtypeError(
        f"value: a tensor of dtype {dtype} cannot become a JAX array: {reason_refused(name_of(dtype))}; "
        "convert it with .to() first"
    )


# ---- 64 bits while jax_enable_x64 is off


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    narrow = WIDE[tensor.dtype]
    if tensor.is_floating_point() or tensor.is_complex():
        _warn_once(tensor.dtype, narrow)
    elif not _fits(tensor):
        raise ValueRangeError(
            f"value: a tensor of {tensor.dtype} holds values that do not fit {narrow}, the widest integer that JAX has "
            'while 64 bits are off; switch them on with jax.config.update("jax_enable_x64", True)'
        )
    return tensor.resolve_neg().to(narrow)


def _fits(tensor: torch.Tensor) -> bool:
    if tensor.numel() == 0:
        return True
    if tensor.dtype == torch.uint64:
        return not bool((tensor.view(torch.int64) >> 32).any())
    low, high = tensor.aminmax()
    return bool(low >= -(2**31)) and bool(high < 2**31)


def _warn_once(wide: torch.dtype, narrow: torch.dtype) -> None:
    global _warned
    if _warned:
        return
    _warned = True
    warnings.warn(
        f"{wide} becomes {narrow}, because JAX has no 64-bit types while jax_enable_x64 is off; to keep the precision, "
        'call jax.config.update("jax_enable_x64", True) first. This is said once per process.',
        PrecisionLossWarning,
        stacklevel=2,
    )


# ---- placement


def _place(tensor: torch.Tensor, target: Any, copy: bool | None) -> jax.Array:
    on_cpu = isinstance(target, jax.Device) and target.platform == "cpu"
    if on_cpu and tensor.device.type != "cpu":
        if copy is False:
            raise _other_memory(tensor, target)
        tensor = tensor.cpu()
    home = target if on_cpu else jax_device_of(tensor.device)
    array = _import(tensor, home, copy)
    if target in (home, array.sharding):
        return array
    if copy is False:
        raise _other_memory(tensor, target)
    # The transfer reads torch's memory: it is over before torch may write there again.
    with jax.ensure_compile_time_eval():
        moved: jax.Array = jax.device_put(array, target)
    return moved.block_until_ready()


def _other_memory(tensor: torch.Tensor, target: Any) -> SharingError:
    return cannot_share(f"the tensor is on {tensor.device} and device={target} has other memory")


def _import(tensor: torch.Tensor, device: jax.Device, copy: bool | None) -> jax.Array:
    if TORCH_TO_JAX[tensor.dtype] not in EXCHANGE.shared_numpy_dtypes:
        return _import_bits(tensor, device, copy)
    if tensor.device.type == "cuda":
        return import_cuda(tensor, device, copy)
    if copy is not True:
        array = _try_share(tensor, device)
        if array is not None:
            return array
        if copy is False:
            raise cannot_share(why_not_shared(tensor))
    return EXCHANGE.take(EXCHANGE.to_capsule(fresh(tensor)), device, None)


def _try_share(tensor: torch.Tensor, device: jax.Device) -> jax.Array | None:
    try:
        return _share(tensor, device)
    except Exception:  # not shareable: the caller copies, or says why not
        return None


def _import_bits(tensor: torch.Tensor, device: jax.Device, copy: bool | None) -> jax.Array:
    """For dtypes that both have but the exchange protocol of the installed versions does not."""
    if copy is False:
        raise cannot_share(f"the installed versions cannot exchange {tensor.dtype} by reference")
    array = _import(fresh(tensor).view(torch.uint8), device, None)
    with jax.ensure_compile_time_eval():
        same_bits: jax.Array = jax.lax.bitcast_convert_type(array, TORCH_TO_JAX[tensor.dtype])
    return same_bits.block_until_ready()
