"""The suite's own dtype lists."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest import dtypes
from tjtest.precision import x64_mode


@pytest.mark.parametrize("name", dtypes.COMMON)
def test_common_dtypes_exist_in_both_frameworks(name: str) -> None:
    assert getattr(torch, name) is dtypes.TORCH[name]
    assert jnp.dtype(name) == dtypes.JAX[name]


def test_aliases_appear_once() -> None:
    assert not {"half", "long", "cfloat"} & dtypes.TORCH.keys()
    assert not {"float_", "int_", "csingle"} & dtypes.JAX.keys()


def test_every_dtype_is_listed() -> None:
    assert {"int4", "complex32", "qint8", "bits8", *dtypes.FLOAT8S} <= dtypes.TORCH.keys()
    assert {"int4", "uint2", *dtypes.FLOAT8S} <= dtypes.JAX.keys()


@pytest.mark.parametrize("name", dtypes.COMMON)
def test_narrowing_is_what_jax_does(name: str) -> None:
    host = np.zeros(1, dtypes.JAX[name])
    assert jnp.asarray(host).dtype == dtypes.in_jax(name, x64=False)
    with x64_mode():
        assert jnp.asarray(host).dtype == dtypes.in_jax(name, x64=True)


@pytest.mark.parametrize("name", dtypes.NARROWED)
def test_x64_fixture_turns_narrowing_off(name: str, x64: None) -> None:
    assert jnp.zeros(1, name).dtype == np.dtype(name)
