"""What crosses the boundary: shape and dtype of an operand or result, as JAX and as torch see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from ._core import core

# The dtypes that both frameworks have, under the one name that both give them.
_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
)
_TORCH: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES}
_NAME: dict[torch.dtype, str] = {dtype: name for name, dtype in _TORCH.items()}


def name_of(dtype: torch.dtype) -> str:
    """The name that both frameworks give this dtype."""
    return _NAME[dtype]


def dtype_named(name: str) -> torch.dtype:
    """The torch dtype of this name."""
    return _TORCH[name]


def x64() -> bool:
    """Whether JAX has 64-bit dtypes at the moment."""
    return bool(jax.config.values["jax_enable_x64"])


class Spec(NamedTuple):
    """Shape, and the torch dtype of the array on the JAX side (int32 where torch has int64 and x64 is off)."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def differentiable(self) -> bool:
        """Whether JAX gives this value a tangent of its own dtype."""
        return self.dtype.is_floating_point or self.dtype.is_complex

    def aval(self) -> jax.core.ShapedArray:
        """The same as JAX's abstract value."""
        return jax.core.ShapedArray(self.shape, np.dtype(name_of(self.dtype)))

    def struct(self) -> jax.ShapeDtypeStruct:
        """The same as a shape and dtype to ask JAX for."""
        return jax.ShapeDtypeStruct(self.shape, np.dtype(name_of(self.dtype)))

    def lanes(self, size: int) -> Spec:
        """With a leading axis of ``size`` lanes."""
        return Spec((size, *self.shape), self.dtype)


def spec_of_array(array: Any, name: str) -> Spec:
    """The spec of a JAX array or a tracer; ``name`` is how messages call it."""
    dtype = array.dtype
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        raise core.UnsupportedKindError(
            f"{name}: a typed PRNG key has no torch counterpart; pass it as `rng=` to the function that "
            "torch_module_to_jax_with_buffers returns, or pass jax.random.key_data(key)"
        )
    if dtype.name not in _TORCH:
        raise core.UnsupportedDtypeError(f"{name}: torch has no dtype for {dtype.name}; cast it with .astype first")
    return Spec(tuple(array.shape), _TORCH[dtype.name])


def spec_of_tensor(tensor: torch.Tensor, name: str) -> Spec:
    """The spec under which JAX receives ``tensor``: 64-bit dtypes narrow while x64 is off."""
    if tensor.dtype not in _NAME:
        raise core.UnsupportedDtypeError(f"{name}: JAX has no dtype for {tensor.dtype}; cast it with .to first")
    if tensor.layout is not torch.strided:
        raise core.UnsupportedKindError(
            f"{name}: JAX takes dense tensors, this one is {tensor.layout}; use .to_dense()"
        )
    dtype = _TORCH[jax.dtypes.canonicalize_dtype(_NAME[tensor.dtype]).name]
    return Spec(tuple(int(n) for n in tensor.shape), dtype)


def differentiable(specs: Iterable[Spec]) -> tuple[int, ...]:
    """The indices of the specs that have tangents."""
    return tuple(i for i, spec in enumerate(specs) if spec.differentiable)
