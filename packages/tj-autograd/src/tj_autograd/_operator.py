"""The operator that stands for a call where torch records or simulates operators instead of executing them.

Under a dispatch mode (``make_fx``, ``torch.func.linearize``, fake tensors, AOTAutograd, a FLOP counter) a tensor may
have no values, and what is computed behind torch's back would be taken for a constant. There a call is one operator,
``(handle, tensors) -> tensors``, whose handle names the flat function and its constants.

A recorded program holds nothing but the handle. So what a handle names is kept as long as the process lives; the same
function with the same constants has the same handle.
"""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import torch

from ._compat import RECORDS_SIZES, enable_x64
from ._core import core
from ._flat import Flat
from ._outputs import CACHE_SIZE, Constants, Outputs
from ._shapes import Pattern, Sizes, avals, evaluate, fixed, names_in, pattern_of, torch_dtype

Tensors = tuple[torch.Tensor, ...]
Execute = Callable[[Flat, Constants, Tensors], Tensors]


class Callee(NamedTuple):
    """What a handle names."""

    flat: Flat
    constants: Constants
    x64: bool

    def key(self) -> Hashable:
        """Equal for callees that compute the same; arrays count by identity."""
        values = [(type(c), c) if isinstance(c, (int, float, complex)) else id(c) for c in self.constants]
        return id(self.flat), self.x64, *values

    def trace(self, pattern: Pattern) -> Outputs:
        """What the function returns for arrays like these, with ``jax.ShapeDtypeStruct`` for arrays."""
        with enable_x64(self.x64):
            out: Outputs = jax.eval_shape(self.flat.run, self.constants, avals(pattern))
        if out.opaque:
            raise core.UnsupportedKindError(
                "fn: it returns a PRNG key, which has no place in a program that torch records; "
                "return jax.random.key_data(key) instead"
            )
        return out


# NOTE [Handles differ between processes]: torch keeps compiled programs on disk, and finds one again by its text. A
# handle is part of the text, and must not name another function in another process.
_lock = threading.Lock()
_first = random.SystemRandom().getrandbits(40) << 20
_callees: dict[int, Callee] = {}
_handles: dict[Hashable, int] = {}


def handle_of(callee: Callee) -> int:
    """The number of ``callee``, from now on."""
    with _lock:
        handle = _handles.setdefault(callee.key(), _first + len(_callees))
        _callees.setdefault(handle, callee)
        return handle


def callee_of(handle: int) -> Callee:
    """What ``handle`` names."""
    callee = _callees.get(handle)
    if callee is None:
        raise core.UnsupportedKindError(
            f"handle: no JAX function is called {handle} here; a program that calls one runs in the process that "
            "recorded it: record it again here"
        )
    return callee


@functools.lru_cache(CACHE_SIZE)
def _traced(handle: int, pattern: Pattern) -> Outputs:
    return callee_of(handle).trace(pattern)


@functools.lru_cache(CACHE_SIZE)
def _traced_for_any_size(handle: int, pattern: Pattern) -> Outputs | None:
    """None if the function has to know a size, or one that comes out has a notation that we cannot read."""
    example = dict.fromkeys(names_in(pattern), 5)
    try:
        out = _traced(handle, pattern)
        [evaluate(o.shape, example) for o in out.smooth + out.rest]
    except core.UnsupportedKindError:
        raise
    except Exception:  # JAX has many errors for this; one that is not about sizes comes again without symbols
        return None
    return out


def outputs_of(handle: int, tensors: Tensors) -> tuple[Outputs, Sizes]:
    """What the function returns for tensors like these, and the sizes that symbols in the shapes stand for."""
    pattern, sizes = pattern_of(tensors)
    out = _traced_for_any_size(handle, pattern) if sizes and RECORDS_SIZES else None
    return (_traced(handle, fixed(pattern, sizes)), {}) if out is None else (out, sizes)


@functools.cache
def operator(execute: Execute) -> Any:
    """The operator, registered when it is first needed; its namespace is this package's path, vendored or not."""

    def call(handle: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        flat, constants, x64 = callee_of(handle)
        with enable_x64(x64):
            return list(execute(flat, constants, tuple(tensors)))

    def fake(handle: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        out, sizes = outputs_of(handle, tuple(tensors))
        device = tensors[0].device
        return [
            torch.empty(evaluate(o.shape, sizes), dtype=torch_dtype(o.dtype), device=device)
            for o in out.smooth + out.rest
        ]

    # The annotations of a nested function are strings here, and the schema is read from them.
    call.__annotations__ = {"handle": int, "tensors": list[torch.Tensor], "return": list[torch.Tensor]}
    name = f"{(__package__ or '').replace('.', '_')}::call"
    definition = torch.library.custom_op(name, call, mutates_args=())
    definition.register_fake(fake)
    definition.register_autograd(functools.partial(_backward, definition), setup_context=_remember)
    return definition


def _remember(ctx: Any, inputs: tuple[int, list[torch.Tensor]], output: list[torch.Tensor]) -> None:
    ctx.handle, tensors = inputs
    ctx.smooth = len(outputs_of(ctx.handle, tuple(tensors))[0].smooth)
    ctx.mask = tuple([t.requires_grad for t in tensors])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)


def _backward(definition: Any, ctx: Any, cotangents: list[torch.Tensor | None]) -> tuple[None, list[Any]]:
    """The gradients in a recorded program: once more the operator, for the pullback of the function.

    The engine's own Functions call the operator below autograd, and have a backward of theirs.
    """
    callee = callee_of(ctx.handle)
    present = tuple([c is not None for c in cotangents[: ctx.smooth]])
    if True not in present:
        return None, [None] * len(ctx.mask)
    handle = handle_of(callee._replace(flat=callee.flat.vjp(ctx.mask, present)))
    given = [c for c in cotangents[: ctx.smooth] if c is not None]
    gradients = iter(definition(handle, [*ctx.saved_tensors, *given]))
    return None, [next(gradients) if needed else None for needed in ctx.mask]
