"""What only a GPU can show: order of work across streams, memory, several devices. Run by ``nox -s cuda``."""

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_equal

tj_core = subject("tj_core")
t2j, j2t, shares = tj_core.torch_to_jax, tj_core.jax_to_torch, tj_core.shares_memory
SIZE = 2**22


@pytest.fixture(autouse=True)
def gpu(device):
    """The GPU of a run with ``--tj-device=cuda``."""
    if device.name != "cuda":
        pytest.skip("needs --tj-device=cuda and a GPU")
    return device


def _delay() -> None:
    """Keep torch's current stream busy for a while."""
    torch.cuda._sleep(50_000_000)


def test_memory_is_shared_both_ways(gpu):
    tensor = torch.arange(SIZE, dtype=torch.float32, device=gpu.torch)
    array = t2j(tensor)
    assert shares(tensor, array)
    assert array.devices() == {gpu.jax}
    assert j2t(array).data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("side_stream", [False, True])
def test_jax_does_not_read_before_torch_has_written(gpu, side_stream):
    stream = torch.cuda.Stream() if side_stream else torch.cuda.current_stream()
    for value in range(1, 6):
        with torch.cuda.stream(stream):
            tensor = torch.zeros(SIZE, device=gpu.torch)
            _delay()
            tensor.fill_(float(value))
            total = jnp.sum(t2j(tensor))
        assert float(total) == value * SIZE


def test_torch_does_not_read_before_jax_has_computed(gpu):
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 50, lambda _, y: y @ y / 2048, x))
    x = jnp.ones((2048, 2048), device=gpu.jax)
    expected = jax.device_get(slow(x))
    for _ in range(5):
        assert_equal(j2t(slow(x)).clone().cpu(), torch.from_numpy(expected.copy()))


def test_the_allocator_does_not_reuse_what_jax_still_reads(gpu):
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: jnp.roll(y, 1), x).sum())
    for _ in range(5):
        result = slow(t2j(torch.ones(SIZE, device=gpu.torch)))
        torch.full((SIZE,), -1.0, device=gpu.torch)  # would take the freed memory, if it were freed too early
        assert float(result) == SIZE


def test_a_tensor_of_another_device_than_the_current_one_is_converted(gpu):
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    tensor = torch.arange(64.0, device="cuda:1")
    with torch.cuda.device(0):
        array = t2j(tensor)
    assert next(iter(array.devices())).local_hardware_id == 1
    assert j2t(array).device == tensor.device


def test_pinned_memory_is_converted(gpu):
    tensor = torch.arange(64.0).pin_memory()
    assert_equal(t2j(tensor), torch.arange(64.0))


def test_device_moves_between_host_and_gpu(gpu):
    tensor = torch.arange(64.0)
    there = t2j(tensor, device=gpu.jax)
    assert there.devices() == {gpu.jax}
    assert_equal(j2t(there, device="cpu"), tensor)
    assert_equal(t2j(tensor.cuda(), device="cpu"), tensor)
    for refused in (lambda: t2j(tensor, device=gpu.jax, copy=False), lambda: j2t(there, device="cpu", copy=False)):
        with pytest.raises(tj_core.SharingError):
            refused()
