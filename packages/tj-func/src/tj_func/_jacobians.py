"""Jacobians and Hessians."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import _jax_engine as engine
from ._carry import Transform, transformed
from ._errors import TransformError
from ._frameworks import Framework, Function
from ._jax_engine import Argnums
from ._torch_engine import hessian as hessian_in_torch
from ._torch_engine import jacfwd as jacfwd_in_torch
from ._vmap import check_randomness


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    framework: Framework | None = None,
) -> Callable[..., Any]:
    """The Jacobian of a function, in reverse mode: a row for each element of the output.

    Args:
        func: a torch function, a JAX function or a mixture; see :func:`grad`.
        argnums: the places of the arguments to differentiate by.
        has_aux: ``func`` returns ``(out, aux)``, and the result is ``(jacobian, aux)``.
        chunk_size: how many rows are computed at once; for tensors only.
        framework: see :func:`grad`.

    Returns:
        A function of the same arguments. For an output of shape (M...) and an argument of shape (N...) its result has
        the shape (M..., N...); trees give trees of such, that of the output outside, that of the argument inside.

    Raises:
        RuntimeError: as :func:`grad`, and for ``chunk_size`` with arrays.

    >>> import torch
    >>> jacrev(torch.sin)(torch.zeros(2))
    tensor([[1., 0.],
            [0., 1.]])
    """
    transform = Transform(
        partial(torch.func.jacrev, argnums=argnums, has_aux=has_aux, chunk_size=chunk_size),
        partial(_jacrev_in_jax, argnums=argnums, has_aux=has_aux, chunk_size=chunk_size),
    )
    return transformed(func, transform, framework)


def _jacrev_in_jax(function: Function, argnums: Argnums, has_aux: bool, chunk_size: int | None) -> Function:
    if chunk_size is not None:
        raise TransformError("jacrev: chunk_size is for tensors only yet; leave it out for arrays")
    return engine.jacrev(function, argnums, has_aux)


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
    framework: Framework | None = None,
) -> Callable[..., Any]:
    """The Jacobian of a function, in forward mode: a column for each element of the argument.

    ``randomness`` is that of the :func:`vmap` inside. Everything else, the result included, is as in :func:`jacrev`.

    >>> import jax.numpy as jnp
    >>> jacfwd(jnp.sin)(jnp.zeros(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    check_randomness("jacfwd", randomness)
    transform = Transform(
        partial(jacfwd_in_torch, argnums=argnums, has_aux=has_aux, randomness=randomness),
        partial(engine.jacfwd, argnums=argnums, has_aux=has_aux),
    )
    return transformed(func, transform, framework)


def hessian(
    func: Callable[..., Any], argnums: Argnums = 0, *, framework: Framework | None = None
) -> Callable[..., Any]:
    """The Hessian of a function: forward mode over reverse mode.

    For an output of shape (M...) and an argument of shape (N...) the result has the shape (M..., N..., N...). Arguments
    and errors are those of :func:`jacrev`.

    >>> import torch
    >>> hessian(lambda x: (x**3).sum())(torch.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    transform = Transform(partial(hessian_in_torch, argnums=argnums), partial(engine.hessian, argnums=argnums))
    return transformed(func, transform, framework)
