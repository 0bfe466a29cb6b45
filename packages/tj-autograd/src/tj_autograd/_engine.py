"""The engine: ``torch.autograd.Function``s over a flat JAX function.

The general one, :class:`JaxCall`, is closed under derivatives: its ``backward``, ``jvp`` and ``vmap`` apply it again
over ``jax.vjp``, ``jax.jvp`` and ``jax.vmap`` of the flat function, so ``torch.func``, forward mode and
``create_graph`` compose to any order. Plain reverse mode, the common case, takes :class:`PlainCall`, which computes
forward and backward once each from the residuals of one trace, and hands over to the general one where more is asked.

NOTE [No computation outlives its call]: JAX dispatches asynchronously, and the arrays made here share the memory of
tensors that torch may write again as soon as control returns to it. Every output of a computation is turned into a
tensor before the call returns, which waits for it, and nothing but outputs is computed; so the inputs have been read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import jax
import torch

from ._compat import (
    enable_x64,
    in_dispatch_mode,
    in_old_batching,
    is_plain,
    keeps_graph,
    saves_unwatched,
    untraced,
    x64_enabled,
)
from ._core import core
from ._flat import Flat
from ._legacy import Peeled, is_batched, over_batch
from ._operator import Callee, handle_of, operator, outputs_of
from ._outputs import Arrays, Constants, Mask, Outputs
from ._reverse import Plan
from ._sharing import SharedArrays, Tensors, to_jax, to_torch

Gradients: TypeAlias = tuple[torch.Tensor | None, ...]


class Call:
    """One call of a flat function: what goes in beside the tensors, and what comes out beside them."""

    __slots__ = ("constants", "flat", "meta", "opaque", "shared", "smooth", "total", "x64")

    def __init__(self, flat: Flat, constants: Constants, x64: bool, shared: SharedArrays | None = None) -> None:
        self.flat, self.constants, self.x64, self.shared = flat, constants, x64, shared
        self.meta: Any = None
        self.opaque: tuple[Any, ...] = ()
        self.smooth = self.total = 0  # how many outputs are differentiable, and how many there are

    def run(self, tensors: Tensors) -> Tensors:
        """Execute; the tensors are the smooth outputs, then the rest."""
        return self.take(self.flat.run(self.constants, self.arrays(tensors)))

    def arrays(self, tensors: Iterable[torch.Tensor], places: Iterable[int] | None = None) -> Arrays:
        """The arrays over tensors that are the arguments at ``places``, by default all of them."""
        if self.shared is None:
            return to_jax(tensors)
        get = self.shared.get
        pairs = enumerate(tensors) if places is None else zip(places, tensors, strict=True)
        return tuple([get(place, tensor, self.x64) for place, tensor in pairs])

    def record(self, tensors: Tensors) -> Tensors:
        """:meth:`run` as one operator, for a dispatch mode to see; see :mod:`._operator`."""
        handle = handle_of(Callee(self.flat, self.constants, self.x64))
        out, _ = outputs_of(handle, tensors)
        self.meta, self.smooth, self.total = out.meta, len(out.smooth), len(out.smooth) + len(out.rest)
        return tuple(operator(_execute)(handle, list(tensors)))

    def take(self, out: Outputs) -> Tensors:
        """The outputs as tensors; the rest of ``out`` is kept here."""
        self.meta, self.opaque = out.meta, out.opaque
        self.smooth, self.total = len(out.smooth), len(out.smooth) + len(out.rest)
        if out.opaque:  # See NOTE [No computation outlives its call].
            jax.block_until_ready(out.opaque)
        return to_torch(out.smooth + out.rest)

    def derived(self, flat: Flat, tensors: Tensors) -> Tensors:
        """Apply ``flat``, a transform of this call's function, to ``tensors``."""
        return apply(Call(flat, self.constants, self.x64), tensors)

    def batched(self, flat: Flat, tensors: Tensors) -> Tensors:
        """Apply ``flat``, this call's function with a batch axis; what comes out beside the tensors is this call's."""
        call = Call(flat, self.constants, self.x64)
        out = apply(call, tensors)
        self.meta, self.opaque, self.smooth, self.total = call.meta, call.opaque, call.smooth, call.total
        return out

    def run_batched(self, peeled: Peeled) -> Tensors:
        """:meth:`run` over a leading batch axis; the outputs have it too."""
        axes = tuple([0 if batched else None for batched in peeled.batched])
        return self.batched(self.flat.vmap(axes, peeled.size), peeled.tensors)

    def precision(self) -> AbstractContextManager[Any]:
        """The forward's ``jax_enable_x64``, which another thread or the end of a ``with`` block may have left."""
        return nullcontext() if self.x64 == x64_enabled() else enable_x64(self.x64)


def _execute(flat: Flat, constants: Constants, tensors: Tensors) -> Tensors:
    out = flat.run(constants, to_jax(tensors))
    return to_torch(out.smooth + out.rest)


def apply(call: Call, tensors: Tensors) -> Tensors:
    """Run ``call`` with everything that torch may ask of it afterwards."""
    if not tensors:  # what torch would record of it is a constant, and it is one
        return call.run(tensors)
    result: Tensors
    if not is_plain():
        result = JaxCall.apply(call, *tensors)  # type: ignore[no-untyped-call]
        return result
    mask = tuple([t.requires_grad for t in tensors])
    if True not in mask or not torch.is_grad_enabled():
        return call.run(tensors)
    result = PlainCall.apply(call, mask, *tensors)  # type: ignore[no-untyped-call]
    return result


