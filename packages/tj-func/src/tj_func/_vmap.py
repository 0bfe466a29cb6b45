"""Functions of one example as functions of many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import _jax_engine as engine
from ._carry import Transform, transformed
from ._errors import TransformError
from ._frameworks import Framework

_RANDOMNESS = ("error", "different", "same")


def vmap(
    func: Callable[..., Any],
    in_dims: int | tuple[Any, ...] = 0,
    out_dims: int | tuple[Any, ...] = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
    framework: Framework | None = None,
) -> Callable[..., Any]:
    """A function of one example as a function of a batch of them.

    Args:
        func: a torch function, a JAX function or a mixture; see :func:`grad`. It sees arguments without the mapped
            dimension, of which it may ask everything but its size.
        in_dims: which dimension of each positional argument is mapped: an int for all, or a tuple with an entry for
            each, where None leaves an argument as it is and a tree goes down into a tree. Keyword arguments are not
            mapped.
        out_dims: where the mapped dimension stands in the outputs.
        randomness: what a torch function that draws random numbers does: raise ("error"), draw for each example
            ("different"), or draw once for all ("same"). JAX functions draw from the keys that they are given.
        chunk_size: how many examples are computed at once; all of them if None.
        framework: see :func:`grad`.

    Returns:
        A function. Called with tensors it gives tensors, computed by ``torch.func``; called with arrays it gives
        arrays, computed by JAX. It can be transformed again, on either side.

    Raises:
        ValueError: ``in_dims`` or ``out_dims`` do not fit, or the mapped dimensions differ in size.
        RuntimeError: a random number is drawn under ``randomness="error"``.

    >>> import torch
    >>> rows = torch.arange(6.0).reshape(2, 3)
    >>> vmap(torch.dot)(rows, rows)
    tensor([ 5., 50.])
    >>> vmap(torch.dot, in_dims=(0, None))(rows, torch.ones(3))
    tensor([ 3., 12.])
    """
    check_randomness("vmap", randomness)
    in_jax = partial(engine.vmap, in_dims=in_dims, out_dims=out_dims, chunk_size=chunk_size)
    in_torch = partial(
        torch.func.vmap, in_dims=in_dims, out_dims=out_dims, randomness=randomness, chunk_size=chunk_size
    )
    return transformed(func, Transform(in_torch, in_jax, trial=in_jax), framework)


def check_randomness(name: str, randomness: str) -> None:
    """Refuse a word that is none of the three."""
    if randomness not in _RANDOMNESS:
        raise TransformError(f"{name}: expected randomness to be one of {_RANDOMNESS}, found {randomness!r}")
