"""Batches of samples that hold JAX arrays, in this process and in workers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_equal
from torch.utils.data import DataLoader, Dataset, default_collate

tj_core = subject("tj_core")


class Rows(Dataset):
    """Samples without JAX, as workers should make them."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"x": np.full(3, index, dtype=np.float32), "y": index}


def test_jax_arrays_are_stacked():
    batch = tj_core.collate([{"x": jnp.full(3, i), "y": (i, "s")} for i in range(4)])
    assert_equal(batch["x"], torch.arange(4, dtype=torch.int32)[:, None].expand(4, 3))
    assert_equal(batch["y"][0], torch.arange(4))
    assert list(batch["y"][1]) == ["s"] * 4


def test_everything_else_is_as_in_torch():
    samples = [{"x": torch.ones(2) * i, "n": np.float32(i), "a": np.ones(2), "f": 0.5, "b": b"raw"} for i in range(3)]
    ours, torchs = tj_core.collate(samples), default_collate(samples)
    assert ours["b"] == torchs["b"]
    for key in ("x", "n", "a", "f"):
        assert_equal(ours[key], torchs[key])


def test_a_batch_owns_its_memory():
    array = jnp.zeros(16)
    batch = tj_core.collate([array])
    batch.fill_(1.0)
    assert_equal(array, jnp.zeros(16))


def test_typed_keys_are_refused():
    with pytest.raises(tj_core.UnsupportedKindError, match="key_data"):
        tj_core.collate([jax.random.key(0)])


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_workers_make_the_batches_and_the_parent_the_arrays(start):
    jnp.ones(3).block_until_ready()  # JAX's threads are running before the fork
    loader = DataLoader(
        Rows(), batch_size=4, num_workers=1, collate_fn=tj_core.collate, multiprocessing_context=start, timeout=120
    )
    batches = list(map(tj_core.torch_to_jax, loader))
    assert [b["y"].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all(isinstance(b["x"], jax.Array) and b["x"].shape == (4, 3) for b in batches)