def _given(values: Sequence[torch.Tensor | None]) -> tuple[Mask, Tensors]:
    """Which values are there, and those that are."""
    return tuple([v is not None for v in values]), tuple([v for v in values if v is not None])


def _spread(needed: Mask, gradients: Tensors, before: int) -> Gradients:
    """The gradients at the places of ``needed``, after ``before`` arguments that have none."""
    left = iter(gradients)
    return (*[None] * before, *[next(left) if need else None for need in needed])


class JaxCall(torch.autograd.Function):
    """``(call, *tensors) -> tensors``, under every transform of torch."""

    @staticmethod
    def forward(call: Call, *tensors: torch.Tensor) -> Tensors:
        if in_old_batching() and any(is_batched(t) for t in tensors):
            return over_batch(call.run_batched, tensors)
        return call.record(tensors) if in_dispatch_mode() else call.run(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        ctx.call, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[ctx.call.smooth :])
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    @untraced
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Gradients:
        call: Call = ctx.call
        needed: Mask = tuple(ctx.needs_input_grad[1:])
        present, given = _given(cotangents[: call.smooth])
        if not given:
            return (None,) * (1 + len(needed))
        with call.precision():
            return _spread(needed, call.derived(call.flat.vjp(needed, present), (*ctx.saved_tensors, *given)), 1)

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> Gradients:
        call: Call = ctx.call
        mask, given = _given(tangents[1:])
        out = call.derived(call.flat.jvp(mask), (*ctx.saved_tensors, *given))
        return (*out, *[None] * (call.total - call.smooth))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], call: Call, *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        out = call.batched(call.flat.vmap(tuple(in_dims[1:]), info.batch_size), tensors)
        return out, (0,) * len(out)


class PlainCall(torch.autograd.Function):
    """``(call, mask, *tensors) -> tensors`` for gradients of the tensors in ``mask``, while no transform is at work.

    ``forward`` takes the context itself, as a Function with ``setup_context`` binds its arguments by inspection on
    each call.
    """

    @staticmethod
    def forward(ctx: Any, call: Call, mask: Mask, *tensors: torch.Tensor) -> Tensors:
        out, residuals, opaque, plan = call.flat.forward(mask)(call.constants, call.arrays(tensors))
        output = call.take(out)
        ctx.call, ctx.plan, ctx.opaque = call, plan, opaque
        ctx.residuals, visible = _hold(residuals)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[call.smooth :])
        _save(ctx, plan, tensors, output, visible)
        return output

    @staticmethod
    @untraced
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Gradients:
        call: Call = ctx.call
        needed: Mask = tuple(ctx.needs_input_grad[2:])
        present, given = _given(cotangents[: call.smooth])
        if not given:
            return (None,) * (2 + len(needed))
        saved: Tensors = ctx.saved_tensors  # raises if one was changed in place, or freed
        with call.precision():
            if torch.is_grad_enabled() or not is_plain():
                flat = call.flat.vjp(needed, present)
                return _spread(needed, call.derived(flat, (*_inputs(ctx, saved), *given)), 2)
            backward = ctx.plan.backward(needed, present)
            gradients = to_torch(backward(call.constants, _arrays(ctx, saved), ctx.opaque, to_jax(given)))
        if not keeps_graph():
            ctx.unread = ctx.residuals = ()
        return _spread(needed, gradients, 2)


def _hold(residuals: Arrays) -> tuple[Arrays, Tensors]:
    """The residuals as arrays to keep, or as tensors to save.

    NOTE [Residuals are tensors where somebody looks]: saved-tensor hooks (checkpointing, offloading) must see them.
    Else they stay arrays, which no one can write to, and are let go of when torch frees what it saved.
    """
    if not saves_unwatched():
        return (), to_torch(residuals)
    jax.block_until_ready(residuals)  # See NOTE [No computation outlives its call].
    return residuals, ()


def _save(ctx: Any, plan: Plan, tensors: Tensors, output: Tensors, residuals: Tensors) -> None:
    """Save what ``plan`` reads; the inputs that only a second derivative reads are kept beside it.

    NOTE [Inputs the backward does not read]: torch refuses a backward when a saved tensor was changed in place. Inputs
    that the plan does not read must not be saved so, or adding to a tensor after ``x + y`` would be refused, and so
    would updating the buffers of a stateful module. ``create_graph`` reads them, and checks their version itself.
    """
    ctx.save_for_backward(*[tensors[i] for i in plan.arrays], *[output[i] for i in plan.outputs], *residuals)
    ctx.unread = [(i, t, t._version) for i, t in enumerate(tensors) if i not in plan.arrays]


def _arrays(ctx: Any, saved: Tensors) -> Arrays:
    """What :func:`_save` saved, for JAX."""
    places = ctx.plan.arrays
    inputs, others = saved[: len(places)], saved[len(places) :]
    return *ctx.call.arrays(inputs, places), *to_jax(others), *ctx.residuals


def _inputs(ctx: Any, saved: Tensors) -> Tensors:
    """All inputs of the forward, from what :func:`_save` kept."""
    places = ctx.plan.arrays
    inputs = dict(zip(places, saved[: len(places)], strict=True))
    for i, tensor, version in ctx.unread:
        if tensor._version != version:
            raise core.GradientError(
                f"an input of shape {tuple(tensor.shape)} was modified by an inplace operation: it is at version "
                f"{tensor._version}, and the second derivative needs version {version}; clone it before changing it"
            )
        inputs[i] = tensor
    return tuple([inputs[i] for i in range(len(inputs))])
