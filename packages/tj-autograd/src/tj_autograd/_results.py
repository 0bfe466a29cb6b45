"""What a JAX function returns, taken apart inside the trace and put together again around torch tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ._core import core, core_tree
from ._outputs import Outputs
from ._reverse import is_tensor_like

SMOOTH, REST, OPAQUE, STATIC = "d", "r", "o", "s"


class Meta(NamedTuple):
    """The static part of a result."""

    treedef: Any
    kinds: str
    statics: tuple[Any, ...]

    def rebuild(self, tensors: Sequence[Any], opaque: Iterable[Any]) -> Any:
        """The caller's result; ``tensors`` are the smooth ones, then the rest."""
        count = self.kinds.count(SMOOTH)
        feeds = {
            SMOOTH: iter(tensors[:count]),
            REST: iter(tensors[count:]),
            OPAQUE: iter(opaque),
            STATIC: iter(self.statics),
        }
        return self.treedef.unflatten([next(feeds[kind]) for kind in self.kinds])


def collect(result: Any, has_aux: bool) -> Outputs:
    """Sort the leaves of ``result``, which with ``has_aux`` is a pair whose second half has no gradient."""
    if has_aux and not (isinstance(result, tuple) and len(result) == 2):
        raise core.UnsupportedKindError(
            f"fn: with has_aux=True it must return a pair (out, aux), and it returned a {type(result).__name__}; "
            "return a pair, or leave has_aux out"
        )
    leaves, treedef = core_tree.tree_flatten(result)
    count = core_tree.tree_flatten(result[0])[1].num_leaves if has_aux else len(leaves)
    leaves = [jnp.asarray(leaf) if isinstance(leaf, (np.ndarray, np.generic)) else leaf for leaf in leaves]
    kinds = "".join([_kind_of(leaf, i < count) for i, leaf in enumerate(leaves)])
    sorted_ = {
        k: tuple([v for v, kind in zip(leaves, kinds, strict=True) if kind == k])
        for k in (SMOOTH, REST, OPAQUE, STATIC)
    }
    return Outputs(sorted_[SMOOTH], sorted_[REST], sorted_[OPAQUE], Meta(treedef, kinds, sorted_[STATIC]))


def _kind_of(leaf: Any, differentiated: bool) -> str:
    if not isinstance(leaf, jax.Array):
        return STATIC
    if not is_tensor_like(leaf):
        return OPAQUE
    return SMOOTH if differentiated and jnp.issubdtype(leaf.dtype, jnp.inexact) else REST
