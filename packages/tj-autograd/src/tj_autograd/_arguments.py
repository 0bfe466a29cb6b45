"""What a caller passes, taken apart: torch tensors, constants for JAX, and static values that a trace depends on."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ._core import core, core_tree
from ._outputs import Constants

TENSOR, CONSTANT, NUMPY, STATIC = "t", "c", "n", "s"

# The kind of a leaf by its exact type; _kind_of looks further. A bool is static, since a JAX function branches on it;
# other Python numbers are traced, as jax.jit does, and keep their weak type.
_KINDS: dict[type, str] = {
    torch.Tensor: TENSOR,
    torch.nn.Parameter: TENSOR,
    int: CONSTANT,
    float: CONSTANT,
    complex: CONSTANT,
    bool: STATIC,
    type(None): STATIC,
    str: STATIC,
}
_KINDS_BY_BASE: tuple[tuple[type, str], ...] = (
    (torch.Tensor, TENSOR),
    (jax.Array, CONSTANT),
    (np.ndarray, NUMPY),
    (np.generic, NUMPY),
)


class Static:
    """A value that is part of the trace: equal only to one of the same type, so that 1, 1.0 and True differ."""

    __slots__ = ("_identity", "value")

    def __init__(self, value: Hashable) -> None:
        self.value = value
        self._identity = _identity(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)


def _identity(value: Any) -> Hashable:
    if type(value) is float:
        return float, value.hex()  # tells 0.0 from -0.0, and finds nan again
    if type(value) is tuple:
        return tuple([_identity(v) for v in value])
    return type(value), value


class Structure(NamedTuple):
    """Everything about a call that is not an array: the key of its trace."""

    treedef: Any
    kinds: str
    statics: tuple[Static, ...]

    def fill(self, tensors: Iterable[Any], constants: Iterable[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """``(args, kwargs)`` with these in place of tensors and constants."""
        feeds = {TENSOR: iter(tensors), CONSTANT: iter(constants), STATIC: iter([s.value for s in self.statics])}
        args, kwargs = self.treedef.unflatten([next(feeds[kind]) for kind in self.kinds])
        return args, kwargs


class Signature:
    """Which arguments of a function are static as a whole."""

    def __init__(self, fn: Callable[..., Any], argnums: int | Sequence[int], argnames: str | Iterable[str]) -> None:
        numbers = {argnums} if isinstance(argnums, int) else set(argnums)
        names = {argnames} if isinstance(argnames, str) else set(argnames)
        positional = _positional_names(fn) if numbers or names else []
        self.numbers = {_positive(n, len(positional)) for n in numbers}
        self.names = names | {positional[n] for n in self.numbers if n < len(positional)}
        self.numbers |= {i for i, name in enumerate(positional) if name in names}

    def hide(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with each static one in a :class:`Static`, which is a leaf."""
        hidden = tuple([_hide(f"positional argument {i}", a) if i in self.numbers else a for i, a in enumerate(args)])
        return hidden, {name: _hide(name, a) if name in self.names else a for name, a in kwargs.items()}

    def __bool__(self) -> bool:
        return bool(self.numbers or self.names)


def _positional_names(fn: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _positive(number: int, count: int) -> int:
    if number + count < 0 or (number < 0 and count == 0):
        raise ValueError(f"static_argnums: {number} is not the place of an argument; the function has {count}")
    return number if number >= 0 else number + count


def _hide(name: str, value: Any) -> Static:
    if isinstance(value, (torch.Tensor, jax.Array, np.ndarray)):
        raise core.UnsupportedKindError(
            f"{name}: a {type(value).__name__} cannot be static, since its values would be compiled in; "
            "take it out of static_argnums and static_argnames"
        )
    try:
        hash(value)
    except TypeError:
        raise core.UnsupportedKindError(
            f"{name}: a static argument must be hashable, and this {type(value).__name__} is not; pass a tuple, "
            "a frozen dataclass or another hashable value"
        ) from None
    return Static(value)


def _kind_of(leaf: Any) -> str:
    kind = _KINDS.get(type(leaf))
    if kind is None:
        kind = next((k for base, k in _KINDS_BY_BASE if isinstance(leaf, base)), STATIC)
    return kind


def split(
    signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Structure, tuple[torch.Tensor, ...], Constants]:
    """``(structure, tensors, constants)`` of a call."""
    if signature:
        args, kwargs = signature.hide(args, kwargs)
    leaves, treedef = core_tree.tree_flatten((args, kwargs))
    kinds = [_kind_of(leaf) for leaf in leaves]
    tensors = tuple([leaf for leaf, kind in zip(leaves, kinds, strict=True) if kind == TENSOR])
    constants, statics = _others(leaves, kinds, args, kwargs) if len(tensors) < len(leaves) else ((), ())
    return Structure(treedef, "".join(kinds).replace(NUMPY, CONSTANT), statics), tensors, constants


def _others(
    leaves: list[Any], kinds: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Constants, tuple[Static, ...]]:
    constants: list[Any] = []
    statics: list[Static] = []
    for i, (leaf, kind) in enumerate(zip(leaves, kinds, strict=True)):
        if kind == CONSTANT:
            constants.append(leaf)
        elif kind == NUMPY:
            constants.append(jnp.array(leaf))  # a copy: the caller may write to it before the backward
        elif kind == STATIC:
            statics.append(leaf if isinstance(leaf, Static) else _hide(_name_of(i, args, kwargs), leaf))
    return tuple(constants), tuple(statics)


def _name_of(index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """The name of the argument that holds leaf ``index``, for an error message."""
    named = [(f"positional argument {i}", a) for i, a in enumerate(args)] + list(kwargs.items())
    for name, value in named:
        index -= core_tree.tree_flatten(value)[1].num_leaves
        if index < 0:
            return str(name)
    return "argument"
