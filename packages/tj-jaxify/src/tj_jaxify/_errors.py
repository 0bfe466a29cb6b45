"""The errors of this package; each is also a :class:`tj_core.TJError`."""

from __future__ import annotations

from ._core import core


class BackendError(core.TJError, NotImplementedError):
    """The backend asked for is not there, or cannot run this function."""


class RandomnessError(core.TJError, RuntimeError):
    """The function draws random numbers, and no key was given for them."""


class StateError(core.TJError, RuntimeError):
    """The function changes state that its JAX counterpart has no way to return."""


class DataDependenceError(core.TJError, RuntimeError):
    """The shape or structure of a result depends on the values of the operands."""


class ParameterError(core.TJError, ValueError):
    """Parameters or buffers that do not fit the module."""
