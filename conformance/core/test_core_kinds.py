"""Kinds of tensors and arrays that cannot cross: each is refused by name, with a remedy."""

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject

tj_core = subject("tj_core")
t2j, j2t = tj_core.torch_to_jax, tj_core.jax_to_torch


def _fake() -> torch.Tensor:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(3)


class _WithOperators(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore:.*prototype stage:UserWarning")
@pytest.mark.filterwarnings("ignore:.*beta state:UserWarning")
@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
@pytest.mark.filterwarnings("ignore:.*LazyModule:UserWarning")
@pytest.mark.parametrize(
    ("make", "name", "remedy"),
    [
        pytest.param(lambda: torch.eye(3).to_sparse(), "sparse_coo", "to_dense", id="sparse"),
        pytest.param(lambda: torch.eye(3).to_sparse_csr(), "sparse_csr", "to_dense", id="csr"),
        pytest.param(lambda: torch.ones(3).to_mkldnn(), "mkldnn", "to_dense", id="mkldnn"),
        pytest.param(lambda: torch.ones(3, device="meta"), "meta", "to_empty", id="meta"),
        pytest.param(_fake, "FakeTensor", "jax_function_to_torch", id="fake"),
        pytest.param(
            lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), "quantized", "dequantize", id="q"
        ),
        pytest.param(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested", "unbind", id="nest"),
        pytest.param(
            lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
            "nested",
            "unbind",
            id="jagged",
        ),
        pytest.param(lambda: torch.ones(3).as_subclass(_WithOperators), "_WithOperators", "plain tensor", id="own"),
        pytest.param(lambda: torch.nn.LazyLinear(3).weight, "uninitialized", "run the module once", id="lazy"),
    ],
)
def test_a_tensor_without_plain_memory_is_refused(make, name, remedy):
    tensor = make()
    for value in (tensor, [tensor], {"a": (tensor,)}):
        with pytest.raises(tj_core.UnsupportedKindError, match="^value: ") as caught:
            t2j(value)
        assert name in str(caught.value)
        assert remedy in str(caught.value)
        assert isinstance(caught.value, TypeError)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    "transform",
    [
        lambda f: torch.func.grad(f)(torch.ones(3)),
        lambda f: torch.func.vmap(f)(torch.ones(2, 3)),
        lambda f: torch.func.jvp(f, (torch.ones(3),), (torch.ones(3),)),
        lambda f: torch.func.functionalize(f)(torch.ones(3)),
    ],
)
def test_a_tensor_inside_a_transform_is_refused(transform):
    def function(x):
        t2j(x)
        return x.sum()

    with pytest.raises(tj_core.UnsupportedKindError, match="jax_function_to_torch"):
        transform(function)


@pytest.mark.parametrize("transform", [jax.jit, jax.grad, jax.vmap])
def test_a_tracer_is_refused(transform):
    def function(x):
        j2t({"x": x})
        return x

    argument = jnp.float32(1.0) if transform is jax.grad else jnp.ones(3)
    with pytest.raises(tj_core.UnsupportedKindError, match="torch_function_to_jax"):
        transform(function)(argument)


def test_a_typed_key_is_refused():
    with pytest.raises(tj_core.UnsupportedKindError, match="key_data"):
        j2t(jax.random.key(0))
    assert j2t(jax.random.key_data(jax.random.key(0))).dtype == torch.uint32


def test_a_deleted_array_is_refused():
    array = jnp.ones(3)
    array.delete()
    with pytest.raises(tj_core.UnsupportedKindError, match="deleted"):
        j2t(array)


def test_a_donated_array_is_refused_and_the_shared_tensor_intact():
    tensor = torch.arange(1024, dtype=torch.float32)
    array = t2j(tensor)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array).block_until_ready()
    assert tensor.equal(torch.arange(1024, dtype=torch.float32))
    if array.is_deleted():
        with pytest.raises(tj_core.UnsupportedKindError, match="donated"):
            j2t(array)


def test_donating_an_array_leaves_the_tensor_over_it_intact():
    array = jnp.arange(1024.0)
    tensor = j2t(array)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array).block_until_ready()
    assert tensor.equal(torch.arange(1024, dtype=torch.float32))


@pytest.mark.parametrize("device", ["tpu", 3.5, object()])
def test_a_device_that_is_none_is_refused(device):
    with pytest.raises(tj_core.DeviceError, match="device: "):
        t2j(torch.ones(3), device=device)


@pytest.mark.parametrize("device", ["nonsense", object()])
def test_a_torch_device_that_is_none_is_refused(device):
    with pytest.raises(tj_core.DeviceError, match="device: "):
        j2t(jnp.ones(3), device=device)


def test_shares_memory_refuses_other_things():
    with pytest.raises(tj_core.UnsupportedKindError, match="tensor: "):
        tj_core.shares_memory(jnp.ones(3), jnp.ones(3))
    with pytest.raises(tj_core.UnsupportedKindError, match="array: "):
        tj_core.shares_memory(torch.ones(3), torch.ones(3))


def test_every_error_is_of_the_family():
    for name in tj_core.__all__:
        value = getattr(tj_core, name)
        if isinstance(value, type) and issubclass(value, Exception) and not issubclass(value, Warning):
            assert issubclass(value, tj_core.TJError)
    assert issubclass(tj_core.SharingError, BufferError)
    assert issubclass(tj_core.SharingError, ValueError)
