"""The tests of Flax models run where Flax is installed; the package itself does not need it."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("flax") else ["flax"]
