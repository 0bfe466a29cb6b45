"""Conversion against the price of the exchange itself, measured on the same tensors in the same run."""

from collections.abc import Callable
from typing import Any

import jax
import pytest
import torch
from jaxlib import _jax
from tj_core import jax_to_torch, torch_to_jax

CPU = jax.devices("cpu")[0]


def floor_to_jax(tensors: list[torch.Tensor]) -> list[jax.Array]:
    """The private call beneath ``jax.dlpack.from_dlpack``."""
    to_capsule, take = torch._C._to_dlpack, _jax.dlpack_managed_tensor_to_buffer
    return [take(to_capsule(tensor), CPU, None) for tensor in tensors]


def floor_to_torch(arrays: list[jax.Array]) -> list[torch.Tensor]:
    """What ``torch.from_dlpack`` does once it has looked at its argument."""
    from_capsule = torch._C._from_dlpack
    return [from_capsule(array.__dlpack__()) for array in arrays]


def public_to_jax(tensors: list[torch.Tensor]) -> list[jax.Array]:
    return [jax.dlpack.from_dlpack(tensor) for tensor in tensors]


def public_to_torch(arrays: list[jax.Array]) -> list[torch.Tensor]:
    return [torch.from_dlpack(array) for array in arrays]


def _one() -> torch.Tensor:
    return torch.arange(64, dtype=torch.float32)


def _dict() -> dict[str, torch.Tensor]:
    return {f"tensor {i}": torch.ones(8, 8) for i in range(100)}


def _model() -> dict[str, Any]:
    block = lambda: {"w": torch.ones(8, 8), "b": torch.ones(8), "norm": (torch.ones(8), torch.ones(8))}  # noqa: E731
    return {f"layer {i}": block() for i in range(75)}


TREES: dict[str, Callable[[], Any]] = {"one tensor": _one, "dict of 100": _dict, "model of 300": _model}
cases = [
    pytest.param(make, marks=pytest.mark.benchmark(group=f"to jax: {name}"), id=name) for name, make in TREES.items()
]
cases_back = [
    pytest.param(make, marks=pytest.mark.benchmark(group=f"to torch: {name}"), id=name) for name, make in TREES.items()
]


@pytest.mark.parametrize("make", cases)
def test_floor_to_jax(make, benchmark):
    benchmark(floor_to_jax, jax.tree.leaves(make()))


@pytest.mark.parametrize("make", cases)
def test_torch_to_jax(make, benchmark):
    benchmark(torch_to_jax, make())


@pytest.mark.parametrize("make", cases)
def test_public_from_dlpack(make, benchmark):
    benchmark(public_to_jax, jax.tree.leaves(make()))


@pytest.mark.parametrize("make", cases_back)
def test_floor_to_torch(make, benchmark):
    benchmark(floor_to_torch, jax.tree.leaves(torch_to_jax(make())))


@pytest.mark.parametrize("make", cases_back)
def test_jax_to_torch(make, benchmark):
    benchmark(jax_to_torch, torch_to_jax(make()))


@pytest.mark.parametrize("make", cases_back)
def test_public_torch_from_dlpack(make, benchmark):
    benchmark(public_to_torch, jax.tree.leaves(torch_to_jax(make())))


@pytest.mark.benchmark(group="to jax: fresh tensor")
def test_floor_fresh(benchmark):
    benchmark.pedantic(floor_to_jax, setup=lambda: (([torch.ones(64)],), {}), rounds=5000)


@pytest.mark.benchmark(group="to jax: fresh tensor")
def test_torch_to_jax_fresh(benchmark):
    benchmark.pedantic(torch_to_jax, setup=lambda: ((torch.ones(64),), {}), rounds=5000)


@pytest.mark.benchmark(group="to jax: 1 GiB")
def test_floor_large(benchmark):
    benchmark(floor_to_jax, [torch.empty(2**28)])


@pytest.mark.benchmark(group="to jax: 1 GiB")
def test_torch_to_jax_large(benchmark):
    benchmark(torch_to_jax, torch.empty(2**28))


@pytest.mark.benchmark(group="function of one tensor")
def test_floor_function(benchmark):
    tensors = [_one()]
    benchmark(lambda: floor_to_torch(floor_to_jax(tensors)))


@pytest.mark.benchmark(group="function of one tensor")
def test_decorated_function(benchmark):
    benchmark(jax_to_torch(lambda x: x), _one())
