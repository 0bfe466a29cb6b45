"""Gradients of functions that give one number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import _jax_engine as engine
from ._carry import Transform, transformed
from ._frameworks import Framework
from ._jax_engine import Argnums


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, framework: Framework | None = None
) -> Callable[..., Any]:
    """The gradient of a function that gives one number, as a function of the same arguments.

    Args:
        func: a torch function, a JAX function, or a function that mixes both through the wrappers of tj_autograd and
            tj_jaxify. It returns a scalar of shape (), or ``(scalar, aux)`` with ``has_aux``.
        argnums: the place, or the places, of the positional arguments (trees of floating-point or complex values) to
            differentiate by.
        has_aux: ``func`` returns ``(scalar, aux)``, any tree, which is given back beside the gradient.
        framework: "torch" or "jax", where ``func`` is written in one and that cannot be seen.

    Returns:
        A function. Called with tensors it gives tensors, computed by ``torch.func``; called with arrays it gives
        arrays, computed by JAX. The gradient has the structure of the argument, or is a tuple if ``argnums`` is one;
        it is ``(gradient, aux)`` with ``has_aux``. Complex gradients follow the convention of the framework that is
        called. The result can be transformed again, on either side.

    Raises:
        RuntimeError: the output is no scalar, an argument is an integer, or ``argnums`` does not fit. For arrays
            it is a ``TransformError``, which is one.
        UnsupportedKindError: tensors and arrays are both among the arguments.

    >>> import jax.numpy as jnp, torch
    >>> grad(torch.sin)(torch.tensor(0.0))
    tensor(1.)
    >>> grad(lambda x: jnp.sin(x))(torch.tensor(0.0))
    tensor(1.)
    >>> grad(lambda x: torch.sin(x))(jnp.array(0.0)).item()
    1.0
    """
    transform = Transform(
        partial(torch.func.grad, argnums=argnums, has_aux=has_aux),
        partial(engine.grad, argnums=argnums, has_aux=has_aux),
    )
    return transformed(func, transform, framework)


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, framework: Framework | None = None
) -> Callable[..., Any]:
    """The gradient and the value of a function that gives one number: ``(gradient, value)``.

    Everything is as in :func:`grad`; with ``has_aux`` the result is ``(gradient, (value, aux))``.

    >>> import torch
    >>> grad_and_value(lambda x: (x**2).sum())(torch.tensor([1.0, 2.0]))
    (tensor([2., 4.]), tensor(5.))
    """
    transform = Transform(
        partial(torch.func.grad_and_value, argnums=argnums, has_aux=has_aux),
        partial(engine.grad_and_value, argnums=argnums, has_aux=has_aux),
    )
    return transformed(func, transform, framework)
