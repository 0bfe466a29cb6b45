"""Errors that belong to names and layouts of state; the rest of the family is tj_core's."""

from __future__ import annotations

from ._core import core


class StateNameError(core.TJError, ValueError):
    """The names of a state dict do not make a tree: one of them is also the beginning of another."""
