"""Memory lent by XLA or NumPy, as torch tensors, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._spec import dtype_named, name_of

# Integers of the same width, for dtypes that DLPack or NumPy do not name.
_BITS = {1: torch.uint8, 2: torch.int16}
_NUMPY_BITS = {1: np.uint8, 2: np.int16}


def borrowed(buffer: Any) -> Tensor:
    """The memory of an XLA buffer as a tensor; valid until the callback returns."""
    try:
        return torch.from_dlpack(buffer)
    except (RuntimeError, BufferError):  # a dtype that this torch's DLPack does not name
        return from_numpy(np.asarray(buffer))


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """A writable NumPy array as a tensor, sharing memory, for NumPy's own dtypes and those of ml_dtypes."""
    dtype = dtype_named(array.dtype.name)
    if array.dtype.isbuiltin == 1:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(_NUMPY_BITS[array.dtype.itemsize])).view(dtype)


def to_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A tensor as a NumPy array of the same dtype, as JAX names it."""
    dense = tensor.resolve_conj().resolve_neg().contiguous()
    dtype = np.dtype(name_of(dense.dtype))
    if dtype.isbuiltin == 1:
        return dense.numpy()
    return dense.view(_BITS[dtype.itemsize]).numpy().view(dtype)
