"""Containers that libraries define: each comes back as what it was, with its leaves converted."""

import flax
import jax
import jax.numpy as jnp
import optax
import pytest
import torch
from flax.core import FrozenDict, freeze
from flax.training.train_state import TrainState
from tjtest.subject import subject
from tjtest.tolerances import assert_equal

tj_core = subject("tj_core")
t2j, j2t = tj_core.torch_to_jax, tj_core.jax_to_torch


@flax.struct.dataclass
class State:
    weight: object
    name: str = flax.struct.field(pytree_node=False, default="state")


def _leaves_equal(tensors, arrays):
    """The two trees have the same leaves in JAX's order, one in tensors and the other in arrays."""
    left, right = jax.tree.leaves(tensors), jax.tree.leaves(arrays)
    assert len(left) == len(right) > 0
    for tensor, array in zip(left, right, strict=True):
        assert isinstance(tensor, torch.Tensor)
        assert_equal(tensor, torch.from_numpy(jax.device_get(array).copy()))


PARAMS = {"dense": {"kernel": jnp.ones((3, 2)), "bias": jnp.zeros(2)}}


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: freeze(PARAMS), id="FrozenDict"),
        pytest.param(lambda: State(jnp.arange(3.0)), id="struct.dataclass"),
        pytest.param(lambda: optax.adam(1e-3).init(PARAMS), id="optax.adam"),
        pytest.param(lambda: optax.chain(optax.clip(1.0), optax.sgd(0.1, momentum=0.9)).init(PARAMS), id="optax.chain"),
        pytest.param(
            lambda: TrainState.create(apply_fn=jnp.dot, params=PARAMS, tx=optax.sgd(0.1)), id="flax.TrainState"
        ),
    ],
)
def test_the_container_survives_a_round_trip(make):
    value = make()
    there = j2t(value)
    assert type(there) is type(value)
    assert jax.tree.structure(there) == jax.tree.structure(value)
    arrays = [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, jax.Array)]
    tensors = [leaf for leaf in jax.tree.leaves(there) if isinstance(leaf, torch.Tensor)]
    _leaves_equal(tensors, arrays)
    back = t2j(there)
    assert jax.tree.structure(back) == jax.tree.structure(value)
    for got, sent in zip(jax.tree.leaves(back), jax.tree.leaves(value), strict=True):
        assert jnp.array_equal(got, sent)


def test_static_fields_are_untouched():
    assert j2t(State(jnp.ones(2), name="mine")).name == "mine"
    assert isinstance(j2t(freeze(PARAMS)), FrozenDict)
