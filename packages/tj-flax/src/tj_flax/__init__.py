"""Flax modules in PyTorch, PyTorch modules in Flax."""

from ._errors import StateNameError as StateNameError
from ._state import state_dict_to_variables as state_dict_to_variables
from ._state import variables_to_state_dict as variables_to_state_dict
from ._to_linen import torch_to_linen as torch_to_linen
from ._to_torch import flax_to_torch as flax_to_torch

__version__ = "0.1.0"

__all__ = [
    "StateNameError",
    "flax_to_torch",
    "state_dict_to_variables",
    "torch_to_linen",
    "variables_to_state_dict",
]

# The public path of each name is this module: in tracebacks, pickles and documentation.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
