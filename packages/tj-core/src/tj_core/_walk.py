"""The walk over a tree that rebuilds it with converted leaves.

NOTE [One tensor, one array]
    A leaf met twice is converted once, so what was shared inside a tree is shared afterwards (tied weights). The memo
    keeps each leaf alive: some containers make their children anew when taken apart, and a dead one's id comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ._tree import node_of, too_deep

Convert = Callable[[Any], Any]


class Walk:
    """One walk: ``classes`` are converted by ``convert``, containers rebuilt, and all else is left to ``other``."""

    __slots__ = ("_classes", "_convert", "_memo", "_other")

    def __init__(self, classes: frozenset[type], convert: Convert, other: Convert) -> None:
        self._classes, self._convert, self._other = classes, convert, other
        self._memo: dict[int, tuple[Any, Any]] = {}

    def __call__(self, value: Any) -> Any:
        try:
            return self._visit(value)
        except RecursionError:
            raise too_deep() from None

    def _visit(self, value: Any) -> Any:
        cls = type(value)
        if cls in self._classes:
            return self._once(value, self._convert)
        if cls is dict:
            visit = self._visit
            return {key: visit(child) for key, child in value.items()}
        node = node_of(value)
        if node is None:
            return self._once(value, self._other)
        children, context = node.flatten(value)
        return node.unflatten(context, [self._visit(child) for child in children])

    def _once(self, leaf: Any, convert: Convert) -> Any:
        known = self._memo.get(id(leaf))
        if known is not None:
            return known[1]
        result = convert(leaf)
        self._memo[id(leaf)] = (leaf, result)
        return result
