"""What a function returns for tensors without values: JAX traces it for their shapes.

A size that torch knows by a symbol only ("s0", any batch) is a symbol in JAX's trace too, and the sizes that come out
are expressions in it; one trace is good for all sizes. A function that asks more than a symbol can answer (whether it
is even, whether it is above 10) is traced for the size that torch has at hand, and torch notes that the program holds
for that size alone.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.export
import jax.numpy as jnp
import torch

# The shape and dtype of one tensor; a symbolic size is an expression in "d0", "d1", ..., the same for the same size.
Pattern: TypeAlias = tuple[tuple[tuple[int | str, ...], torch.dtype], ...]
Sizes: TypeAlias = dict[str, Any]

_NAME = re.compile(r"[A-Za-z_]\w*")


def pattern_of(tensors: tuple[torch.Tensor, ...]) -> tuple[Pattern, Sizes]:
    """The shapes and dtypes of ``tensors``, and the sizes that the names in them stand for."""
    symbolic = {str(s): s for t in tensors for s in t.shape if isinstance(s, torch.SymInt)}
    ours: dict[str, str] = {}  # what torch writes -> what we write
    for text in sorted(symbolic, key=_is_composed):  # names before what is composed of them
        composed = _is_composed(text) and all(name in ours for name in _NAME.findall(text))
        ours[text] = _NAME.sub(lambda name: ours[name[0]], text) if composed else f"d{len(ours)}"
    sizes = {name: symbolic[text] for text, name in ours.items() if not _is_composed(name)}
    pattern = [(tuple([ours.get(str(s)) or int(s) for s in t.shape]), t.dtype) for t in tensors]
    return tuple(pattern), sizes


def _is_composed(text: str) -> bool:
    return not _NAME.fullmatch(text)


def fixed(pattern: Pattern, sizes: Sizes) -> Pattern:
    """``pattern`` for the sizes at hand; torch notes that they are needed."""
    return tuple([(tuple([int(size) for size in evaluate(shape, sizes)]), dtype) for shape, dtype in pattern])


def avals(pattern: Pattern) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Arrays of such shapes and dtypes, in the 64-bit mode that JAX has now."""
    names = sorted(names_in(pattern))
    symbols = dict(zip(names, jax.export.symbolic_shape(",".join(names)), strict=True)) if names else {}
    return tuple([jax.ShapeDtypeStruct(tuple(evaluate(shape, symbols)), jax_dtype(d)) for shape, d in pattern])


def names_in(pattern: Pattern) -> set[str]:
    """The names of the sizes that ``pattern`` leaves open."""
    return {name for shape, _ in pattern for size in shape for name in _NAME.findall(str(size))}


def jax_dtype(dtype: torch.dtype) -> Any:
    return jax.dtypes.canonicalize_dtype(jnp.dtype(str(dtype).removeprefix("torch.")))


def torch_dtype(dtype: Any) -> torch.dtype:
    found: torch.dtype = getattr(torch, jnp.dtype(dtype).name)
    return found


# The functions in JAX's notation for sizes, as `jax.export.symbolic_shape` reads it; a power is written `d0^2` there.
_FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "max": torch.sym_max,
    "min": torch.sym_min,
}


def evaluate(shape: tuple[Any, ...], sizes: Sizes) -> list[Any]:
    """A shape, of JAX's or of a pattern, for these sizes."""
    scope = {"__builtins__": {}, **_FUNCTIONS, **sizes}
    return [s if isinstance(s, int) else eval(str(s).replace("^", "**"), scope) for s in shape]
