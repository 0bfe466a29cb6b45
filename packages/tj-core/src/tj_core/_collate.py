"""Batches from samples that hold JAX arrays, made without running JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import torch
from torch.utils.data._utils.collate import collate as collate_by_map
from torch.utils.data._utils.collate import default_collate_fn_map

from ._array import array_to_tensor


def _stack_arrays(batch: Sequence[jax.Array], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.stack([array_to_tensor(array) for array in batch])


def _stack_numpy_scalars(batch: Sequence[np.generic], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.as_tensor(np.stack(batch))


_MAP: dict[type | tuple[type, ...], Callable[..., Any]] = {
    jax.Array: _stack_arrays,
    **default_collate_fn_map,
    np.generic: _stack_numpy_scalars,
}


def collate(batch: Sequence[Any], /) -> Any:
    """Stack samples to one batch, as torch's ``default_collate`` does, JAX arrays among the leaves included.

    Args:
        batch: samples of one structure: tensors, JAX arrays, NumPy arrays, numbers or strings, nested in dicts,
            namedtuples, tuples and lists.

    Returns:
        The same structure; each leaf of shape ``[...]`` and dtype ``d`` becomes a torch tensor of shape
        ``[len(batch), ...]`` and dtype ``d``, copied. The result is made of tensors because a DataLoader's workers
        may make it: no JAX computation runs here, which a forked worker could not survive. The arrays of a batch are
        made in the parent process: ``for batch in map(torch_to_jax, loader)``.

    Raises:
        UnsupportedKindError, UnsupportedDtypeError: an array that cannot become a tensor (see ``jax_to_torch``).
        RuntimeError, TypeError: shapes or structures differ (torch's own errors).

    Example:
        >>> import jax.numpy as jnp
        >>> from tj_core import collate
        >>> collate([(jnp.zeros(3), 0), (jnp.ones(3), 1)])
        [tensor([[0., 0., 0.],
                [1., 1., 1.]]), tensor([0, 1])]
    """
    return collate_by_map(batch, collate_fn_map=_MAP)
