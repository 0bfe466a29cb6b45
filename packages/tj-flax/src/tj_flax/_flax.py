"""Flax itself: this file is where the package finds out that it is missing, and says what to install."""

from __future__ import annotations

import importlib.util

from ._core import core

if importlib.util.find_spec("flax") is None:
    raise core.MissingPackageError("tj_flax needs Flax, which is not installed: pip install 'flax>=0.11'", name="flax")

from flax import errors as errors
from flax import linen as linen
from flax.core import unfreeze as unfreeze
