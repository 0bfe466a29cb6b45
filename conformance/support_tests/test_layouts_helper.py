"""The suite's own layouts: each is what its name says, and holds the values that it was made from."""

import pytest
import torch
from tjtest import dtypes, layouts
from tjtest.shapes import EMPTY, SHAPES
from tjtest.values import as_numpy, sample

CASES = [(layout, shape) for layout in layouts.LAYOUTS for shape in SHAPES]


@pytest.mark.parametrize(("layout", "shape"), CASES)
def test_shape_and_dtype_stay_and_values_stay_unless_repeated(layout: str, shape: str) -> None:
    source = sample("complex64" if layout == "conjugated" else "float32", SHAPES[shape])
    made = layouts.LAYOUTS[layout]
    if not made.applies(source):
        assert layout not in {"contiguous", "misaligned", "larger_storage"}
        return
    laid_out = made.make(source)
    assert laid_out.shape == source.shape
    assert laid_out.dtype == source.dtype
    if layout not in layouts.REPEATING:
        assert (as_numpy(laid_out) == as_numpy(source)).all()


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_each_layout_applies_to_some_shape(layout: str) -> None:
    dtype = "complex64" if layout == "conjugated" else "float32"
    assert any(layouts.LAYOUTS[layout].applies(sample(dtype, shape)) for shape in SHAPES.values())


def _make(layout: str, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return layouts.LAYOUTS[layout].make(sample(name, shape))


def test_each_layout_is_what_its_name_says() -> None:
    images, volumes, matrix = SHAPES["images"], SHAPES["volumes"], SHAPES["matrix"]
    assert _make("transposed", "float32", matrix).stride() == (1, 3)
    assert _make("permuted", "float32", images).stride() == (1, 2, 6, 24)
    assert _make("channels_last", "float32", images).is_contiguous(memory_format=torch.channels_last)
    assert _make("channels_last_3d", "float32", volumes).is_contiguous(memory_format=torch.channels_last_3d)
    assert _make("strided", "float32", matrix).stride() == (8, 2)
    assert _make("columns", "float32", matrix).storage_offset() == 1
    assert _make("rows", "float32", matrix).storage_offset() == 4
    assert _make("misaligned", "float32", matrix).data_ptr() % 64 != 0
    assert _make("larger_storage", "float32", matrix).untyped_storage().nbytes() > 4 * 12
    assert _make("odd_strides", "float32", (1, 4)).stride() == (997, 1)
    assert _make("expanded", "float32", matrix).stride() == (0, 1)
    assert _make("expanded_scalar", "float32", matrix).stride() == (0, 0)
    assert _make("overlapping", "float32", matrix).stride() == (1, 1)
    assert _make("conjugated", "complex64", matrix).is_conj()
    assert _make("negated", "float32", matrix).is_neg()


def test_the_oracle_is_fresh_and_resolved() -> None:
    negated = _make("negated", "float32", (3, 4))
    copy = layouts.contiguous_copy(negated)
    assert copy.is_contiguous()
    assert not copy.is_neg()
    assert copy.data_ptr() != negated.data_ptr()
    assert torch.equal(copy, sample("float32", (3, 4)))


def test_shapes_hold_the_kinds_that_are_forgotten() -> None:
    assert () in SHAPES.values()
    assert set(EMPTY) == {"empty", "empty_rows", "empty_columns", "empty_middle"}


@pytest.mark.parametrize("name", [*dtypes.COMMON, *dtypes.FLOAT8S])
def test_samples_are_exact_in_every_dtype(name: str) -> None:
    t = sample(name, (9,))
    assert t.dtype == dtypes.TORCH[name]
    assert as_numpy(t).shape == (9,)
    assert len(set(as_numpy(t).tolist())) == (2 if name == "bool" else 7)
