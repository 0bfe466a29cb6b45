"""A private copy of a module's structure, whose parameters and buffers are put in for each call.

The caller's module is never touched: it may be running in torch at the very moment at which XLA calls back from another
thread. A shell shares everything with it but the containers that a call could change: the modules themselves, their
tables of parameters, buffers and submodules, and plain lists and dicts among their attributes. References from one
module to another, bound methods among them, lead to the copies.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from types import MethodType
from typing import Any

from torch import Tensor, nn


class Shell:
    """A copy of ``module`` in which other tensors stand in the place of some of its own.

    ``tensors`` maps ids of the module's tensors to their replacements: one that occurs twice is replaced twice.
    """

    def __init__(self, module: nn.Module, tensors: Mapping[int, Tensor]) -> None:
        self._tensors = tensors
        self._copies: dict[int, Any] = {}
        self.module: nn.Module = self._module(module)

    def _module(self, module: nn.Module) -> Any:
        shell = self._copies[id(module)] = object.__new__(type(module))
        shell.__dict__.update({name: self._value(value) for name, value in module.__dict__.items()})
        return shell

    def _value(self, value: Any) -> Any:
        if value is None or value is True or value is False:
            return value
        if id(value) in self._copies:
            return self._copies[id(value)]
        if isinstance(value, Tensor):
            return self._tensors.get(id(value), value)
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, MethodType) and isinstance(value.__self__, nn.Module):
            return MethodType(value.__func__, self._value(value.__self__))
        fill = _FILL.get(type(value))
        return value if fill is None else fill(self, value)

    def _list(self, value: list[Any]) -> list[Any]:
        new: list[Any] = []
        self._copies[id(value)] = new
        new.extend(map(self._value, value))
        return new

    def _mapping(self, value: dict[Any, Any]) -> dict[Any, Any]:
        new = self._copies[id(value)] = copy.copy(value)
        for key, item in value.items():
            new[key] = self._value(item)
        return new

    def _tuple(self, value: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(map(self._value, value))

    def _set(self, value: set[Any]) -> set[Any]:
        return set(map(self._value, value))


_FILL: dict[type, Any] = {
    list: Shell._list,
    tuple: Shell._tuple,
    set: Shell._set,
    dict: Shell._mapping,
    OrderedDict: Shell._mapping,
    defaultdict: Shell._mapping,
}
