"""The only door to the sibling packages: a vendored neighbour first, an installed package second."""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING


def _sibling(name: str, distribution: str) -> ModuleType:
    """Import ``name`` from beside this package if it lies there, else from the environment.

    Only a package that is not there at all leads to the next place: an error inside a neighbour is its own and is
    raised as it is.
    """
    here = __package__ or ""
    parent = here.rpartition(".")[0]
    if parent and importlib.util.find_spec(f"{parent}.{name}") is not None:
        return importlib.import_module(f"{parent}.{name}")
    if importlib.util.find_spec(name) is None:
        raise ModuleNotFoundError(
            f"{here} needs {name}: pip install {distribution}, or vendor the folder {name} beside {here}", name=name
        )
    return importlib.import_module(name)


if TYPE_CHECKING:
    import tj_core as core
    from tj_core import _callables as core_callables
    from tj_core import _tree as core_tree
else:
    core = _sibling("tj_core", "tj-core")
    core_callables = importlib.import_module(core.__name__ + "._callables")
    core_tree = importlib.import_module(core.__name__ + "._tree")

__all__ = ["core", "core_callables", "core_tree"]
