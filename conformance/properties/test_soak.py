"""Many conversions: memory stays flat; many threads: values stay right; other processes: nothing hangs."""

import multiprocessing
import os
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_equal

tj_core = subject("tj_core")
t2j, j2t = tj_core.torch_to_jax, tj_core.jax_to_torch

CONVERSIONS = 1_000_000
BOUND = 24 * 2**20  # bytes; what allocators keep varies by a few MiB, a leak of 100 bytes a conversion makes 100 MB


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _mixed() -> list[torch.Tensor]:
    base = torch.arange(4096, dtype=torch.float32)
    return [
        base[:64],
        base[1:65],
        base[::2],
        base.view(64, 64).T,
        base[:1].expand(50),
        torch.nn.Parameter(torch.ones(8)),
        torch.arange(10),
        torch.ones(3, dtype=torch.bfloat16),
        torch.complex(base[:8], base[:8]).conj(),
        torch.zeros(0),
        torch.tensor(1.0),
    ]


def test_a_million_conversions_leave_memory_flat(record_property):
    mixed, array = _mixed(), jnp.arange(64.0)
    tree = {"a": mixed, "b": (array, [base := torch.ones(64)] * 3)}
    per_round = 2 * (2 * len(mixed) + 2) + 3

    def one_round():
        j2t(t2j(tree))
        for tensor in mixed:
            j2t(t2j(tensor))
        j2t(array, copy=True)
        t2j(base, copy=True)
        with pytest.raises(tj_core.TJError):
            t2j(mixed[1], copy=False)

    for _ in range(500):
        one_round()
    before = _resident()
    for _ in range(CONVERSIONS // per_round):
        one_round()
    grown = _resident() - before
    record_property("bytes_grown", grown)
    print(f"{CONVERSIONS:,} conversions: resident memory grew by {grown / 2**20:.1f} MiB")
    assert grown < BOUND


def test_eight_threads_convert_at_once():
    failures = []
    start = threading.Barrier(8)
    add = jax.jit(lambda a: a + 1)

    def work(number: int) -> None:
        try:
            start.wait()
            for i in range(300):
                tensor = torch.full((257 + number,), float(i))[1:]
                back = j2t(add(t2j([tensor, tensor])[0]))
                assert_equal(back, tensor + 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not failures
    assert not any(thread.is_alive() for thread in threads)


def _convert_in_child(queue) -> None:
    queue.put(j2t(t2j({"x": torch.arange(64, dtype=torch.float32)}))["x"].sum().item())


@pytest.mark.parametrize("start", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_conversion_in_a_child_process_does_not_hang(start):
    """Conversion alone starts no JAX computation, so even a forked child may do it; computing there may hang."""
    t2j(torch.ones(3))
    jnp.ones(3).block_until_ready()
    context = multiprocessing.get_context(start)
    queue = context.SimpleQueue()
    child = context.Process(target=_convert_in_child, args=(queue,))
    child.start()
    child.join(120)
    assert child.exitcode == 0
    assert queue.get() == 2016.0
