"""Tuples of arrays: what a flat JAX function returns, who owns it, and cotangents in torch's convention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

Arrays: TypeAlias = tuple[jax.Array, ...]
Mask: TypeAlias = tuple[bool, ...]
Constants: TypeAlias = tuple[Any, ...]
T = TypeVar("T")

# Transforms, masks, structures and batch sizes that one function remembers; the least recently used is dropped.
CACHE_SIZE = 64


class Outputs(NamedTuple):
    """What a flat function returns; a pytree whose ``meta`` is static."""

    smooth: Arrays  # real or complex: these are differentiated
    rest: Arrays  # integers, booleans, and whatever the function declares auxiliary
    opaque: tuple[Any, ...]  # arrays that no tensor can hold: PRNG keys
    meta: Any  # how the caller's tree is put together again


jax.tree_util.register_pytree_node(
    Outputs,
    lambda out: (out[:3], out.meta),
    lambda meta, arrays: Outputs(*arrays, meta),  # type: ignore[call-arg]
)


def own(arrays: Iterable[jax.Array], taken: Iterable[jax.Array]) -> Arrays:
    """``arrays`` without aliases: one that is also in ``taken``, or comes twice, is copied.

    NOTE [Outputs alias nothing]: a traced function that returns one of its inputs, or one value twice, may be given
    one buffer for both. torch writes in place to what it owns, so each output must own its memory.
    """
    seen = {id(a) for a in taken}
    owned = []
    for array in arrays:
        owned.append(jnp.copy(array) if id(array) in seen else array)
        seen.add(id(array))
    return tuple(owned)


def conjugate(arrays: Iterable[jax.Array]) -> Arrays:
    """The complex ones conjugated: the step between JAX's cotangents and torch's."""
    return tuple(jnp.conj(a) if jnp.iscomplexobj(a) else a for a in arrays)


def select(values: Iterable[T], mask: Mask) -> tuple[T, ...]:
    """The values that ``mask`` chooses."""
    return tuple(v for v, chosen in zip(values, mask, strict=True) if chosen)


def replace(values: Iterable[Any], mask: Mask, new: Iterable[Any]) -> tuple[Any, ...]:
    """``values`` with those that ``mask`` chooses replaced by ``new``, in order."""
    fresh = iter(new)
    return tuple(next(fresh) if chosen else v for v, chosen in zip(values, mask, strict=True))


def pull(pullback: Callable[[Any], Any], out: Sequence[Any], present: Mask, cotangents: Arrays) -> Arrays:
    """The gradients for ``cotangents`` in torch's convention; absent ones are zeros shaped like ``out``.

    torch's gradient of a complex leaf is the conjugate of JAX's: the cotangent goes in, and the gradient comes out,
    conjugated.
    """
    zeros = (jnp.zeros(o.shape, o.dtype) for o in out)
    return conjugate(pullback(replace(zeros, present, conjugate(cotangents))))
