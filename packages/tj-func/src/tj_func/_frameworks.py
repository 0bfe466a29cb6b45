"""Which framework a function or a set of arguments belongs to.

NOTE(which framework). The values decide where a transform runs: called with tensors it is torch.func's, called with
arrays it is JAX's. The function is then carried to that side. Where it comes from is known

1. from the keyword ``framework=``;
2. from what it is: see ``_BY_HOME`` and :func:`framework_of`;
3. otherwise from a trial. It is called as it stands. Under no transform does either framework compute with the values
   of the other: a function that hands them on to the wrong one raises TypeError or AttributeError, or torch refuses to
   give away memory. Upon these, and only if the function runs through on the other side in the abstract (shapes and
   dtypes alone), it is carried there, and this is remembered. Any other error is the function's own.

A function that only uses operators and methods which both have (``x * x``, ``x.sum()``) is of either framework, and
means what it means for the values that it is given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import jax
import torch

from ._core import core, core_tree

Framework = Literal["jax", "torch"]
Function = Callable[..., Any]

# The root of the module that a function, its type, or the class of the module it is bound to comes from.
_BY_HOME: dict[str, Framework] = {
    "flax": "jax",
    "jax": "jax",
    "jaxlib": "jax",
    "optax": "jax",
    "torch": "torch",
}


def check_framework(framework: str | None) -> None:
    """Refuse a keyword that names no framework."""
    if framework not in (None, "jax", "torch"):
        raise ValueError(f"framework: expected 'torch', 'jax' or None, found {framework!r}")


def framework_of(function: Any) -> Framework | None:
    """The framework that ``function`` is written in, if that can be told without calling it."""
    if isinstance(function, functools.partial):
        return framework_of(function.func)
    owner = getattr(function, "__self__", None)  # of a bound method: flax_module.apply, torch_module.forward
    if owner is not None and not isinstance(owner, type):
        found = _home(*type(owner).__mro__)
        if found is not None:
            return found
    return _home(function, getattr(function, "__objclass__", None), *type(function).__mro__)


def _home(*things: Any) -> Framework | None:
    for thing in things:
        module = getattr(thing, "__module__", None)
        if isinstance(module, str):
            found = _BY_HOME.get(module.partition(".")[0])
            if found is not None:
                return found
    return None


def framework_of_values(*trees: Any) -> Framework | None:
    """The framework of the tensors or arrays in ``trees``; None if there are none."""
    leaves, _ = core_tree.tree_flatten(trees)
    tensors = any(isinstance(leaf, torch.Tensor) for leaf in leaves)
    arrays = any(isinstance(leaf, jax.Array) for leaf in leaves)
    if tensors and arrays:
        raise core.UnsupportedKindError(
            "the arguments hold both torch tensors and JAX arrays, so it is open which kind the result should be; "
            "convert one kind with torch_to_jax or jax_to_torch"
        )
    return "torch" if tensors else "jax" if arrays else None
