"""Errors of the transforms; the rest of the family is tj_core's."""

from __future__ import annotations

from ._core import core


class TransformError(core.TJError, RuntimeError):
    """A function or its arguments do not fit a transform: the counterpart of the RuntimeError of torch.func."""
