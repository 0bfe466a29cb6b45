"""Tensors of every dtype, shape and layout go across and come back bit for bit."""

import jax
import numpy as np
import pytest
import torch
from tjtest import dtypes
from tjtest.layouts import LAYOUTS, contiguous_copy
from tjtest.shapes import SHAPES
from tjtest.subject import subject
from tjtest.tolerances import assert_equal
from tjtest.values import as_numpy, sample

tj_core = subject("tj_core")
t2j, j2t, shares = tj_core.torch_to_jax, tj_core.jax_to_torch, tj_core.shares_memory

SHARED_LAYOUTS = ("contiguous", "transposed", "permuted", "channels_last", "channels_last_3d", "larger_storage")
CASES = [
    pytest.param(name, shape, id=f"{name}-{kind}")
    for kind, shape in SHAPES.items()
    for name, layout in LAYOUTS.items()
    if layout.applies(sample("float32", shape)) and name != "conjugated"
]


@pytest.mark.parametrize(("layout", "shape"), CASES)
def test_every_layout_of_every_shape_keeps_its_values(layout, shape, device, exchange):
    tensor = LAYOUTS[layout].make(sample("float32", shape, device=device.torch))
    array = t2j(tensor)
    assert array.shape == tuple(shape)
    assert_equal(array, contiguous_copy(tensor))
    assert array.devices() == {device.jax}
    # The oracle for the sum is numpy's: JAX must compute on the values that it shows.
    np.testing.assert_allclose(np.asarray((array + 1).sum()), as_numpy(tensor).sum() + tensor.numel(), rtol=1e-5)
    back = j2t(array)
    assert_equal(back, contiguous_copy(tensor))
    assert back.device == device.torch


@pytest.mark.parametrize("layout", SHARED_LAYOUTS)
def test_dense_memory_is_shared(layout, exchange):
    shape = {"channels_last": (2, 3, 4, 5), "channels_last_3d": (2, 3, 2, 4, 3)}.get(layout, (16, 4))
    tensor = LAYOUTS[layout].make(sample("float32", shape))
    array = t2j(tensor)
    expected = tensor.is_contiguous() or _jax_reads_permuted_memory()
    assert shares(tensor, array) is expected
    assert (array.unsafe_buffer_pointer() == tensor.data_ptr()) is expected


def _jax_reads_permuted_memory() -> bool:
    """Straight from JAX: 0.7 gets permuted memory wrong or refuses it, so there a copy is right."""
    tensor = torch.arange(6.0).reshape(2, 3).T
    try:
        return jax.dlpack.from_dlpack(tensor).tolist() == tensor.tolist()
    except RuntimeError:  # refused, as by jax 0.7.2
        return False


@pytest.mark.parametrize("layout", ["strided", "columns", "expanded", "misaligned", "overlapping", "negated"])
def test_other_memory_is_copied(layout, exchange):
    tensor = LAYOUTS[layout].make(sample("float32", (16, 5)))
    assert not shares(tensor, t2j(tensor))
    with pytest.raises(tj_core.SharingError, match="copy=False"):
        t2j(tensor, copy=False)


@pytest.mark.parametrize("name", dtypes.COMMON + dtypes.FLOAT8S)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "misaligned"])
def test_every_common_dtype_goes_both_ways_under_x64(name, layout, x64, device, exchange):
    tensor = LAYOUTS[layout].make(sample(name, (8, 4), device=device.torch))
    array = t2j(tensor)
    assert str(array.dtype) == name
    back = j2t(array)
    assert back.dtype == tensor.dtype
    assert back.contiguous().view(torch.uint8).equal(contiguous_copy(tensor).view(torch.uint8))


@pytest.mark.parametrize("name", dtypes.COMMON)
def test_every_common_dtype_is_shared_under_x64(name, x64):
    tensor = sample(name, (8, 4))
    array = t2j(tensor, copy=False)
    assert shares(tensor, array)
    assert shares(j2t(array, copy=False), array)


