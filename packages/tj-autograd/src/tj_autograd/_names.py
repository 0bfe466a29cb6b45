"""Names of the leaves of a pytree of parameters: one for each path, and back again.

A name joins the keys of the path with dots: ``params.Dense_0.kernel``. A tree that is a dict with the key "params",
as Flax variables are, names its leaves as they stand (``params.Dense_0.kernel``, ``batch_stats.BatchNorm_0.mean``);
any other tree is put under ``params`` (a list of two gives ``params.0`` and ``params.1``, a bare array ``params.0``).

A sequence index or an integer key is written as its digits. So that every name leads back to one path, ``%`` and
``.`` inside a string key are written ``%25`` and ``%2E``, a string key that looks like an integer has its first
character written so (``"0"`` is ``%30``), the empty one is a bare ``%``, and a key of another type is ``%:`` and its
escaped ``repr``.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias
from urllib.parse import unquote

import jax

Path: TypeAlias = tuple[str, ...]

ROOT = "params"
_INTEGER = re.compile(r"-?[0-9]+\Z")


def encode(key: Any) -> str:
    """One key of a path as one component of a name, without a dot in it."""
    if isinstance(key, int) and not isinstance(key, bool):
        return str(key)
    if not isinstance(key, str):
        return "%:" + _escape(repr(key))
    if _INTEGER.match(key):
        return f"%{ord(key[0]):02X}{key[1:]}"
    return _escape(key) or "%"


def decode(component: str) -> int | str:
    """The key that :func:`encode` wrote, for an integer or a string."""
    if _INTEGER.match(component):
        return int(component)
    return "" if component == "%" else unquote(component)


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace(".", "%2E")


# Where each class of key of jax.tree_util keeps its value.
_FIELDS: dict[type, str] = {
    jax.tree_util.DictKey: "key",
    jax.tree_util.SequenceKey: "idx",
    jax.tree_util.GetAttrKey: "name",
    jax.tree_util.FlattenedIndexKey: "key",
}


def _value(key: Any) -> Any:
    field = _FIELDS.get(type(key))
    return key if field is None else getattr(key, field)


def named_leaves(tree: Any) -> tuple[list[tuple[Path, Any]], Any]:
    """``([(components of the name, leaf), ...], treedef)``, in the order of ``jax.tree.leaves``."""
    found, treedef = jax.tree_util.tree_flatten_with_path(tree)
    is_collection = any(path and path[0] == jax.tree_util.DictKey(ROOT) for path, _ in found)
    prefix = () if is_collection else (ROOT,)
    return [(prefix + (_path(path) or ("0",)), leaf) for path, leaf in found], treedef


def _path(keys: tuple[Any, ...]) -> Path:
    return tuple([encode(_value(key)) for key in keys])
