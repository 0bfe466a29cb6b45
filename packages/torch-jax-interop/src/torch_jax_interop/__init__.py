"""Tensors, functions and modules across PyTorch and JAX."""

from ._scalar import WrappedJaxScalarFunction as WrappedJaxScalarFunction
from ._siblings import BackendError as BackendError
from ._siblings import DataDependenceError as DataDependenceError
from ._siblings import DeviceError as DeviceError
from ._siblings import GradientError as GradientError
from ._siblings import MissingPackageError as MissingPackageError
from ._siblings import ParameterError as ParameterError
from ._siblings import PrecisionLossWarning as PrecisionLossWarning
from ._siblings import RandomnessError as RandomnessError
from ._siblings import SharingError as SharingError
from ._siblings import StateError as StateError
from ._siblings import StateNameError as StateNameError
from ._siblings import TJError as TJError
from ._siblings import TransformError as TransformError
from ._siblings import TreeDepthError as TreeDepthError
from ._siblings import UnsupportedDtypeError as UnsupportedDtypeError
from ._siblings import UnsupportedKindError as UnsupportedKindError
from ._siblings import ValueRangeError as ValueRangeError
from ._siblings import WrappedJaxFunction as WrappedJaxFunction
from ._siblings import collate as collate
from ._siblings import flax_to_torch as flax_to_torch
from ._siblings import functional_call as functional_call
from ._siblings import grad as grad
from ._siblings import grad_and_value as grad_and_value
from ._siblings import hessian as hessian
from ._siblings import jacfwd as jacfwd
from ._siblings import jacrev as jacrev
from ._siblings import jax_function_to_torch as jax_function_to_torch
from ._siblings import jax_to_torch as jax_to_torch
from ._siblings import jvp as jvp
from ._siblings import linearize as linearize
from ._siblings import load_jax_params as load_jax_params
from ._siblings import shares_memory as shares_memory
from ._siblings import stack_module_state as stack_module_state
from ._siblings import state_dict_to_variables as state_dict_to_variables
from ._siblings import torch_function_to_jax as torch_function_to_jax
from ._siblings import torch_module_to_jax as torch_module_to_jax
from ._siblings import torch_module_to_jax_with_buffers as torch_module_to_jax_with_buffers
from ._siblings import torch_to_jax as torch_to_jax
from ._siblings import torch_to_linen as torch_to_linen
from ._siblings import variables_to_state_dict as variables_to_state_dict
from ._siblings import vjp as vjp
from ._siblings import vmap as vmap

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "DataDependenceError",
    "DeviceError",
    "GradientError",
    "MissingPackageError",
    "ParameterError",
    "PrecisionLossWarning",
    "RandomnessError",
    "SharingError",
    "StateError",
    "StateNameError",
    "TJError",
    "TransformError",
    "TreeDepthError",
    "UnsupportedDtypeError",
    "UnsupportedKindError",
    "ValueRangeError",
    "WrappedJaxFunction",
    "WrappedJaxScalarFunction",
    "collate",
    "flax_to_torch",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jax_function_to_torch",
    "jax_to_torch",
    "jvp",
    "linearize",
    "load_jax_params",
    "shares_memory",
    "stack_module_state",
    "state_dict_to_variables",
    "torch_function_to_jax",
    "torch_module_to_jax",
    "torch_module_to_jax_with_buffers",
    "torch_to_jax",
    "torch_to_linen",
    "variables_to_state_dict",
    "vjp",
    "vmap",
]

# All other names have the package they come from as their public path.
WrappedJaxScalarFunction.__module__ = __name__
