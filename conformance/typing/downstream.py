"""A user's code: mypy reads it, in strict mode, against the packages as they are installed. It is never run."""

from collections.abc import Callable
from typing import Any, assert_type

import flax.linen as nn
import jax
import torch
import torch_jax_interop
from tj_autograd import WrappedJaxFunction, WrappedJaxScalarFunction, jax_function_to_torch
from tj_core import SharingError, TJError, collate, jax_to_torch, shares_memory, torch_to_jax
from tj_flax import flax_to_torch, state_dict_to_variables, torch_to_linen, variables_to_state_dict
from tj_func import grad, hessian, vmap
from tj_jaxify import (
    load_jax_params,
    torch_function_to_jax,
    torch_module_to_jax,
    torch_module_to_jax_with_buffers,
)


def convert(tensor: torch.Tensor) -> bool:
    array: jax.Array = torch_to_jax(tensor, device="cpu", copy=False)
    back: torch.Tensor = jax_to_torch(array, device=torch.device("cpu"), copy=True)
    batch: dict[str, torch.Tensor] = collate([{"x": back}, {"x": tensor}])
    assert batch
    return assert_type(shares_memory(tensor, array), bool)


def remedy(tensor: torch.Tensor) -> jax.Array:
    try:
        array: jax.Array = torch_to_jax(tensor, copy=False)
    except SharingError as error:
        assert_type(error, SharingError)
        array = torch_to_jax(tensor, copy=True)
    except (TJError, TypeError, BufferError, ValueError):
        raise
    return array


def predict(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return x @ params["kernel"]


def train(kernel: jax.Array, x: torch.Tensor) -> torch.nn.Sequential:
    layer = WrappedJaxFunction(predict, {"kernel": kernel})
    assert_type(layer, WrappedJaxFunction)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss: torch.Tensor = WrappedJaxScalarFunction(predict, {"kernel": kernel})(x)
    loss.backward()
    optimizer.step()
    return model


def differentiate(x: torch.Tensor) -> torch.Tensor:
    function: Callable[..., Any] = jax_function_to_torch(jax.numpy.sin)
    out: torch.Tensor = function(x)
    return out


def train_in_jax(model: torch.nn.Module, x: jax.Array) -> None:
    apply, params = torch_module_to_jax(model)
    gradient = jax.grad(lambda params: apply(params, x).sum())(params)
    load_jax_params(model, gradient)
    function, weights, buffers = torch_module_to_jax_with_buffers(model, backend="auto")
    out, buffers = function(weights, buffers, x, rng=jax.random.key(0), train=True)
    load_jax_params(model, weights, buffers)
    square = torch_function_to_jax(torch.square, backend="torch")
    assert out is not None
    assert square(x) is not None


def transform(x: torch.Tensor) -> torch.Tensor:
    per_sample: Callable[..., Any] = vmap(grad(lambda x: (x**2).sum()), in_dims=0, randomness="error")
    curvature: torch.Tensor = hessian(torch.sum)(x)
    out: torch.Tensor = per_sample(x)
    return out + curvature.sum()


def exchange_modules(module: nn.Module, variables: dict[str, Any], model: torch.nn.Module) -> nn.Module:
    state: dict[str, torch.Tensor] = variables_to_state_dict(variables)
    again: torch.nn.Module = flax_to_torch(module, state_dict_to_variables(state))
    assert again.state_dict().keys()
    return torch_to_linen(model)


def all_in_one(x: torch.Tensor) -> jax.Array:
    array: jax.Array = torch_jax_interop.torch_to_jax(x)
    assert_type(torch_jax_interop.shares_memory(x, array), bool)
    layer = torch_jax_interop.WrappedJaxFunction(predict, {"kernel": array})
    assert_type(layer, WrappedJaxFunction)
    return array
