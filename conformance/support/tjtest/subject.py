"""The package under test: installed by default, or a vendored copy named by ``TJ_PREFIX`` (``"acme._vendor."``)."""

import importlib
import os
from types import ModuleType

PREFIX = os.environ.get("TJ_PREFIX", "")


def subject(name: str) -> ModuleType:
    """The package ``name`` (``"tj_core"``), or a module of it, under the prefix in force."""
    return importlib.import_module(PREFIX + name)
