"""The transforms of JAX with the signatures, the results and the kinds of error of torch.func."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ._errors import TransformError
from ._frameworks import Function

Argnums = int | tuple[int, ...]


Derivative = Callable[..., Function]


def _checked(derivative: Derivative, function: Function, argnums: Argnums, has_aux: bool, scalar: bool) -> Function:
    """``derivative`` of ``function``, with what it demands of arguments and output checked beforehand."""
    name = derivative.__name__

    def inner(*args: Any, **kwargs: Any) -> Any:
        out = function(*args, **kwargs)
        smooth = _split(name, out)[0] if has_aux else out
        if scalar:
            _check_scalar(name, smooth)
        return out

    transform = derivative(inner, argnums, has_aux)

    def outer(*args: Any, **kwargs: Any) -> Any:
        for number in (argnums,) if isinstance(argnums, int) else argnums:
            if not -len(args) <= number < len(args):
                raise TransformError(f"{name}: argnums has {number}, and there are {len(args)} positional arguments")
            _check_smooth(f"{name}: argument {number}", args[number])
        return transform(*args, **kwargs)

    return outer


def _check_smooth(what: str, tree: Any) -> None:
    for leaf in jax.tree.leaves(tree):
        dtype = jax.dtypes.result_type(leaf)
        if not jnp.issubdtype(dtype, jnp.inexact):
            raise TransformError(f"{what} has dtype {dtype}; only floating-point and complex values have a derivative")


def _split(name: str, out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise TransformError(f"{name}: with has_aux the function must return (out, aux), and it returned {out!r}")
    return out


def _check_scalar(name: str, out: Any) -> None:
    shape = getattr(out, "shape", None)
    if shape != () and not isinstance(out, float):
        found = f"shape {shape}" if shape is not None else f"a {type(out).__name__}"
        raise TransformError(f"{name}: expected the function to return a scalar, found {found}; use vjp or jacrev")


def grad(function: Function, argnums: Argnums, has_aux: bool) -> Function:
    return _checked(jax.grad, function, argnums, has_aux, scalar=True)


def grad_and_value(function: Function, argnums: Argnums, has_aux: bool) -> Function:
    both = _checked(jax.value_and_grad, function, argnums, has_aux, scalar=True)
    return lambda *args, **kwargs: both(*args, **kwargs)[::-1]


def jacrev(function: Function, argnums: Argnums, has_aux: bool) -> Function:
    return _checked(jax.jacrev, function, argnums, has_aux, scalar=False)


def jacfwd(function: Function, argnums: Argnums, has_aux: bool) -> Function:
    return _checked(jax.jacfwd, function, argnums, has_aux, scalar=False)


def hessian(function: Function, argnums: Argnums) -> Function:
    return _checked(jax.hessian, function, argnums, has_aux=False, scalar=False)


def vjp(function: Function, has_aux: bool) -> Function:
    def run(*primals: Any) -> Any:
        for number, primal in enumerate(primals):
            _check_smooth(f"vjp: primal {number}", primal)
        result: tuple[Any, ...] = jax.vjp(function, *primals, has_aux=has_aux)  # type: ignore[call-overload]
        out, pullback, *aux = result

        def vjp_fn(cotangents: Any) -> Any:
            cotangents = _matched("vjp", "the cotangents", cotangents, "the output", out)
            return pullback(cotangents)

        return (out, vjp_fn, *aux)

    return run


def jvp(function: Function, has_aux: bool) -> Function:
    def run(primals: Any, tangents: Any) -> Any:
        for what, value in (("primals", primals), ("tangents", tangents)):
            if not isinstance(value, tuple):
                raise TransformError(f"jvp: expected {what} as a tuple, found a {type(value).__name__}")
        _check_smooth("jvp: primals", primals)
        tangents = _matched("jvp", "tangents", tangents, "primals", primals)
        return jax.jvp(function, primals, tangents, has_aux=has_aux)

    return run


def linearize(function: Function) -> Function:
    def run(*primals: Any) -> Any:
        for number, primal in enumerate(primals):
            _check_smooth(f"linearize: primal {number}", primal)
        return jax.linearize(function, *primals)

    return run


def _matched(name: str, what: str, tree: Any, like: str, example: Any) -> Any:
    """``tree``, if it has the structure and the shapes of ``example``; cast to its dtypes."""
    measures: dict[str, Callable[[Any], Any]] = {
        "structure": jax.tree.structure,
        "shapes": lambda tree: [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)],
    }
    for word, measure in measures.items():
        found, expected = measure(tree), measure(example)
        if found != expected:
            raise TransformError(f"{name}: {what} have the {word} {found}, and {like} has {expected}")
    return jax.tree.map(lambda leaf, to: jnp.asarray(leaf, jax.dtypes.result_type(to)), tree, example)


def vmap(function: Function, in_dims: Any, out_dims: Any, chunk_size: int | None) -> Function:
    def run(*args: Any, **kwargs: Any) -> Any:
        if not isinstance(in_dims, int | tuple):
            raise ValueError(
                f"vmap: expected in_dims to be an int or a tuple that fits the arguments, found {in_dims!r}"
            )
        body = functools.partial(function, **kwargs)  # keyword arguments are not mapped over
        if chunk_size is None:
            return jax.vmap(body, in_dims, out_dims)(*args)
        return _in_chunks(body, in_dims, out_dims, chunk_size, args)

    return run


def _in_chunks(function: Function, in_dims: Any, out_dims: Any, chunk_size: int, args: Sequence[Any]) -> Any:
    """:func:`jax.vmap` over ``chunk_size`` rows at a time, in a loop inside the program."""
    leaves, treedef = jax.tree.flatten(tuple(args))
    dims = _spread(in_dims, tuple(args))
    mapped = [jnp.moveaxis(leaf, dim, 0) for leaf, dim in zip(leaves, dims, strict=True) if dim is not None]
    # The sizes and the dims are checked by jax.vmap itself, in the abstract.
    jax.eval_shape(jax.vmap(function, in_dims, out_dims), *args)

    def row(rows: Sequence[jax.Array]) -> Any:
        given = iter(rows)
        return function(
            *jax.tree.unflatten(
                treedef, [leaf if dim is None else next(given) for leaf, dim in zip(leaves, dims, strict=True)]
            )
        )

    out = jax.lax.map(row, mapped, batch_size=chunk_size)
    out_leaves, out_treedef = jax.tree.flatten(out)
    out_axes = _spread(out_dims, out)
    return jax.tree.unflatten(
        out_treedef,
        [
            leaf[0] if dim is None else jnp.moveaxis(leaf, 0, dim)
            for leaf, dim in zip(out_leaves, out_axes, strict=True)
        ],
    )


def _spread(dims: Any, tree: Any) -> list[int | None]:
    """One dim for each leaf of ``tree``, of which ``dims`` is a prefix."""
    spread = jax.tree.broadcast(dims, tree, is_leaf=lambda dim: dim is None)
    return jax.tree.leaves(spread, is_leaf=lambda dim: dim is None)
