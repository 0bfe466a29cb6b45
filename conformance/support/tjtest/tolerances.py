"""Tolerances, stated once per dtype: those of ``torch.testing.assert_close``, which both frameworks' kernels meet."""

from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from .values import as_numpy


class Tolerance(NamedTuple):
    """Relative and absolute tolerance."""

    rtol: float
    atol: float


EXACT = Tolerance(0.0, 0.0)
TOLERANCES: dict[str, Tolerance] = {
    "float16": Tolerance(1e-3, 1e-5),
    "bfloat16": Tolerance(1.6e-2, 1e-5),
    "float32": Tolerance(1.3e-6, 1e-5),
    "float64": Tolerance(1e-7, 1e-7),
    "complex64": Tolerance(1.3e-6, 1e-5),
    "complex128": Tolerance(1e-7, 1e-7),
}


def dtype_name(value: torch.Tensor | jax.Array) -> str:
    """The dtype's name, the same in both frameworks."""
    return str(value.dtype).removeprefix("torch.")


def assert_close(actual: Any, expected: Any, *, check_dtype: bool = True) -> None:
    """Equal within the tolerance of the coarser dtype, for tensors and arrays of either framework; shapes equal."""
    names = dtype_name(actual), dtype_name(expected)
    assert not check_dtype or names[0] == names[1], f"dtypes differ: {names[0]} and {names[1]}"
    assert tuple(actual.shape) == tuple(expected.shape), f"shapes differ: {actual.shape} and {expected.shape}"
    rtol, atol = max(TOLERANCES.get(name, EXACT) for name in names)
    np.testing.assert_allclose(_widened(actual), _widened(expected), rtol=rtol, atol=atol)


def assert_equal(actual: Any, expected: Any) -> None:
    """Equal in shape, in dtype and in every value; NaN equals NaN."""
    assert dtype_name(actual) == dtype_name(expected)
    assert tuple(actual.shape) == tuple(expected.shape)
    np.testing.assert_array_equal(as_numpy(actual), as_numpy(expected))


def _widened(value: torch.Tensor | jax.Array) -> np.ndarray[Any, Any]:
    array = as_numpy(value)
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