@pytest.mark.parametrize("name", dtypes.COMPLEXES)
def test_pending_conjugation_is_done(name, x64, exchange):
    tensor = LAYOUTS["conjugated"].make(sample(name, (3, 4)))
    assert tensor.is_conj()
    assert_equal(t2j(tensor), tensor.resolve_conj())


def test_bits_survive_nan_payloads_and_negative_zero(exchange):
    bits = torch.tensor([0x7FC00001, -0x003FFFFE, -0x80000000, 0x7F800001, 1], dtype=torch.int32)
    assert j2t(t2j(bits.view(torch.float32))).view(torch.int32).equal(bits)


@pytest.mark.parametrize("copy", [None, True, False])
def test_copy_decides_about_memory(copy, exchange):
    tensor = torch.arange(64, dtype=torch.float32)
    array = t2j(tensor, copy=copy)
    assert shares(tensor, array) is (copy is not True)
    back = j2t(array, copy=copy)
    assert shares(back, array) is (copy is not True)
    assert_equal(back, tensor)


def test_a_copy_is_finished_before_the_call_returns(exchange):
    source = torch.arange(2**20 + 1, dtype=torch.float32)
    for copied in (source[1:], source[:-1:2]):
        expected = copied.clone()
        array = t2j(copied)
        source.zero_()
        assert_equal(array, expected)
        source.copy_(torch.arange(2**20 + 1))


def test_a_parameter_is_converted_detached_and_shared():
    parameter = torch.nn.Parameter(torch.arange(16, dtype=torch.float32))
    array = t2j(parameter)
    assert shares(parameter, array)
    assert not j2t(array).requires_grad


def test_an_intermediate_of_autograd_and_an_inference_tensor_are_converted():
    leaf = torch.ones(16, requires_grad=True)
    assert_equal(t2j(leaf * 2), torch.full((16,), 2.0))
    with torch.inference_mode():
        inside = torch.ones(16)
        assert_equal(t2j(inside), torch.ones(16))
    assert_equal(t2j(inside), torch.ones(16))


def test_a_subclass_of_plain_storage_is_its_storage():
    class Tagged(torch.Tensor):
        pass

    tensor = torch.arange(16, dtype=torch.float32)
    assert shares(tensor, t2j(tensor.as_subclass(Tagged)))


def test_a_constant_inside_a_transform_or_a_fake_mode_is_converted():
    from torch._subclasses import FakeTensorMode

    constant = torch.arange(16, dtype=torch.float32)
    seen = []

    def record(x):
        seen.append(t2j(constant))
        return x.sum()

    torch.func.grad(record)(torch.ones(2))
    torch.func.vmap(record)(torch.ones(2, 3))
    with FakeTensorMode():
        seen.append(t2j(constant))
    assert len(seen) == 3
    for array in seen:
        assert_equal(array, constant)


def test_a_large_tensor_is_not_copied():
    tensor = torch.empty(2**26, dtype=torch.float32)  # 256 MiB, untouched: a copy would make its pages resident
    before = _resident_bytes()
    array = t2j(tensor)
    assert shares(tensor, array)
    assert j2t(array).data_ptr() == tensor.data_ptr()
    assert _resident_bytes() - before < 2**24


def _resident_bytes() -> int:
    import os
    from pathlib import Path

    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_fresh_process_may_begin_under_a_fake_mode():
    """The probe is not misled by the mode in which the first conversion is made."""
    import subprocess
    import sys

    program = f"""
import torch
from torch._subclasses import FakeTensorMode
import {tj_core.__name__} as core
from {tj_core.__name__}._exchange import EXCHANGE
tensor = torch.arange(16.)
with FakeTensorMode():
    array = core.torch_to_jax(tensor)
assert array.tolist() == tensor.tolist()
print(EXCHANGE.way, EXCHANGE.permuted)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["private", str(_jax_reads_permuted_memory())]
