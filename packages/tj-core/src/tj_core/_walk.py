"""The walk over a tree that rebuilds it with converted leaves.

NOTE [One tensor, one array]
    A leaf met twice is converted once, so what was shared inside a tree is shared afterwards (tied weights). Leaves
    are told apart by id, which holds while they live: children that a container makes anew when it is taken apart are
    kept until the walk is over, or a dead one's id might come again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ._tree import node_of, too_deep

Convert = Callable[[Any], Any]


class Walk:
    """One walk: ``classes`` are converted by ``convert``, containers rebuilt, and all else is left to ``other``.

    See NOTE [One tensor, one array].
    """

    __slots__ = ("_classes", "_convert", "_kept", "_memo", "_other")

    def __init__(self, classes: frozenset[type], convert: Convert, other: Convert) -> None:
        self._classes, self._convert, self._other = classes, convert, other
        self._memo: dict[int, Any] = {}
        self._kept: list[Sequence[Any]] = []

    def __call__(self, value: Any) -> Any:
        try:
            return self._visit(value)
        except RecursionError:
            raise too_deep() from None

    def _visit(self, value: Any) -> Any:
        cls = type(value)
        if cls in self._classes:
            key = id(value)
            result = self._memo.get(key)
            if result is None:
                result = self._memo[key] = self._convert(value)
            return result
        visit = self._visit
        if cls is dict:
            return {key: visit(child) for key, child in value.items()}
        if cls is list or cls is tuple:
            return cls([visit(child) for child in value])
        return self._visit_other(value)

    def _visit_other(self, value: Any) -> Any:
        node = node_of(value)
        if node is None:
            result = self._memo.get(id(value))
            if result is None:
                result = self._memo[id(value)] = self._other(value)
            return result
        children, context = node.flatten(value)
        self._kept.append(children)
        return node.unflatten(context, [self._visit(child) for child in children])
