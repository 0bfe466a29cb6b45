"""Plain reverse mode in two compiled functions: a forward that also returns the residuals, and a backward.

``jax.vjp`` returns a pullback that is a pytree; its leaves are the residuals. A leaf that is an input or an output of
the function is not returned once more: torch saves that tensor, and so sees when it is changed in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._core import core
from ._outputs import CACHE_SIZE, Arrays, Constants, Mask, Outputs, own, pull, select

Pullback = Callable[[Any], Any]


class Source(NamedTuple):
    """Where the backward finds one residual."""

    kind: str  # "array", "constant", "output", "residual", "opaque"; "static" holds the value itself
    at: Any


class Plan:
    """How the backward of one traced forward gets its residuals; static, and alive as long as that trace."""

    def __init__(self, treedef: Any, sources: tuple[Source, ...], mask: Mask, out: Arrays) -> None:
        self.treedef, self.sources, self.mask = treedef, sources, mask
        self.avals = tuple(jax.ShapeDtypeStruct(o.shape, o.dtype) for o in out)
        self.arrays, self.outputs = self._places("array"), self._places("output")
        self.backward = lru_cache(CACHE_SIZE)(self._backward)

    def _places(self, kind: str) -> tuple[int, ...]:
        return tuple(sorted({s.at for s in self.sources if s.kind == kind}))

    def _backward(self, needed: Mask, present: Mask) -> Callable[[Constants, Arrays, Constants, Arrays], Arrays]:
        """``(constants, saved, opaque, cotangents) -> gradients`` of the inputs in ``needed``, compiled.

        ``saved`` holds the arrays, then the outputs that the plan names, then the residuals.
        """

        def backward(constants: Constants, saved: Arrays, opaque: Constants, cotangents: Arrays) -> Arrays:
            gradients = pull(self._pullback(constants, saved, opaque), self.avals, present, cotangents)
            return own(select(gradients, select(needed, self.mask)), saved + cotangents)

        return jax.jit(backward)

    def _pullback(self, constants: Constants, saved: Arrays, opaque: Constants) -> Pullback:
        first, second = len(self.arrays), len(self.arrays) + len(self.outputs)
        tables: dict[str, Any] = {
            "array": dict(zip(self.arrays, saved[:first], strict=True)),
            "output": dict(zip(self.outputs, saved[first:second], strict=True)),
            "residual": saved[second:],
            "constant": constants,
            "opaque": opaque,
        }
        leaves = [s.at if s.kind == "static" else tables[s.kind][s.at] for s in self.sources]
        pullback: Pullback = jax.tree_util.tree_unflatten(self.treedef, leaves)
        return pullback


class Forward(NamedTuple):
    """What the compiled forward returns; a pytree whose ``plan`` is static."""

    out: Outputs
    residuals: Arrays  # those that are neither an input nor an output
    opaque: tuple[Any, ...]  # residuals that no tensor can hold
    plan: Plan


jax.tree_util.register_pytree_node(
    Forward,
    lambda forward: (forward[:3], forward.plan),
    lambda plan, arrays: Forward(*arrays, plan),  # type: ignore[call-arg]
)


def forward(
    partial: Callable[[Constants, Arrays, Mask], Callable[..., tuple[Arrays, Outputs]]], mask: Mask, scalar: bool
) -> Callable[[Constants, Arrays], Forward]:
    """The compiled forward for gradients of the inputs in ``mask``; with ``scalar`` it has them computed already."""

    def run(constants: Constants, arrays: Arrays) -> Forward:
        smooth, pullback, other = jax.vjp(partial(constants, arrays, mask), *select(arrays, mask), has_aux=True)
        if scalar:
            pullback = value_and_gradient(smooth, pullback)
        owned = own(smooth + other.rest, arrays)
        out = Outputs(owned[: len(smooth)], owned[len(smooth) :], other.opaque, other.meta)
        return _split(out, pullback, constants, arrays, mask)

    return jax.jit(run)


def _split(out: Outputs, pullback: Pullback, constants: Constants, arrays: Arrays, mask: Mask) -> Forward:
    leaves, treedef = jax.tree_util.tree_flatten(pullback)
    found = {id(a): Source("constant", i) for i, a in enumerate(constants)}
    found |= {id(a): Source("output", i) for i, a in enumerate(out.smooth)}
    found |= {id(a): Source("array", i) for i, a in enumerate(arrays)}
    residuals: list[jax.Array] = []
    opaque: list[Any] = []
    for leaf in leaves:
        if id(leaf) not in found:
            found[id(leaf)] = _store(leaf, residuals, opaque)
    plan = Plan(treedef, tuple(found[id(leaf)] for leaf in leaves), mask, out.smooth)
    return Forward(out, tuple(residuals), tuple(opaque), plan)


def _store(leaf: Any, residuals: list[jax.Array], opaque: list[Any]) -> Source:
    if not isinstance(leaf, jax.core.Tracer):
        return Source("static", leaf)
    kind, places = ("residual", residuals) if is_tensor_like(leaf) else ("opaque", opaque)
    places.append(leaf)
    return Source(kind, len(places) - 1)


def is_tensor_like(array: Any) -> bool:
    """Whether a torch tensor can hold this array: not so a PRNG key."""
    return not jnp.issubdtype(array.dtype, jax.dtypes.extended)


def value_and_gradient(smooth: Arrays, pullback: Pullback) -> Pullback:
    """A pullback of a real scalar whose residuals are the finished gradients: the backward only scales them."""
    if len(smooth) != 1 or smooth[0].shape != () or jnp.iscomplexobj(smooth[0]):
        found = ", ".join(f"{o.dtype}{list(o.shape)}" for o in smooth) or "no floating-point output"
        raise core.UnsupportedKindError(
            f"jax_function: a scalar function returns one real number of shape (), and this one returned {found}; "
            "take the mean or the sum, or use WrappedJaxFunction"
        )
    gradients = pullback((jnp.ones_like(smooth[0]),))
    return jax.tree_util.Partial(_scaled, gradients)


def _scaled(gradients: Arrays, cotangents: Arrays) -> Arrays:
    return tuple((g * cotangents[0]).astype(g.dtype) for g in gradients)
