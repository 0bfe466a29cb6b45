"""The way to the packages that own modules: a vendored neighbour first, an installed package second."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType

from ._errors import MissingPackageError


def owner(name: str, distribution: str, kind: str) -> ModuleType:
    """The package that converts objects of this kind; an error inside it is raised as it is."""
    parent = (__package__ or "").rpartition(".")[0]
    for full in (f"{parent}.{name}" if parent else name, name):
        if importlib.util.find_spec(full) is not None:
            return importlib.import_module(full)
    raise MissingPackageError(
        f"value: {kind} is converted by {name}, which is not installed: pip install {distribution}", name=name
    )
