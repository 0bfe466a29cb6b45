"""functorch's transforms for functions of PyTorch and JAX, compiled by XLA."""

from ._errors import TransformError as TransformError
from ._gradients import grad as grad
from ._gradients import grad_and_value as grad_and_value
from ._jacobians import hessian as hessian
from ._jacobians import jacfwd as jacfwd
from ._jacobians import jacrev as jacrev
from ._modules import functional_call as functional_call
from ._modules import stack_module_state as stack_module_state
from ._products import jvp as jvp
from ._products import linearize as linearize
from ._products import vjp as vjp
from ._vmap import vmap as vmap

__version__ = "0.1.0"

__all__ = [
    "TransformError",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "stack_module_state",
    "vjp",
    "vmap",
]

# The public path of each name is this module: in tracebacks, pickles and documentation.
for _name in __all__:
    globals()[_name].__module__ = __name__
del _name
