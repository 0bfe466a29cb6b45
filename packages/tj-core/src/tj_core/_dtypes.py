"""The dtypes of torch and JAX, and how each crosses. The table in the documentation is made from this one.

Every row has the same name in both frameworks. What the exchange protocol of the installed versions carries is not
written down here but tried, once per dtype, by :mod:`._exchange`.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import torch

from ._errors import UnsupportedDtypeError

Passage = Literal["share", "narrow", "bits", "refuse"]


class Row(NamedTuple):
    """One dtype: ``passage`` says how it crosses.

    ``share``: by reference. ``narrow``: by reference while ``jax_enable_x64`` is on, else as ``narrowed`` by copy.
    ``bits``: by reference where the exchange protocol of the installed versions has it, else the bits are copied.
    ``refuse``: the other framework has no such dtype, or would take the bits for another one.
    """

    name: str
    passage: Passage
    narrowed: str | None = None
    reason: str = ""


_ONLY_TORCH = "JAX has no such dtype"
_ONLY_JAX = "torch has no such dtype"
_PACKED = "sub-byte values are laid out differently in the two frameworks"
_QUANTIZED = "JAX has no quantized arrays; dequantize() first"

TABLE: tuple[Row, ...] = (
    Row("bool", "share"),
    Row("uint8", "share"),
    Row("int8", "share"),
    Row("int16", "share"),
    Row("int32", "share"),
    Row("int64", "narrow", "int32"),
    Row("uint16", "share"),
    Row("uint32", "share"),
    Row("uint64", "narrow", "uint32"),
    Row("float16", "share"),
    Row("bfloat16", "share"),
    Row("float32", "share"),
    Row("float64", "narrow", "float32"),
    Row("complex64", "share"),
    Row("complex128", "narrow", "complex64"),
    Row("float8_e4m3fn", "bits"),
    Row("float8_e4m3fnuz", "bits"),
    Row("float8_e5m2", "bits"),
    Row("float8_e5m2fnuz", "bits"),
    Row("float8_e8m0fnu", "bits"),
    Row("float8_e3m4", "refuse", reason=_ONLY_JAX),
    Row("float8_e4m3", "refuse", reason=_ONLY_JAX),
    Row("float8_e4m3b11fnuz", "refuse", reason=_ONLY_JAX),
    Row("float4_e2m1fn", "refuse", reason=_PACKED),
    Row("float4_e2m1fn_x2", "refuse", reason=_PACKED),
    Row("float6_e2m3fn", "refuse", reason=_ONLY_JAX),
    Row("float6_e3m2fn", "refuse", reason=_ONLY_JAX),
    Row("complex32", "refuse", reason=_ONLY_TORCH),
    Row("bcomplex32", "refuse", reason=_ONLY_TORCH),
    *(Row(f"{kind}{width}", "refuse", reason=_PACKED) for kind in ("int", "uint") for width in range(1, 8)),
    *(Row(name, "refuse", reason=_ONLY_TORCH) for name in ("bits8", "bits16", "bits1x8", "bits2x4", "bits4x2")),
    *(Row(name, "refuse", reason=_QUANTIZED) for name in ("qint8", "qint32", "quint8", "quint4x2", "quint2x4")),
)


def _torch_dtype(name: str) -> torch.dtype | None:
    dtype = getattr(torch, name, None)
    return dtype if isinstance(dtype, torch.dtype) else None


def _numpy_dtype(name: str) -> np.dtype[np.generic] | None:
    scalar = getattr(jax.numpy, name, None)
    return None if scalar is None else np.dtype(scalar)


# Only names that the installed versions know.
ROW_OF_TORCH: dict[torch.dtype, Row] = {d: row for row in TABLE if (d := _torch_dtype(row.name)) is not None}
TORCH_TO_JAX: dict[torch.dtype, np.dtype[np.generic]] = {
    d: n for d, row in ROW_OF_TORCH.items() if row.passage != "refuse" and (n := _numpy_dtype(row.name)) is not None
}
JAX_TO_TORCH: dict[np.dtype[np.generic], torch.dtype] = {n: d for d, n in TORCH_TO_JAX.items()}

WIDE: dict[torch.dtype, torch.dtype] = {
    d: getattr(torch, row.narrowed) for d, row in ROW_OF_TORCH.items() if row.narrowed is not None
}


def is_jax_dtype(value: Any) -> bool:
    """Whether this is a dtype as JAX writes it: ``jnp.float32`` or ``array.dtype``."""
    return isinstance(value, np.dtype | type(jax.numpy.float32))


def jax_dtype_of(dtype: torch.dtype) -> np.dtype[np.generic]:
    """The dtype of the array that a tensor of this dtype becomes."""
    if dtype not in TORCH_TO_JAX:
        raise UnsupportedDtypeError(f"value: {dtype} has no counterpart in JAX: {reason_refused(name_of(dtype))}")
    wide = dtype in WIDE and not jax.config.read("jax_enable_x64")
    return TORCH_TO_JAX[WIDE[dtype] if wide else dtype]


def torch_dtype_of(dtype: Any) -> torch.dtype:
    """The dtype of the tensor that an array of this dtype becomes."""
    found = JAX_TO_TORCH.get(np.dtype(dtype))
    if found is None:
        name = np.dtype(dtype).name
        raise UnsupportedDtypeError(f"value: {name} has no counterpart in torch: {reason_refused(name)}")
    return found


def name_of(dtype: torch.dtype) -> str:
    """Its name in the table."""
    return str(dtype).removeprefix("torch.")


def reason_refused(name: str) -> str:
    """Why the dtype called ``name`` cannot cross."""
    return next((row.reason for row in TABLE if row.name == name), "it is not in the table of dtypes") or "unknown"
