"""Every dtype of either framework: shared, narrowed with a word, or refused by name."""

import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest import dtypes
from tjtest.subject import subject
from tjtest.tolerances import assert_equal
from tjtest.values import sample

tj_core = subject("tj_core")
t2j, j2t = tj_core.torch_to_jax, tj_core.jax_to_torch
BOTH = (*dtypes.COMMON, *dtypes.FLOAT8S)


def _make(dtype: torch.dtype) -> torch.Tensor:
    if dtype in {torch.quint8, torch.qint8, torch.qint32}:
        return torch.quantize_per_tensor(torch.ones(4), 0.5, 0, dtype)
    if dtype in {torch.quint4x2, torch.quint2x4}:
        return torch.quantize_per_channel(torch.ones(4, 4), torch.ones(4), torch.zeros(4), 0, dtype)
    return torch.zeros(16, dtype=torch.uint8).view(dtype)


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
@pytest.mark.parametrize("name", sorted(set(dtypes.TORCH) - set(BOTH)))
def test_a_dtype_that_jax_lacks_is_refused_by_name(name, x64):
    with pytest.raises((tj_core.UnsupportedDtypeError, tj_core.UnsupportedKindError), match="value: ") as caught:
        t2j(_make(dtypes.TORCH[name]))
    assert isinstance(caught.value, TypeError)
    assert name in str(caught.value) or "quantized" in str(caught.value)


@pytest.mark.parametrize("name", sorted(set(dtypes.JAX) - set(BOTH) - {"float0"}))
def test_a_dtype_that_torch_lacks_is_refused_by_name(name, x64):
    with pytest.raises(tj_core.UnsupportedDtypeError, match=name):
        j2t(dtypes.JAX[name])
    try:
        array = jnp.zeros(4, dtype=dtypes.JAX[name])
    except jax.errors.JaxRuntimeError:
        return  # XLA has no arrays of it (float6 in jax 0.10): the dtype alone can be met, and was refused
    with pytest.raises(tj_core.UnsupportedDtypeError, match=str(array.dtype)) as caught:
        j2t(array)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", BOTH)
def test_a_jax_array_of_every_common_dtype_becomes_its_torch_dtype(name, x64):
    array = jnp.asarray(np.arange(4) % 2, dtype=dtypes.JAX[name])
    tensor = j2t(array)
    assert tensor.dtype == dtypes.TORCH[name]
    assert tensor.view(torch.uint8).numpy().tobytes() == np.asarray(array).tobytes()


@pytest.mark.parametrize(("wide", "narrow"), dtypes.NARROWED.items())
@pytest.mark.filterwarnings("ignore::tj_core.PrecisionLossWarning" if tj_core.__name__ == "tj_core" else "ignore")
def test_wide_dtypes_are_narrowed_without_x64(wide, narrow):
    tensor = sample(wide, (3, 4))
    array = t2j(tensor)
    assert str(array.dtype) == narrow
    assert_equal(j2t(array), tensor.to(dtypes.TORCH[narrow]))
    with pytest.raises(tj_core.SharingError, match="jax_enable_x64"):
        t2j(tensor, copy=False)


@pytest.mark.parametrize("value", [2**40 + 5, 2**31, -(2**31) - 1, -(2**63)])
def test_an_int64_that_does_not_fit_is_an_overflow(value):
    with pytest.raises(OverflowError, match="int32") as caught:
        t2j(torch.tensor([0, value]))
    assert isinstance(caught.value, tj_core.TJError)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31), 0])
def test_an_int64_that_fits_is_exact(value):
    assert t2j(torch.tensor([value])).tolist() == [value]


def test_a_uint64_that_does_not_fit_is_an_overflow():
    with pytest.raises(OverflowError, match="uint32"):
        t2j(torch.tensor([2**32], dtype=torch.uint64))
    assert t2j(torch.tensor([2**32 - 1], dtype=torch.uint64)).tolist() == [2**32 - 1]


def test_an_int64_is_exact_under_x64(x64):
    assert t2j(torch.tensor([2**40 + 5, -(2**63)])).tolist() == [2**40 + 5, -(2**63)]


def test_x64_may_be_on_for_this_thread_alone():
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable(True):
        assert t2j(torch.tensor([2**40])).tolist() == [2**40]
    with pytest.raises(OverflowError):
        t2j(torch.tensor([2**40]))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_loss_of_precision_is_said_once_per_process(dtype):
    program = f"""
import warnings, torch
import {tj_core.__name__} as core
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        core.torch_to_jax(torch.ones(3, dtype=torch.{dtype}))
        core.torch_to_jax([torch.ones(3, dtype=torch.{dtype})])
print([w.category.__name__ for w in caught], "{dtype}" in str(caught[0].message))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['PrecisionLossWarning'] True"


def test_integers_and_small_floats_are_converted_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("int64", "float32", "bfloat16", "float16", "bool", "uint8"):
            t2j(sample(name, (3,)))


def test_the_table_names_every_dtype_of_both_frameworks():
    from importlib import import_module

    table = import_module(f"{tj_core.__name__}._dtypes").TABLE
    names = [row.name for row in table]
    assert len(names) == len(set(names))
    assert set(dtypes.TORCH) <= set(names)
    assert set(dtypes.JAX) - {"float0"} <= set(names)


@pytest.mark.parametrize("name", BOTH)
def test_a_dtype_is_a_leaf_that_becomes_the_dtype_of_the_arrays(name, x64):
    assert t2j({"dtype": dtypes.TORCH[name]})["dtype"] == dtypes.JAX[name]
    assert j2t(dtypes.JAX[name]) is dtypes.TORCH[name]
    assert j2t([getattr(jnp, "bool_" if name == "bool" else name)])[0] is dtypes.TORCH[name]


def test_a_dtype_says_what_a_tensor_would_become():
    for wide, narrow in dtypes.NARROWED.items():
        assert t2j(dtypes.TORCH[wide]) == dtypes.JAX[narrow]


def test_a_dtype_without_a_counterpart_is_refused():
    with pytest.raises(tj_core.UnsupportedDtypeError, match="complex32"):
        t2j(torch.complex32)
    with pytest.raises(tj_core.UnsupportedDtypeError, match="float8_e3m4"):
        j2t(jnp.float8_e3m4)
