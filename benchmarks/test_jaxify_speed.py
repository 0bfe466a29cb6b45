"""A torch module called from JAX, beside torch eager; the floor is a bare buffer_callback around the same call."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
import torch
from tj_jaxify import torch_module_to_jax
from torch import nn

buffers = pytest.importorskip("jax.experimental.buffer_callback", reason="the floor needs jax's buffer_callback")


def tiny():
    return nn.Linear(8, 8), torch.randn(4, 8)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)), (
        torch.randn(128, 784)
    )


def cnn():
    def block(i, o):
        return nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)

    model = nn.Sequential(*block(3, 32), *block(32, 64), *block(64, 64), nn.Flatten(), nn.Linear(1024, 10))
    return model, torch.randn(32, 3, 32, 32)


CASES = {"tiny": tiny, "mlp": mlp, "cnn": cnn}


def as_arrays(tensors):
    return tuple(jnp.asarray(t.detach().numpy()) for t in tensors)


@pytest.fixture(params=CASES)
def case(request, benchmark):
    """The module and its input; every row of a case is in its group, so that a figure is a ratio within it."""
    torch.manual_seed(0)
    kind = "gradient" if "gradient" in request.node.name else "forward"
    benchmark.group = f"jaxify: {request.param} {kind}"
    return CASES[request.param]()


def bare(function, result, *operands):
    """A buffer_callback with nothing around it."""

    def callback(_, outs, *given):
        for out, value in zip(outs, function(*map(torch.from_dlpack, given)), strict=True):
            torch.from_dlpack(out).copy_(value)

    shapes = [jax.ShapeDtypeStruct(tuple(t.shape), jnp.float32) for t in result]
    return partial(jax.jit(buffers.buffer_callback(callback, shapes)), *operands)


def run(benchmark, function):
    jax.block_until_ready(function())
    benchmark(lambda: jax.block_until_ready(function()))


def test_forward_floor(benchmark, case):
    model, x = case
    names = [name for name, _ in model.named_parameters()]

    def function(x, *params):
        with torch.no_grad():
            return (torch.func.functional_call(model, dict(zip(names, params, strict=True)), (x,)),)

    run(benchmark, bare(function, [model(x)], *as_arrays([x, *model.parameters()])))


def test_forward_torch_eager(benchmark, case):
    model, x = case
    with torch.no_grad():
        benchmark(lambda: model(x))


def test_forward_jit(benchmark, case):
    model, x = case
    apply, params = torch_module_to_jax(model)
    run(benchmark, partial(jax.jit(apply), params, *as_arrays([x])))


def test_forward_without_jit(benchmark, case):
    model, x = case
    apply, params = torch_module_to_jax(model)
    run(benchmark, partial(apply, params, *as_arrays([x])))


def torch_gradient(model, x):
    return torch.autograd.grad(model(x).square().mean(), list(model.parameters()))


def test_gradient_floor(benchmark, case):
    """Value and gradient in one callback: what a bridge costs that runs neither pass twice."""
    model, x = case
    names = [name for name, _ in model.named_parameters()]

    def function(x, *params):
        leaves = [p.detach().requires_grad_() for p in params]
        out = torch.func.functional_call(model, dict(zip(names, leaves, strict=True)), (x,))
        return torch.autograd.grad(out.square().mean(), leaves)

    run(benchmark, bare(function, list(model.parameters()), *as_arrays([x, *model.parameters()])))


def test_gradient_torch_eager(benchmark, case):
    model, x = case
    benchmark(lambda: torch_gradient(model, x))


def test_gradient_jit(benchmark, case):
    model, x = case
    apply, params = torch_module_to_jax(model)
    step = jax.jit(jax.value_and_grad(lambda params, x: jnp.square(apply(params, x)).mean()))
    run(benchmark, partial(step, params, *as_arrays([x])))
