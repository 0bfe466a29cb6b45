"""Values: deterministic tensors to convert, and what they hold, read without the package under test."""

from typing import Any

import jax
import numpy as np
import torch

from . import dtypes
from .layouts import contiguous_copy
from .shapes import Shape


def sample(name: str, shape: Shape, *, device: torch.device | str = "cpu") -> torch.Tensor:
    """A torch tensor of dtype ``name`` whose values are small and exact in every dtype, and mostly distinct."""
    dtype = dtypes.TORCH[name]
    numel = int(np.prod(shape, dtype=np.int64))
    ramp = torch.arange(numel, dtype=torch.int32) % 7
    if dtype.is_complex:
        values = torch.complex(ramp.to(torch.float64), -ramp.to(torch.float64) / 2)
    elif dtype.is_floating_point and name != "float8_e8m0fnu":
        values = ramp.to(torch.float32) / 2 - 1.5
    else:
        values = (2**ramp) if name == "float8_e8m0fnu" else ramp
        values = values.to(torch.float32)
    return values.to(dtype).reshape(shape).to(device)


def as_numpy(value: torch.Tensor | jax.Array) -> np.ndarray[Any, Any]:
    """The values in NumPy; what NumPy has no dtype for is widened exactly to float32."""
    if isinstance(value, jax.Array):
        array = np.asarray(value)
        return array.astype(np.float32) if array.dtype.kind == "V" or "float8" in array.dtype.name else array
    tensor = contiguous_copy(value).cpu()
    exotic = tensor.dtype.is_floating_point and tensor.dtype not in {torch.float16, torch.float32, torch.float64}
    return (tensor.float() if exotic else tensor).numpy()
