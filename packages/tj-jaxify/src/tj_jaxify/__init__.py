"""A torch function or nn.Module as a JAX function."""

from ._errors import BackendError as BackendError
from ._errors import DataDependenceError as DataDependenceError
from ._errors import ParameterError as ParameterError
from ._errors import RandomnessError as RandomnessError
from ._errors import StateError as StateError
from ._function import torch_function_to_jax as torch_function_to_jax
from ._module import load_jax_params as load_jax_params
from ._module import torch_module_to_jax as torch_module_to_jax
from ._module import torch_module_to_jax_with_buffers as torch_module_to_jax_with_buffers

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "DataDependenceError",
    "ParameterError",
    "RandomnessError",
    "StateError",
    "load_jax_params",
    "torch_function_to_jax",
    "torch_module_to_jax",
    "torch_module_to_jax_with_buffers",
]

# The public path of each name is this module: in tracebacks, pickles and documentation.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
