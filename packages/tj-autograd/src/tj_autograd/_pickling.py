"""Functions inside pickles: one that pickle would refuse, although its name or what it wraps leads to it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

import jax


class Portable:
    """A function on its way into a pickle; what comes out is the function.

    A jitted function that is its module's own goes by name; another jitted one goes without its ``jit``, since what
    holds it compiles it anyway.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __reduce__(self) -> Any:
        module, name = getattr(self.fn, "__module__", ""), getattr(self.fn, "__qualname__", "")
        if not isinstance(self.fn, type(jax.jit(lambda: None))):
            return _given, (self.fn,)
        if is_named(self.fn, module, name):
            return lookup, (module, name)
        return _given, (Portable(getattr(self.fn, "__wrapped__")),)  # noqa: B009


def _given(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def is_named(value: Any, module: str | None, name: str) -> bool:
    """Whether a pickle can refer to ``value`` by its name."""
    return bool(name) and module in sys.modules and lookup(module, name) is value


def lookup(module: str, name: str) -> Any:
    """What the module calls ``name``, which may have dots in it."""
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found
