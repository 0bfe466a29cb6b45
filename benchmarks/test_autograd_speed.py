"""A wrapped JAX function against the jitted vjp that does its work, measured in the same run.

The floor is what JAX alone takes for the same values and gradients: ``jit`` of ``jax.vjp``, and ``jit`` of the pullback
that it returns. Each figure includes waiting for the result.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tj_autograd import WrappedJaxFunction


def mlp(params: list[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    *hidden, (kernel, bias) = params
    for w, b in hidden:
        x = jnp.tanh(x @ w + b)
    return x @ kernel + bias


class Twin(torch.nn.Module):
    """The same network in torch."""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = layer(x).tanh()
        return self.layers[-1](x)


class Case(NamedTuple):
    sizes: tuple[int, ...]
    batch: int


CASES = {
    "MLP 32-64-8, batch 16": Case((32, 64, 8), 16),
    "MLP 784-512-512-10, batch 128": Case((784, 512, 512, 10), 128),
    "150 layers of 8, batch 4": Case((8,) * 151, 4),
}
forward = [pytest.param(c, marks=pytest.mark.benchmark(group=f"forward: {n}"), id=n) for n, c in CASES.items()]
both = [pytest.param(c, marks=pytest.mark.benchmark(group=f"forward+backward: {n}"), id=n) for n, c in CASES.items()]


def _arrays(case: Case) -> tuple[Any, jax.Array]:
    rng = np.random.default_rng(0)
    pairs = list(itertools.pairwise(case.sizes))
    params = [(jnp.array(rng.normal(size=p) / p[0] ** 0.5, jnp.float32), jnp.zeros(p[1])) for p in pairs]
    return params, jnp.array(rng.normal(size=(case.batch, case.sizes[0])), jnp.float32)


def _train(model: torch.nn.Module, x: torch.Tensor, cotangent: torch.Tensor, params: list[torch.Tensor]) -> None:
    torch.autograd.backward(model(x), cotangent)
    for parameter in params:
        parameter.grad = None


@pytest.mark.parametrize("case", forward)
def test_floor_jitted_vjp(case, benchmark):
    params, x = _arrays(case)
    vjp = jax.jit(lambda p, x: jax.vjp(lambda p: mlp(p, x), p))
    benchmark(lambda: jax.block_until_ready(vjp(params, x)[0]))


@pytest.mark.parametrize("case", forward)
def test_wrapped(case, benchmark):
    params, x = _arrays(case)
    model, tensor = WrappedJaxFunction(mlp, params), torch.from_numpy(np.array(x)).clone()
    benchmark(lambda: model(tensor))


@pytest.mark.parametrize("case", forward)
def test_wrapped_no_grad(case, benchmark):
    params, x = _arrays(case)
    model, tensor = WrappedJaxFunction(mlp, params), torch.from_numpy(np.array(x)).clone()
    benchmark(torch.no_grad()(lambda: model(tensor)))


@pytest.mark.parametrize("case", forward)
def test_torch(case, benchmark):
    model, tensor = Twin(case.sizes), torch.from_numpy(np.array(_arrays(case)[1])).clone()
    benchmark(lambda: model(tensor))


@pytest.mark.parametrize("case", both)
def test_floor_jitted_vjp_and_pullback(case, benchmark):
    params, x = _arrays(case)
    vjp, pull = jax.jit(lambda p, x: jax.vjp(lambda p: mlp(p, x), p)), jax.jit(lambda pullback, ct: pullback(ct))
    cotangent = jnp.ones((case.batch, case.sizes[-1]))

    def step() -> None:
        out, pullback = vjp(params, x)
        jax.block_until_ready((out, pull(pullback, cotangent)))

    benchmark(step)


@pytest.mark.parametrize("case", both)
def test_jax_value_and_grad(case, benchmark):
    params, x = _arrays(case)
    step = jax.jit(jax.value_and_grad(lambda p, x: mlp(p, x).sum()))
    benchmark(lambda: jax.block_until_ready(step(params, x)))


@pytest.mark.parametrize("case", both)
def test_wrapped_training(case, benchmark):
    params, x = _arrays(case)
    model, tensor = WrappedJaxFunction(mlp, params), torch.from_numpy(np.array(x)).clone()
    benchmark(_train, model, tensor, torch.ones(case.batch, case.sizes[-1]), list(model.parameters()))


@pytest.mark.parametrize("case", both)
def test_torch_training(case, benchmark):
    model, tensor = Twin(case.sizes), torch.from_numpy(np.array(_arrays(case)[1])).clone()
    benchmark(_train, model, tensor, torch.ones(case.batch, case.sizes[-1]), list(model.parameters()))
