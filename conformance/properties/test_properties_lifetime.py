"""A machine that converts, drops, resizes, writes and collects in any order.

No step may crash, and no value may be other than the model says: where memory was shared a write shows on the other
side, elsewhere it does not.
"""

import gc

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule
from tjtest.subject import subject

tj_core = subject("tj_core")
SIZE = 512


class Cell:
    """The model of one piece of memory: the value that all of its elements have."""

    def __init__(self, value: float) -> None:
        self.value = value


class Lifetimes(RuleBasedStateMachine):
    tensors = Bundle("tensors")
    arrays = Bundle("arrays")

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[tuple[torch.Tensor | jax.Array, Cell]] = []

    def _keep(self, value, cell):
        self.alive.append((value, cell))
        return (value, cell)

    @rule(target=tensors, value=st.integers(0, 9), misaligned=st.booleans())
    def make_tensor(self, value, misaligned):
        return self._keep(torch.full((SIZE + misaligned,), float(value))[int(misaligned) :], Cell(value))

    @rule(target=arrays, value=st.integers(0, 9))
    def make_array(self, value):
        return self._keep(jnp.full(SIZE, float(value)), Cell(value))

    @rule(target=arrays, entry=tensors, copy=st.sampled_from([None, True]))
    def to_jax(self, entry, copy):
        tensor, cell = entry
        array = tj_core.torch_to_jax(tensor, copy=copy)
        shared = tj_core.shares_memory(tensor, array)
        assert not (copy and shared)
        return self._keep(array, cell if shared else Cell(cell.value))

    @rule(target=tensors, entry=arrays, copy=st.sampled_from([None, True]))
    def to_torch(self, entry, copy):
        array, cell = entry
        if array.is_deleted():
            return multiple()
        tensor = tj_core.jax_to_torch(array, copy=copy)
        shared = tj_core.shares_memory(tensor, array)
        assert not (copy and shared)
        return self._keep(tensor, cell if shared else Cell(cell.value))

    @rule(target=arrays, entry=arrays)
    def compute(self, entry):
        array, cell = entry
        if array.is_deleted():
            return multiple()
        # Waited for: what a running computation sees of a later write is the caller's to avoid (see the documentation).
        return self._keep(jax.block_until_ready(array + 1), Cell(cell.value + 1))

    @rule(entry=tensors, value=st.integers(0, 9))
    def write(self, entry, value):
        tensor, cell = entry
        tensor.fill_(float(value))
        cell.value = value

    @rule(entry=tensors)
    def resize(self, entry):
        tensor, _ = entry
        try:
            tensor.untyped_storage().resize_(tensor.untyped_storage().nbytes() * 4)
        except RuntimeError as error:
            assert "not resizable" in str(error)  # noqa: PT017 (either outcome is right)

    @rule(entry=consumes(tensors), deed=st.sampled_from(["data", "set_", "drop"]))
    def let_go_of_a_tensor(self, entry, deed):
        self._forget(entry[0])
        if deed == "data":
            entry[0].data = torch.zeros(1)
        elif deed == "set_":
            entry[0].set_(torch.zeros(1))

    @rule(entry=consumes(arrays), deed=st.sampled_from(["delete", "donate", "drop"]))
    def let_go_of_an_array(self, entry, deed):
        self._forget(entry[0])
        if entry[0].is_deleted():
            return
        if deed == "delete":
            entry[0].delete()
        elif deed == "donate":
            jax.block_until_ready(_donate(entry[0]))

    def _forget(self, value):
        self.alive = [entry for entry in self.alive if entry[0] is not value]

    @rule()
    def collect(self):
        gc.collect(1)  # what the machine made; the frameworks' own objects would take a second each time
        torch.full((SIZE,), -1.0)
        jnp.full(SIZE, -1.0).block_until_ready()

    @invariant()
    def every_value_is_what_the_model_says(self):
        for value, cell in self.alive:
            assert np.all(np.asarray(value) == cell.value)


_donate = jax.jit(lambda a: a * 0 - 1, donate_argnums=0)

TestLifetimes = Lifetimes.TestCase
TestLifetimes.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
