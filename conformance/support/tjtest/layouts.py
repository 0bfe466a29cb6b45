"""Memory layouts: for each, how to lay out the values of a contiguous tensor that way.

``make`` gives a tensor of the same shape and dtype, with the same values unless the layout repeats elements
(``expanded``, ``overlapping``): compare with ``contiguous_copy`` of the result, which no bridge has touched.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch


class Layout(NamedTuple):
    """How to make the layout, and which contiguous tensors can be laid out so."""

    make: Callable[[torch.Tensor], torch.Tensor]
    applies: Callable[[torch.Tensor], bool]


def _embed(t: torch.Tensor, index: tuple[int | slice, ...], larger: tuple[int, ...]) -> torch.Tensor:
    view = torch.zeros(larger, dtype=t.dtype, device=t.device)[index]
    return view.copy_(t)


def _permuted(t: torch.Tensor) -> torch.Tensor:
    reverse = tuple(reversed(range(t.ndim)))
    return t.permute(reverse).contiguous().permute(reverse)


def _strided(t: torch.Tensor) -> torch.Tensor:
    return _embed(t, (..., slice(None, None, 2)), (*t.shape[:-1], 2 * t.shape[-1]))  # type: ignore[arg-type]


def _columns(t: torch.Tensor) -> torch.Tensor:
    return _embed(t, (..., slice(1, -1)), (*t.shape[:-1], t.shape[-1] + 2))  # type: ignore[arg-type]


def _rows(t: torch.Tensor) -> torch.Tensor:
    return _embed(t, (slice(1, -1),), (t.shape[0] + 2, *t.shape[1:]))


def _misaligned(t: torch.Tensor) -> torch.Tensor:
    return _embed(t.reshape(-1), (slice(1, None),), (t.numel() + 1,)).view(t.shape)


def _larger_storage(t: torch.Tensor) -> torch.Tensor:
    return _embed(t.reshape(-1), (slice(0, -64),), (t.numel() + 64,)).view(t.shape)


def _odd_strides(t: torch.Tensor) -> torch.Tensor:
    strides = [997 + axis if size == 1 else stride for axis, (size, stride) in enumerate(zip(t.shape, t.stride()))]  # noqa: B905
    return t.as_strided(t.shape, strides)


def _overlapping(t: torch.Tensor) -> torch.Tensor:
    rows, columns = t.shape[0], t.shape[1:].numel()
    source = t.reshape(-1)[: rows + columns - 1].clone()
    return source.unfold(0, columns, 1)[:rows].view(t.shape)


def _numpy_backed(t: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(t.numpy().copy())


def _negative(t: torch.Tensor) -> torch.Tensor:
    return torch.complex(torch.zeros_like(t), -t).conj().imag


def _filled(rank: int) -> Callable[[torch.Tensor], bool]:
    return lambda t: t.ndim >= rank and t.numel() > 0


def _of_rank(rank: int) -> Callable[[torch.Tensor], bool]:
    return lambda t: t.ndim == rank and t.numel() > 0


def _has_numpy(t: torch.Tensor) -> bool:
    return t.device.type == "cpu" and t.dtype not in {torch.bfloat16} and not str(t.dtype).startswith("torch.float8")


LAYOUTS: dict[str, Layout] = {
    "contiguous": Layout(torch.Tensor.clone, lambda t: True),
    "transposed": Layout(lambda t: t.mT.contiguous().mT, _filled(2)),
    "permuted": Layout(_permuted, _filled(2)),
    "channels_last": Layout(lambda t: t.contiguous(memory_format=torch.channels_last), _of_rank(4)),
    "channels_last_3d": Layout(lambda t: t.contiguous(memory_format=torch.channels_last_3d), _of_rank(5)),
    "strided": Layout(_strided, _filled(1)),
    "columns": Layout(_columns, _filled(1)),
    "rows": Layout(_rows, _filled(1)),
    "misaligned": Layout(_misaligned, lambda t: True),
    "larger_storage": Layout(_larger_storage, lambda t: True),
    "odd_strides": Layout(_odd_strides, lambda t: 1 in t.shape),
    "expanded": Layout(lambda t: t[:1].clone().expand(t.shape), _filled(1)),
    "expanded_scalar": Layout(lambda t: t.reshape(-1)[0].clone().expand(t.shape), _filled(1)),
    "overlapping": Layout(_overlapping, lambda t: t.ndim == 2 and t.numel() >= t.shape[0] + t.shape[1] - 1 > 0),
    "flipped_twice": Layout(lambda t: t.flip(0).flip(0), _filled(1)),
    "numpy_backed": Layout(_numpy_backed, _has_numpy),
    "conjugated": Layout(lambda t: t.conj().resolve_conj().conj(), torch.Tensor.is_complex),
    "negated": Layout(_negative, lambda t: t.dtype in {torch.float32, torch.float64}),
}
#: Layouts in which one element of memory stands for several of the tensor.
REPEATING = ("expanded", "expanded_scalar", "overlapping")


def contiguous_copy(t: torch.Tensor) -> torch.Tensor:
    """The values of ``t`` in fresh row-major memory, conjugation and sign resolved: the oracle for any layout."""
    return t.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
