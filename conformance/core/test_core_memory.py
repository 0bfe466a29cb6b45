"""Lifetimes: what is shared lives as long as either side does, whatever is done to the other."""

import gc

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.layouts import LAYOUTS
from tjtest.subject import subject
from tjtest.tolerances import assert_equal
from tjtest.values import sample

tj_core = subject("tj_core")
t2j, j2t, shares = tj_core.torch_to_jax, tj_core.jax_to_torch, tj_core.shares_memory


def _churn() -> None:
    """Make the allocators reuse whatever has been freed."""
    gc.collect()
    for _ in range(20):
        torch.full((4096,), -1.0)
        jnp.full(4096, -1.0).block_until_ready()


def test_an_array_outlives_its_tensor(exchange):
    array = t2j(torch.arange(4096.0))
    _churn()
    assert_equal(array, jnp.arange(4096.0))


def test_a_tensor_outlives_its_array(exchange):
    tensor = j2t(jnp.arange(4096.0))
    _churn()
    assert_equal(tensor, torch.arange(4096.0))


@pytest.mark.parametrize("deed", ["data", "set_"])
def test_a_tensor_that_lets_go_of_its_memory_leaves_the_array_intact(deed, exchange):
    tensor = torch.arange(4096.0)
    array = t2j(tensor)
    if deed == "data":
        tensor.data = torch.zeros(3)
    else:
        tensor.set_(torch.zeros(3))
    _churn()
    assert_equal(array, jnp.arange(4096.0))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "bool", "complex64"])
def test_shared_memory_cannot_be_resized_away(dtype, exchange):
    tensor = sample(dtype, (64,))
    array = t2j(tensor)
    assert shares(tensor, array)
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.resize_(2**16)
    with pytest.raises(RuntimeError, match="not resizable"):
        tensor.untyped_storage().resize_(0)
    _churn()
    assert_equal(array, sample(dtype, (64,)))


def test_a_copied_tensor_may_still_be_resized():
    tensor = torch.arange(64.0)
    t2j(tensor, copy=True)
    tensor.resize_(2**10)


def test_a_deleted_array_leaves_the_tensor_intact(exchange):
    array = jnp.arange(4096.0)
    tensor = j2t(array)
    array.delete()
    _churn()
    assert_equal(tensor, torch.arange(4096.0))


def test_writes_show_on_the_other_side_only_when_shared():
    tensor = torch.zeros(64)
    shared, copied = t2j(tensor), t2j(tensor, copy=True)
    tensor.fill_(1.0)
    assert_equal(shared, jnp.ones(64))
    assert_equal(copied, jnp.zeros(64))


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_shares_memory_agrees_with_a_write(layout):
    shape = {"channels_last": (2, 3, 4, 5), "channels_last_3d": (2, 3, 2, 4, 3), "odd_strides": (1, 16)}
    dtype = "complex64" if layout == "conjugated" else "float32"
    tensor = LAYOUTS[layout].make(sample(dtype, shape.get(layout, (16, 4))))
    array = t2j(tensor)
    before = jnp.array(array, copy=True)
    # Written through the storage, so that expanded and negated tensors can be written to.
    tensor.untyped_storage().fill_(1)
    assert shares(tensor, array) is not bool(jnp.array_equal(array, before))


def test_shares_memory_of_parts_and_empties():
    tensor = torch.arange(64.0)
    array = t2j(tensor)
    assert shares(tensor[60:], array)
    assert shares(tensor.view(8, 8).T, array)
    assert not shares(tensor[:0], array)
    assert not shares(torch.arange(64.0), array)
    assert not shares(tensor, jnp.arange(64.0))


def test_an_array_still_being_computed_is_waited_for():
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 40, lambda _, y: (y @ y) / jnp.abs(y @ y).max(), x))
    x = jnp.ones((400, 400))
    expected = slow(x).block_until_ready()
    for _ in range(5):
        assert_equal(j2t(slow(x)).clone(), expected)
