"""The packages under test: installed by default, or vendored copies under ``TJ_PREFIX`` (``"acme._vendor."``).

``TJ_PACKAGES`` names those that are expected to be there; all of them unless it says otherwise. One that is expected
and cannot be imported is a failure, never a skip.
"""

import importlib
import os
from types import ModuleType

PREFIX = os.environ.get("TJ_PREFIX", "")
ALL = ("tj_core", "tj_autograd", "tj_jaxify", "tj_func", "tj_flax", "torch_jax_interop")
EXPECTED = tuple(os.environ.get("TJ_PACKAGES", " ".join(ALL)).split())


def subject(name: str) -> ModuleType:
    """The package ``name`` (``"tj_core"``), or a module of it, under the prefix in force."""
    return importlib.import_module(PREFIX + name)


def origin(name: str) -> str:
    """Where the package ``name`` is imported from, or why it is not: a line of the report's header."""
    try:
        module = subject(name)
    except ImportError as error:
        return f"not importable ({error})"
    return os.path.dirname(module.__file__ or "")
