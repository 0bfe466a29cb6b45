"""Arbitrary trees of arbitrary tensors: the round trip is exact to the bit, and sharing is what the pointers say."""

from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import hypothesis.strategies as st
import jax
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from tjtest import dtypes
from tjtest.layouts import contiguous_copy
from tjtest.precision import x64_mode
from tjtest.subject import subject

tj_core = subject("tj_core")
t2j, j2t, shares = tj_core.torch_to_jax, tj_core.jax_to_torch, tj_core.shares_memory

Pair = namedtuple("Pair", ["left", "right"])
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=100, derandomize=True)


@st.composite
def tensors(draw: st.DrawFn, names: tuple[str, ...] = (*dtypes.COMMON, *dtypes.FLOAT8S)) -> torch.Tensor:
    """A view of random bytes: any dtype, up to four dimensions, any strides (0 too) and offset, larger storage."""
    dtype = dtypes.TORCH[draw(st.sampled_from(names))]
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    strides = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 8, 12, 16]), min_size=len(shape), max_size=len(shape)))
    offset = draw(st.integers(0, 20))
    if draw(st.booleans()):  # dense: an order of the dimensions
        order, step = draw(st.permutations(range(len(shape)))), 1
        for axis in order:
            strides[axis], step = step, step * max(shape[axis], 1)
    reach = offset + sum(max(size - 1, 0) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    seed = draw(st.integers(0, 2**31))
    return _random_storage(dtype, reach + draw(st.integers(0, 3)), seed).as_strided(shape, strides, offset)


def _random_storage(dtype: torch.dtype, count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, (count,), generator=generator).bool()
    width = torch.empty((), dtype=dtype).element_size()
    # Random bits: NaNs with payloads, infinities, denormal numbers and -0.0 among them.
    return torch.randint(0, 256, (count * width,), dtype=torch.uint8, generator=generator).view(dtype)


def containers(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.one_of(st.text(max_size=3), st.integers(), st.tuples(st.integers(), st.booleans()))
    mapping = st.dictionaries(keys, children, max_size=3)
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        mapping,
        mapping.map(OrderedDict),
        mapping.map(lambda d: defaultdict(list, d)),
        st.builds(Pair, children, children),
    )


others = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=3), st.just(torch.Size([2])), st.just(...))
trees = st.recursive(st.one_of(tensors(), others), containers, max_leaves=8)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    pair = [contiguous_copy(t).reshape(-1).view(torch.uint8) for t in (left, right)]
    return left.dtype == right.dtype and left.shape == right.shape and pair[0].equal(pair[1])


def assert_same(left: Any, right: Any) -> None:
    """The two trees have the same types, order, keys and leaves; tensors by their bits, all else by identity."""
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert same_bits(left, right)
    elif isinstance(left, dict):
        assert list(left) == list(right)
        assert getattr(left, "default_factory", None) is getattr(right, "default_factory", None)
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, list | tuple) and not isinstance(left, torch.Size):
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            assert_same(*pair)
    else:
        assert left is right


@given(trees)
@SETTINGS
def test_a_round_trip_of_any_tree_is_exact(tree):
    with x64_mode():
        assert_same(j2t(t2j(tree)), tree)


@given(trees)
@SETTINGS
def test_a_copied_round_trip_of_any_tree_is_exact(tree):
    with x64_mode():
        assert_same(j2t(t2j(tree, copy=True), copy=True), tree)


@pytest.mark.parametrize("way", ["private", "public"])
@given(tensor=tensors())
@SETTINGS
def test_sharing_is_what_the_pointers_say(way, tensor):
    from importlib import import_module

    with x64_mode(), import_module(f"{tj_core.__name__}._exchange").exchange(way):
        array = t2j(tensor)
        same_address = tensor.numel() > 0 and array.unsafe_buffer_pointer() == tensor.data_ptr()
        assert shares(tensor, array) is same_address
        try:
            alone = t2j(tensor, copy=False)
        except tj_core.SharingError:
            assert not same_address
        else:
            assert tensor.numel() == 0 or alone.unsafe_buffer_pointer() == tensor.data_ptr()
        assert not shares(tensor, t2j(tensor, copy=True))


@given(tensors(tuple(dtypes.NARROWED)))
@SETTINGS
@pytest.mark.filterwarnings("ignore:.*jax_enable_x64")
def test_without_x64_a_value_is_exact_or_an_error_or_rounded_as_torch_rounds(tensor):
    narrow = dtypes.TORCH[dtypes.NARROWED[str(tensor.dtype).removeprefix("torch.")]]
    try:
        back = j2t(t2j(tensor))
    except OverflowError:
        assert not _fits(tensor, narrow)
        return
    assert back.dtype == narrow
    assert same_bits(back, tensor.to(narrow)) or (tensor.is_floating_point() or tensor.is_complex())
    if not (tensor.is_floating_point() or tensor.is_complex()):
        assert back.tolist() == tensor.tolist()


def _fits(tensor: torch.Tensor, narrow: torch.dtype) -> bool:
    info = torch.iinfo(narrow)
    return all(info.min <= value <= info.max for value in tensor.reshape(-1).tolist())


@given(tensors(("float32", "int32")), st.sampled_from([jax.jit, lambda f: f]))
@SETTINGS
def test_jax_computes_on_the_values_that_crossed(tensor, transform):
    """Through a computation and not only through the bytes: layouts that JAX holds must be read rightly."""
    flipped = transform(lambda a: (a.T, a[..., None] * 1))(t2j(tensor))
    assert same_bits(j2t(flipped[0]), tensor.permute(tuple(reversed(range(tensor.ndim)))))
