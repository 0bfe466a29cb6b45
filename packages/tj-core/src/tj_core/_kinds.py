"""What kind of tensor or array was handed in, and the error for each kind that cannot cross."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]  # in no __all__

from ._errors import SharingError, UnsupportedKindError


class Kind(NamedTuple):
    """A kind that is refused: how it is recognised, what it is called, and what to do instead."""

    matches: Callable[[Any], bool]
    name: str
    remedy: str


def _class_named(module: str, name: str) -> Callable[[Any], bool]:
    """Recognise instances of a class by name along the MRO, without importing its module."""
    return lambda value: any(cls.__name__ == name and cls.__module__.startswith(module) for cls in type(value).__mro__)


def _is_functorch_wrapped(tensor: torch.Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(tensor) or torch._is_functional_tensor(tensor)


def _has_own_dispatch(tensor: torch.Tensor) -> bool:
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def _has_no_memory(tensor: torch.Tensor) -> bool:
    return tensor.numel() > 0 and tensor.device.type == "cpu" and tensor.data_ptr() == 0


_TRANSFORM = (
    "only the function that is being transformed may see it; "
    "wrap the JAX function with tj_autograd.jax_function_to_torch, which has rules for torch.func and torch.compile"
)

# The first row that matches names the kind, so the more special ones come first.
TENSOR_KINDS: tuple[Kind, ...] = (
    Kind(_class_named("torch._subclasses", "FakeTensor"), "a FakeTensor (it has a shape but no values)", _TRANSFORM),
    Kind(_class_named("torch._subclasses", "FunctionalTensor"), "a tensor that is being functionalized", _TRANSFORM),
    Kind(
        _class_named("torch.distributed", "DTensor"),
        "a DTensor",
        "gather it with .full_tensor(), or take this rank's part with .to_local()",
    ),
    Kind(
        _class_named("torch.distributed", "AsyncCollectiveTensor"), "a pending collective", "call .wait() on it first"
    ),
    Kind(
        lambda t: isinstance(t, UninitializedTensorMixin),
        "an uninitialized parameter of a lazy module",
        "run the module once so that its shapes are known",
    ),
    Kind(
        lambda t: bool(t.is_nested), "a nested tensor", "give its parts (.unbind()) or pad it (.to_padded_tensor(0.0))"
    ),
    Kind(lambda t: t.layout is not torch.strided, "a tensor with a {0.layout} layout", "call .to_dense() on it first"),
    Kind(lambda t: bool(t.is_quantized), "a quantized tensor", "call .dequantize() on it first"),
    Kind(lambda t: bool(t.is_meta), "a meta tensor (it has a shape but no values)", "materialize it with .to_empty()"),
    Kind(_is_functorch_wrapped, "a tensor inside a torch.func transform", _TRANSFORM),
    Kind(
        _has_own_dispatch,
        "a tensor subclass with operators of its own ({1})",
        "convert the plain tensor that it holds",
    ),
    Kind(_has_no_memory, "a tensor without memory of its own ({1})", "convert a tensor that has been materialized"),
)


def refused_tensor(tensor: torch.Tensor) -> UnsupportedKindError | None:
    """The error for a tensor of a kind that cannot become an array, or None."""
    for kind in TENSOR_KINDS:
        if kind.matches(tensor):
            name = kind.name.format(tensor, type(tensor).__name__)
            return UnsupportedKindError(f"value: {name} cannot become a JAX array; {kind.remedy}")
    return None


def tracer_error(tracer: Any) -> UnsupportedKindError:
    """The error for a traced JAX value, which has no values yet."""
    return UnsupportedKindError(
        f"value: {type(tracer).__name__} of {tracer.aval.str_short()} is a value that JAX is still tracing (inside "
        "jit, grad, vmap, ...) and has no memory to share; to call torch there, wrap the torch function with "
        "tj_jaxify.torch_function_to_jax, or the module with tj_jaxify.torch_module_to_jax"
    )


def is_key(array: Any) -> bool:
    """Whether the array holds typed PRNG keys (or another dtype of JAX's own making)."""
    return bool(jax.numpy.issubdtype(array.dtype, jax.dtypes.extended))


def key_error(array: Any) -> UnsupportedKindError:
    """The error for a typed PRNG key."""
    return UnsupportedKindError(
        f"value: {array.dtype} is a typed PRNG key, which torch does not have; convert jax.random.key_data(key), and "
        "get the key back with jax.random.wrap_key_data(...)"
    )


def deleted_error() -> UnsupportedKindError:
    """The error for an array whose buffer is gone."""
    return UnsupportedKindError(
        "value: this array has been deleted (it was donated to a jitted function, or .delete() was called); "
        "convert it before it is donated, or keep a copy"
    )


def sharded_error(array: Any) -> UnsupportedKindError:
    """The error for an array that is spread over several devices."""
    where = f"{len(array.sharding.device_set)} devices"
    if not array.is_fully_addressable:
        return UnsupportedKindError(
            f"value: an array of shape {array.shape} sharded over {where}, not all of this process; gather it with "
            "jax.experimental.multihost_utils.process_allgather(array), or convert array.addressable_shards[i].data"
        )
    return UnsupportedKindError(
        f"value: an array of shape {array.shape} sharded over {where}; gather it with "
        "jax.device_put(array, jax.local_devices()[0]), or convert array.addressable_shards[i].data one by one"
    )


def cannot_share(reason: str) -> SharingError:
    """The error for ``copy=False`` where memory cannot be shared."""
    return SharingError(f"copy: copy=False was asked for, but {reason}; pass copy=None to allow a copy")
