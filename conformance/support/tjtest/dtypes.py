"""Dtypes by name: every one that the installed frameworks have, and the families that tests are parametrised over."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEXES = ("complex64", "complex128")
FLOAT8S = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
#: What both frameworks compute with on every supported version.
COMMON = ("bool", *INTEGERS, *FLOATS, *COMPLEXES)
#: What JAX narrows unless ``jax_enable_x64`` is on, and to what.
NARROWED = {"int64": "int32", "uint64": "uint32", "float64": "float32", "complex128": "complex64"}
DIFFERENTIABLE = (*FLOATS, *COMPLEXES)


def _of_torch() -> dict[str, torch.dtype]:
    found = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]
    return {str(dtype).removeprefix("torch."): dtype for dtype in found}


def _of_jax() -> dict[str, np.dtype[Any]]:
    scalar = type(jnp.float32)
    found = [np.dtype(value.dtype) for value in vars(jnp).values() if isinstance(value, scalar)]
    return {dtype.name: dtype for dtype in found}


#: Every dtype of the installed torch, by its canonical name (aliases like ``half`` appear once, as ``float16``).
TORCH = _of_torch()
#: Every dtype of the installed JAX, by its canonical name.
JAX = _of_jax()


def in_jax(name: str, *, x64: bool) -> str:
    """The name of the dtype in which JAX holds a torch tensor of dtype ``name``."""
    return name if x64 else NARROWED.get(name, name)
