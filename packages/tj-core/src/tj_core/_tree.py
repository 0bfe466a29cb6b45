"""Containers: which objects are nodes of a tree, how they come apart and how they are put together again.

A row of ``_BUILTIN`` describes an exact type; classes registered as pytrees with JAX or torch, namedtuples and
dataclasses are recognised by :func:`node_of`. Everything else is a leaf.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import torch
from torch.utils import _pytree as torch_pytree

from ._errors import TreeDepthError


class Node(NamedTuple):
    """How one type of container is taken apart (children, context) and put together from a hashable context."""

    flatten: Callable[[Any], tuple[Sequence[Any], Any]]
    unflatten: Callable[[Any, Sequence[Any]], Any]


def _flatten_mapping(value: dict[Any, Any]) -> tuple[Sequence[Any], Any]:
    return tuple(value.values()), tuple(value)


def _flatten_defaultdict(value: defaultdict[Any, Any]) -> tuple[Sequence[Any], Any]:
    return tuple(value.values()), (value.default_factory, tuple(value))


_BUILTIN: dict[type, Node] = {
    tuple: Node(lambda v: (v, None), lambda _, children: tuple(children)),
    list: Node(lambda v: (v, None), lambda _, children: list(children)),
    dict: Node(_flatten_mapping, lambda keys, children: dict(zip(keys, children, strict=True))),
    OrderedDict: Node(_flatten_mapping, lambda keys, children: OrderedDict(zip(keys, children, strict=True))),
    defaultdict: Node(
        _flatten_defaultdict, lambda ctx, children: defaultdict(ctx[0], zip(ctx[1], children, strict=True))
    ),
}
_LEAVES: frozenset[type] = frozenset(
    {type(None), bool, int, float, complex, str, bytes, torch.Tensor, torch.nn.Parameter, torch.Size}
)


class _ByEquality:
    """A context that compares by ``==`` and hashes by type, for specs that have no hash of their own."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByEquality) and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


def _flatten_jax(value: Any) -> tuple[Sequence[Any], Any]:
    return jax.tree_util.tree_flatten(value, is_leaf=lambda x: x is not value)


def _flatten_torch(value: Any) -> tuple[Sequence[Any], Any]:
    children, spec = torch_pytree.tree_flatten(value, is_leaf=lambda x: x is not value)
    return children, _ByEquality(spec)


def _fields_of(value: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(value) if hasattr(value, f.name))


class _Template:
    """A dataclass instance that lends its class and its other attributes to the rebuilt one; compares by class."""

    __slots__ = ("names", "value")

    def __init__(self, value: Any, names: tuple[str, ...]) -> None:
        self.value, self.names = value, names

    def _key(self) -> tuple[type, tuple[str, ...]]:
        return type(self.value), self.names

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Template) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _flatten_dataclass(value: Any) -> tuple[Sequence[Any], Any]:
    names = _fields_of(value)
    return tuple(getattr(value, name) for name in names), _Template(value, names)


def _unflatten_dataclass(template: _Template, children: Sequence[Any]) -> Any:
    # __init__ is not called: frozen classes, init=False fields and InitVars are rebuilt as they stood.
    new = copy.copy(template.value)
    for name, child in zip(template.names, children, strict=True):
        object.__setattr__(new, name, child)
    return new


def _flatten_namedtuple(value: Any) -> tuple[Sequence[Any], Any]:
    return value, type(value)


_JAX = Node(_flatten_jax, lambda treedef, children: treedef.unflatten(children))
_TORCH = Node(_flatten_torch, lambda spec, children: torch_pytree.tree_unflatten(list(children), spec.value))
_NAMEDTUPLE = Node(_flatten_namedtuple, lambda cls, children: cls._make(children))
_DATACLASS = Node(_flatten_dataclass, _unflatten_dataclass)


def _is_jax_node(value: Any) -> bool:
    return not jax.tree_util.all_leaves((value,))


def node_of(value: Any) -> Node | None:
    """The row for ``value``, or None if it is a leaf.

    Not cached for unknown classes: one may be registered as a pytree after it was first met.
    """
    cls = type(value)
    if cls in _LEAVES:
        return None
    node = _BUILTIN.get(cls)
    if node is not None:
        return node
    if isinstance(value, tuple) and hasattr(cls, "_make") and hasattr(cls, "_fields"):
        return _NAMEDTUPLE
    if _is_jax_node(value):
        return _JAX
    if cls in torch_pytree.SUPPORTED_NODES:
        return _TORCH
    if dataclasses.is_dataclass(cls):
        return _DATACLASS
    return None


class TreeDef:
    """The structure of a tree without its leaves: hashable, comparable, and able to put leaves back."""

    __slots__ = ("_hash", "_spec", "num_leaves")

    def __init__(self, spec: Any, num_leaves: int) -> None:
        self._spec, self.num_leaves = spec, num_leaves
        self._hash = hash(spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeDef) and self._hash == other._hash and bool(self._spec == other._spec)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"TreeDef({self.unflatten(['*'] * self.num_leaves)!r})"

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree with these leaves, in the order in which :func:`tree_flatten` gave them."""
        leaves = iter(leaves)
        tree = _build(self._spec, leaves)
        if next(leaves, _MISSING) is not _MISSING:
            raise ValueError(f"unflatten: more leaves were given than the {self.num_leaves} that the structure has")
        return tree


_MISSING = object()


def _build(spec: Any, leaves: Any) -> Any:
    if spec is None:
        leaf = next(leaves, _MISSING)
        if leaf is _MISSING:
            raise ValueError("unflatten: fewer leaves were given than the structure has")
        return leaf
    unflatten, context, _, children = spec
    return unflatten(context, [_build(child, leaves) for child in children])


def _take_apart(value: Any, leaves: list[Any]) -> Any:
    node = node_of(value)
    if node is None:
        leaves.append(value)
        return None
    children, context = node.flatten(value)
    return node.unflatten, context, type(value), tuple([_take_apart(child, leaves) for child in children])


def tree_flatten(value: Any) -> tuple[list[Any], TreeDef]:
    """The leaves of ``value`` from left to right (None is a leaf), and the structure that holds them."""
    leaves: list[Any] = []
    try:
        spec = _take_apart(value, leaves)
    except RecursionError:
        raise too_deep() from None
    return leaves, TreeDef(spec, len(leaves))


def too_deep() -> TreeDepthError:
    return TreeDepthError(
        "value: the containers are nested too deeply to walk, or one contains itself; "
        "flatten it first, or raise sys.setrecursionlimit"
    )
