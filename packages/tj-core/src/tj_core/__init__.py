"""Zero-copy conversion of tensors, arrays and nested containers between PyTorch and JAX."""

from ._collate import collate as collate
from ._convert import jax_to_torch as jax_to_torch
from ._convert import torch_to_jax as torch_to_jax
from ._errors import DeviceError as DeviceError
from ._errors import GradientError as GradientError
from ._errors import MissingPackageError as MissingPackageError
from ._errors import PrecisionLossWarning as PrecisionLossWarning
from ._errors import SharingError as SharingError
from ._errors import TJError as TJError
from ._errors import TreeDepthError as TreeDepthError
from ._errors import UnsupportedDtypeError as UnsupportedDtypeError
from ._errors import UnsupportedKindError as UnsupportedKindError
from ._errors import ValueRangeError as ValueRangeError
from ._memory import shares_memory as shares_memory

__version__ = "0.1.0"

__all__ = [
    "DeviceError",
    "GradientError",
    "MissingPackageError",
    "PrecisionLossWarning",
    "SharingError",
    "TJError",
    "TreeDepthError",
    "UnsupportedDtypeError",
    "UnsupportedKindError",
    "ValueRangeError",
    "collate",
    "jax_to_torch",
    "shares_memory",
    "torch_to_jax",
]

# The public path of each name is this module: in tracebacks, pickles and documentation.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
