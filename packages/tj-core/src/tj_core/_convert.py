"""Conversion of values between torch and JAX (first version: public DLPack only)."""

from __future__ import annotations

from typing import Any

import jax
import torch

from ._tree import tree_flatten


def torch_to_jax(value: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    leaves, treedef = tree_flatten(value)
    return treedef.unflatten([_to_jax(x) if isinstance(x, torch.Tensor) else x for x in leaves])


def jax_to_torch(value: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    leaves, treedef = tree_flatten(value)
    return treedef.unflatten([_to_torch(x) if isinstance(x, jax.Array) else x for x in leaves])


def _to_jax(t: torch.Tensor) -> jax.Array:
    t = t.detach()
    return jax.dlpack.from_dlpack(t if t.dtype == torch.bool else t.contiguous())


def _to_torch(a: jax.Array) -> torch.Tensor:
    return torch.from_dlpack(a)


def shares_memory(tensor: torch.Tensor, array: jax.Array, /) -> bool:
    return tensor.data_ptr() == array.unsafe_buffer_pointer()
