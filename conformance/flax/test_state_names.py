"""Variables as a flat dict of named tensors: readable, reversible, equal to the bit. Oracle: the tree that went in."""

from collections.abc import Mapping
from typing import Any

import flax.core
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tjtest import dtypes
from tjtest.subject import subject

tj_core = subject("tj_core")
tj_flax = subject("tj_flax")

KEYS = (
    st.text(max_size=6) | st.sampled_from(["Dense_0", "a.b", "%", "%2E", "0", "-1", "01", ".", "é", ""]) | st.integers()
)
ARRAYS = st.builds(
    lambda shape, seed: np.random.default_rng(seed).standard_normal(shape).astype(np.float32),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.integers(0, 2**16),
)
TREES = st.dictionaries(KEYS, st.recursive(ARRAYS, lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3)))


def plain(tree: Any) -> Any:
    """The tree with each array as (dtype, shape, bytes): equal exactly when every bit is."""
    if isinstance(tree, Mapping):
        return {key: plain(child) for key, child in tree.items()}
    array = np.asarray(tree)
    return str(array.dtype), array.shape, array.tobytes()


@settings(deadline=None)
@given(TREES)
def test_any_tree_of_dicts_comes_back_to_the_bit(tree: dict[Any, Any]) -> None:
    state_dict = tj_flax.variables_to_state_dict(tree)
    assert all(isinstance(name, str) for name in state_dict)
    assert plain(tj_flax.state_dict_to_variables(state_dict)) == plain(tree)


def test_names_read_like_paths() -> None:
    model = nn.Sequential([nn.Dense(4), nn.relu, nn.Dense(2)])
    variables = model.init(jax.random.key(0), jnp.ones((1, 3)))
    assert {name: tuple(t.shape) for name, t in tj_flax.variables_to_state_dict(variables).items()} == {
        "params.layers_0.kernel": (3, 4),
        "params.layers_0.bias": (4,),
        "params.layers_2.kernel": (4, 2),
        "params.layers_2.bias": (2,),
    }


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("params", "a.b", "w"), "params.a%2Eb.w"),
        (("params", "50%"), "params.50%25"),
        (("params", 0), "params.0"),
        (("params", -3), "params.-3"),
        (("params", "0"), "params.%30"),
        (("params", "-3"), "params.%2D3"),
        (("params", ""), "params.%"),
        (("params", "01"), "params.%301"),
        (("params", "größe"), "params.größe"),
    ],
)
def test_keys_that_would_not_be_read_back_are_percent_encoded(path: tuple[Any, ...], name: str) -> None:
    tree: Any = jnp.ones(2)
    for key in reversed(path):
        tree = {key: tree}
    assert list(tj_flax.variables_to_state_dict(tree)) == [name]
    assert plain(tj_flax.state_dict_to_variables({name: torch.ones(2)})) == plain(tree)


def test_other_collections_and_frozen_dicts() -> None:
    variables = flax.core.freeze(nn.BatchNorm(use_running_average=False).init(jax.random.key(0), jnp.ones((2, 3))))
    state_dict = tj_flax.variables_to_state_dict(variables)
    assert set(state_dict) == {"params.scale", "params.bias", "batch_stats.mean", "batch_stats.var"}
    back = tj_flax.state_dict_to_variables(state_dict)
    assert type(back) is dict
    assert plain(back) == plain(variables)


@pytest.mark.parametrize(
    "name", [n for n in (*dtypes.COMMON, *dtypes.FLOAT8S) if n in dtypes.TORCH and n in dtypes.JAX]
)
def test_dtypes_come_back(name: str, x64: None) -> None:
    array = jnp.arange(6).reshape(2, 3).astype(name)
    for leaf in (array, np.asarray(array)):
        back = tj_flax.state_dict_to_variables(tj_flax.variables_to_state_dict({"a": leaf}))
        assert plain(back) == plain({"a": array})


def test_bits_of_nan_infinity_and_negative_zero() -> None:
    bits = np.array([0x7FC12345, 0xFF800000, 0x80000000, 0x00000001], np.uint32)
    array = jax.lax.bitcast_convert_type(jnp.asarray(bits), jnp.float32)
    back = tj_flax.state_dict_to_variables(tj_flax.variables_to_state_dict({"a": array}))
    np.testing.assert_array_equal(np.asarray(back["a"]).view(np.uint32), bits)


def test_numpy_layouts_and_byte_orders() -> None:
    base = np.arange(12, dtype=">f4").reshape(3, 4)
    state_dict = tj_flax.variables_to_state_dict({"reversed": base[::-1, ::2], "scalar": np.float32(3)})
    np.testing.assert_array_equal(state_dict["reversed"].numpy(), base[::-1, ::2])
    assert state_dict["scalar"].shape == ()


def test_nothing_is_shared_with_what_came_in() -> None:
    array, host = jnp.arange(64.0), np.arange(64, dtype=np.float32)
    state_dict = tj_flax.variables_to_state_dict({"array": array, "host": host})
    variables = tj_flax.state_dict_to_variables(state_dict)
    for tensor in state_dict.values():
        tensor.zero_()
    for value in (array, host, variables["array"], variables["host"]):
        np.testing.assert_array_equal(value, np.arange(64))


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"params": {"a": {}}}, r"variables\['params'\]\['a'\].*empty dict"),
        ({"params": {"a": [jnp.ones(2)]}}, r"variables\['params'\]\['a'\].*found builtins.list"),
        ({"params": {"a": 3.0}}, r"found builtins.float"),
        ({"params": {"a": nn.Partitioned(jnp.ones(2), names=("x",))}}, r"found flax.*Partitioned.*meta.unbox"),
        ({"params": {(1, 2): jnp.ones(2)}}, r"the key \(1, 2\)"),
        ({"params": {True: jnp.ones(2)}}, r"the key True"),
    ],
)
def test_what_has_no_name_is_refused(variables: Any, words: str) -> None:
    with pytest.raises(tj_core.UnsupportedKindError, match=words):
        tj_flax.variables_to_state_dict(variables)


def test_the_error_of_a_leaf_says_which_leaf() -> None:
    with pytest.raises(tj_core.TJError) as caught:
        tj_flax.variables_to_state_dict({"rngs": {"dropout": jax.random.key(0)}})
    assert "variables['rngs']['dropout']" in "\n".join(caught.value.__notes__)


def test_numpy_dtypes_that_torch_lacks_are_refused() -> None:
    with pytest.raises(tj_core.UnsupportedDtypeError, match="object"):
        tj_flax.variables_to_state_dict({"a": np.array([None])})


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a"), ("a.b.c", "a.b")])
def test_a_name_that_begins_another_is_refused(names: tuple[str, str]) -> None:
    with pytest.raises(tj_flax.StateNameError, match="a"):
        tj_flax.state_dict_to_variables({name: torch.ones(1) for name in names})


def test_state_dicts_hold_tensors_only() -> None:
    with pytest.raises(tj_core.UnsupportedKindError, match=r"state_dict\['a'\].*found builtins.int"):
        tj_flax.state_dict_to_variables({"a": 3})
