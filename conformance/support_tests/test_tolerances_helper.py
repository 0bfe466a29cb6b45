"""The suite's own comparisons: they pass what is equal, and fail what is not."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest import devices
from tjtest.precision import x64_mode
from tjtest.tolerances import assert_close, assert_equal
from tjtest.values import as_numpy, sample


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "complex64", "int32", "bool"])
def test_equal_values_pass_across_frameworks(name: str) -> None:
    tensor = sample(name, (3, 4))
    array = jnp.asarray(as_numpy(tensor)).astype(name)
    assert_close(tensor, array)
    assert_equal(array, tensor)


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "int32"])
def test_a_wrong_value_fails(name: str) -> None:
    tensor = sample(name, (4,))
    wrong = tensor.clone()
    wrong[2] += 1
    with pytest.raises(AssertionError):
        assert_close(tensor, wrong)
    with pytest.raises(AssertionError):
        assert_equal(tensor, wrong)


def test_shape_and_dtype_must_agree() -> None:
    with pytest.raises(AssertionError, match="shapes differ"):
        assert_close(torch.zeros(2), jnp.zeros((2, 1)))
    with pytest.raises(AssertionError, match="dtypes differ"):
        assert_close(torch.zeros(2, dtype=torch.float64), jnp.zeros(2))


def test_the_coarser_dtype_sets_the_tolerance() -> None:
    assert_close(torch.tensor([1.0]), torch.tensor([1.01], dtype=torch.bfloat16), check_dtype=False)
    with pytest.raises(AssertionError):
        assert_close(torch.tensor([1.0]), torch.tensor([1.01]))


def test_x64_mode_restores_what_stood_before() -> None:
    with x64_mode():
        with x64_mode(False):
            assert jnp.zeros(1).dtype == np.float32
        assert jnp.zeros(1, "float64").dtype == np.float64
    assert jnp.zeros(1).dtype == np.float32


def test_a_missing_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(devices.MissingDeviceError, match="sees no GPU"):
        devices.select("cuda")


def test_the_device_is_the_same_in_both_frameworks(device: devices.Device) -> None:
    assert device.torch.type == device.name
    assert device.jax.platform == {"cpu": "cpu", "cuda": "gpu"}[device.name]
