"""A JAX function as a differentiable torch function or nn.Module."""

from ._function import jax_function_to_torch as jax_function_to_torch
from ._module import WrappedJaxFunction as WrappedJaxFunction
from ._module import WrappedJaxScalarFunction as WrappedJaxScalarFunction

__version__ = "0.1.0"

__all__ = [
    "WrappedJaxFunction",
    "WrappedJaxScalarFunction",
    "jax_function_to_torch",
]

# The public path of each name is this module: in tracebacks, pickles and documentation.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
