"""The public names of the sibling packages, one line each."""

from __future__ import annotations

from ._core import autograd, core, flax, func, jaxify

DeviceError = core.DeviceError
GradientError = core.GradientError
MissingPackageError = core.MissingPackageError
PrecisionLossWarning = core.PrecisionLossWarning
SharingError = core.SharingError
TJError = core.TJError
TreeDepthError = core.TreeDepthError
UnsupportedDtypeError = core.UnsupportedDtypeError
UnsupportedKindError = core.UnsupportedKindError
ValueRangeError = core.ValueRangeError
collate = core.collate
jax_to_torch = core.jax_to_torch
shares_memory = core.shares_memory
torch_to_jax = core.torch_to_jax

WrappedJaxFunction = autograd.WrappedJaxFunction
jax_function_to_torch = autograd.jax_function_to_torch

BackendError = jaxify.BackendError
DataDependenceError = jaxify.DataDependenceError
ParameterError = jaxify.ParameterError
RandomnessError = jaxify.RandomnessError
StateError = jaxify.StateError
load_jax_params = jaxify.load_jax_params
torch_function_to_jax = jaxify.torch_function_to_jax
torch_module_to_jax = jaxify.torch_module_to_jax
torch_module_to_jax_with_buffers = jaxify.torch_module_to_jax_with_buffers

TransformError = func.TransformError
functional_call = func.functional_call
grad = func.grad
grad_and_value = func.grad_and_value
hessian = func.hessian
jacfwd = func.jacfwd
jacrev = func.jacrev
jvp = func.jvp
linearize = func.linearize
stack_module_state = func.stack_module_state
vjp = func.vjp
vmap = func.vmap

StateNameError = flax.StateNameError
flax_to_torch = flax.flax_to_torch
state_dict_to_variables = flax.state_dict_to_variables
torch_to_linen = flax.torch_to_linen
variables_to_state_dict = flax.variables_to_state_dict
