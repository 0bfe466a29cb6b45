"""A call inside a program that ``torch.compile`` traces: one step of the graph, whatever the graph is run by.

The compiler reads Python; it cannot read JAX. It reads as far as :func:`in_graph`, puts :func:`step` into the graph
unread, with the arguments as they are, and runs it on tensors without values to learn what it returns. Backends that
lower the graph run it so again, and there a call is an operator; see :mod:`._operator`. Everything that decides what is
computed is an argument of the step, so the compiler guards it: tensors, Python values, and a name for the owner.

What cannot be told to the compiler so (JAX arrays among the arguments, a result in a container of its own class, a
PRNG key as a result) breaks the graph at the call, as any function does that is not to be traced.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import torch

from ._compat import COMPILES_CALLS, constant, untraced
from ._core import core
from ._sharing import Tensors

Layout: TypeAlias = tuple[Any, ...]
Rebuild: TypeAlias = Callable[[Sequence[Any]], Any]

TENSOR, VALUE, DICT, LIST, TUPLE = "tensor", "value", "dict", "list", "tuple"
_VALUES = (type(None), bool, int, float, complex, str)


class Owner(Protocol):
    """What calls a JAX function: a wrapped function or a module."""

    def _flat_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensors, Rebuild]:
        """The tensors of the result, and what puts the result together from as many leaves; no tensors, no result."""


_numbers = itertools.count()
_owners: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
_state = threading.local()


def name_of(owner: Owner) -> str:
    """A new name for ``owner``: a string, which the compiler compares, as it does not know a number from a size."""
    name = f"jax function {next(_numbers)}"
    _owners[name] = owner
    return name


def in_graph(name: str, outside: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call of the owner called ``name``; this the compiler reads. ``outside`` is the call that breaks the graph."""
    if not COMPILES_CALLS:
        return outside(*args, **kwargs)
    _allow()
    tensors = step(name, args, kwargs)
    layout = _layout()
    if layout is None:
        return outside(*args, **kwargs)
    return _rebuild(layout, tensors)


@constant
def _allow() -> None:
    """The compiler may put :func:`step` into a graph."""
    torch.compiler.allow_in_graph(step)


def step(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensors:
    """The call in the graph; the tensors of its result. What they are of is left for :func:`_layout`."""
    return _run(name, args, kwargs)


@untraced  # the compiler reads it otherwise where a broken graph has left it to Python
def _run(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensors:
    _state.layout = None
    owner: Owner = _owners[name]
    try:
        tensors, rebuild = owner._flat_call(_specialised(args), _specialised(kwargs))
    except core.UnsupportedKindError:  # outside of the graph it works, or raises this again
        return ()
    if tensors:
        _state.layout = _described(rebuild(tuple([_Place(i) for i in range(len(tensors))])))
    return tensors


@constant
def _layout() -> Layout | None:
    """How the result of the last step is built from its tensors; None if the compiler cannot be told."""
    layout: Layout | None = _state.layout
    return layout


# Python numbers that the compiler made symbolic; asking for their value makes it compile again for another.
_SYMBOLIC: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


def _specialised(value: Any) -> Any:
    cls = type(value)
    if cls is tuple or cls is list:
        return cls([_specialised(v) for v in value])
    if cls is dict:
        return {k: _specialised(v) for k, v in value.items()}
    number = _SYMBOLIC.get(cls)
    return value if number is None else number(value)


class _Place(int):
    """Where a tensor of the result belongs."""


def _described(value: Any) -> Layout | None:
    cls: type = type(value)
    if cls is _Place:
        return TENSOR, int(value)
    if cls in _VALUES:
        return VALUE, value
    if cls not in (dict, list, tuple) or (cls is dict and any(type(key) not in _VALUES for key in value)):
        return None
    children = tuple([_described(child) for child in (value.values() if cls is dict else value)])
    return None if None in children else (cls.__name__, children, tuple(value) if cls is dict else ())


def _rebuild(layout: Layout, tensors: Tensors) -> Any:
    """The result; this the compiler reads."""
    kind, content = layout[0], layout[1]
    if kind == TENSOR:
        return tensors[content]
    if kind == VALUE:
        return content
    children = [_rebuild(child, tensors) for child in content]
    if kind == DICT:
        return dict(zip(layout[2], children, strict=True))
    return children if kind == LIST else tuple(children)
