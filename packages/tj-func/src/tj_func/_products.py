"""Products with the Jacobian, from the left and from the right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import _jax_engine as engine
from ._carry import Transform, transformed
from ._errors import TransformError
from ._frameworks import Framework, Function
from ._torch_engine import in_forward_mode


def vjp(
    func: Callable[..., Any], *primals: Any, has_aux: bool = False, framework: Framework | None = None
) -> tuple[Any, ...]:
    """The output of a function, and the function that multiplies a cotangent with its Jacobian.

    Args:
        func: a torch function, a JAX function or a mixture; see :func:`grad`.
        primals: its arguments, all tensors or all arrays: trees of floating-point or complex values.
        has_aux: ``func`` returns ``(out, aux)``.
        framework: see :func:`grad`.

    Returns:
        ``(out, vjp_fn)``, or ``(out, vjp_fn, aux)``. ``vjp_fn(cotangents)``, of the structure and shapes of ``out``,
        gives a tuple with the gradient for each primal.

    Raises:
        RuntimeError: a primal is an integer, or the cotangents do not fit.

    >>> import torch
    >>> out, vjp_fn = vjp(lambda x: x * x, torch.tensor([1.0, 2.0]))
    >>> vjp_fn(torch.ones(2))
    (tensor([2., 4.]),)
    """
    transform = Transform(partial(_vjp_in_torch, has_aux=has_aux), partial(engine.vjp, has_aux=has_aux))
    return transformed(func, transform, framework)(*primals)  # type: ignore[no-any-return]


def _vjp_in_torch(function: Function, has_aux: bool) -> Function:
    return lambda *primals: torch.func.vjp(function, *primals, has_aux=has_aux)


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
    framework: Framework | None = None,
) -> tuple[Any, ...]:
    """The output of a function, and the product of its Jacobian with tangents, in forward mode.

    Args:
        func: a torch function, a JAX function or a mixture; see :func:`grad`.
        primals: a tuple with its arguments: trees of floating-point or complex values.
        tangents: a tuple of the same structure and shapes.
        strict: an output that does not depend on the primals is an error; for tensors only.
        has_aux: ``func`` returns ``(out, aux)``.
        framework: see :func:`grad`.

    Returns:
        ``(out, out_tangent)``, or ``(out, out_tangent, aux)``.

    Raises:
        RuntimeError: the tangents do not fit, or ``strict`` with arrays.

    >>> import jax.numpy as jnp
    >>> out, tangent = jvp(lambda x: x * x, (jnp.array(3.0),), (jnp.array(1.0),))
    >>> out.item(), tangent.item()
    (9.0, 6.0)
    """
    transform = Transform(
        partial(_jvp_in_torch, strict=strict, has_aux=has_aux),
        partial(_jvp_in_jax, strict=strict, has_aux=has_aux),
        trial=_on_primals,
    )
    return transformed(func, transform, framework)(primals, tangents)  # type: ignore[no-any-return]


def _jvp_in_torch(function: Function, strict: bool, has_aux: bool) -> Function:
    run = in_forward_mode(torch.func.jvp)
    return lambda primals, tangents: run(function, primals, tangents, strict=strict, has_aux=has_aux)


def _jvp_in_jax(function: Function, strict: bool, has_aux: bool) -> Function:
    if strict:
        raise TransformError("jvp: strict is for tensors only; leave it out for arrays")
    return engine.jvp(function, has_aux)


def _on_primals(function: Function) -> Function:
    return lambda primals, tangents: function(*primals)


def linearize(
    func: Callable[..., Any], *primals: Any, framework: Framework | None = None
) -> tuple[Any, Callable[..., Any]]:
    """The output of a function, and the linear function that is its derivative there.

    Args:
        func: a torch function, a JAX function or a mixture; see :func:`grad`.
        primals: its arguments: trees of floating-point or complex values.
        framework: see :func:`grad`.

    Returns:
        ``(out, jvp_fn)``: ``jvp_fn(*tangents)`` is what :func:`jvp` gives for these tangents, without computing the
        function again.

    Raises:
        RuntimeError: a primal is an integer.

    >>> import jax.numpy as jnp
    >>> out, jvp_fn = linearize(jnp.sin, jnp.array(0.0))
    >>> jvp_fn(jnp.array(2.0)).item()
    2.0
    """
    transform = Transform(_linearize_in_torch, engine.linearize)
    return transformed(func, transform, framework)(*primals)  # type: ignore[no-any-return]


def _linearize_in_torch(function: Function) -> Function:
    run = in_forward_mode(torch.func.linearize)
    return lambda *primals: run(function, *primals)
