"""The engine: one ``torch.autograd.Function`` over a flat JAX function.

Its ``backward``, ``jvp`` and ``vmap`` are the same Function over ``jax.vjp``, ``jax.jvp`` and ``jax.vmap`` of that flat
function, so ``torch.func``, forward mode and ``create_graph`` compose to any order. Plain reverse mode, the common
case, goes through :mod:`._reverse` instead and costs one forward and one backward.

NOTE [No computation outlives its call]: JAX dispatches asynchronously, and the arrays made here share the memory of
tensors that torch may write again as soon as control returns to it. Every output of a computation is turned into a
tensor before the call returns, which waits for it, and nothing but outputs is computed; so the inputs have been read.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import jax
import torch

from ._compat import enable_x64, is_plain, keeps_graph, x64_enabled
from ._core import core
from ._flat import Flat
from ._outputs import Arrays, Constants, Mask, Outputs
from ._reverse import Plan

Tensors: TypeAlias = tuple[torch.Tensor, ...]
Gradients: TypeAlias = tuple[torch.Tensor | None, ...]


class Call:
    """One call of a flat function: what goes in beside the tensors, and what comes out beside them."""

    __slots__ = ("constants", "flat", "mask", "meta", "opaque", "plan", "residuals", "smooth", "total", "x64")

    def __init__(self, flat: Flat, constants: Constants, x64: bool) -> None:
        self.flat, self.constants, self.x64 = flat, constants, x64
        self.mask: Mask | None = None  # the inputs that plain reverse mode may be asked for
        self.meta: Any = None
        self.opaque: tuple[Any, ...] = ()
        self.smooth = self.total = 0  # how many outputs are differentiable, and how many there are
        self.plan: Plan | None = None
        self.residuals: tuple[Tensors, tuple[Any, ...]] = ((), ())

    def run(self, tensors: Tensors) -> Tensors:
        """Execute; the tensors are the smooth outputs, then the rest."""
        arrays = to_jax(tensors)
        if self.mask is None:
            return self._take(self.flat.run(self.constants, arrays))
        out, residuals, opaque, self.plan = self.flat.forward(self.mask)(self.constants, arrays)
        self.residuals = to_torch(residuals), opaque
        return self._take(out)

    def _take(self, out: Outputs) -> Tensors:
        self.meta, self.opaque = out.meta, out.opaque
        self.smooth, self.total = len(out.smooth), len(out.smooth) + len(out.rest)
        if out.opaque:  # See NOTE [No computation outlives its call].
            jax.block_until_ready(out.opaque)  # type: ignore[no-untyped-call]
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


def to_jax(tensors: Sequence[torch.Tensor]) -> Arrays:
    return tuple([core.torch_to_jax(t) for t in tensors])


def to_torch(arrays: Sequence[jax.Array]) -> Tensors:
    return tuple([core.jax_to_torch(a) for a in arrays])


def apply(call: Call, tensors: Tensors) -> Tensors:
    """Run ``call`` with everything torch may ask of it afterwards."""
    if torch.is_grad_enabled() and is_plain():
        mask = tuple([t.requires_grad for t in tensors])
        call.mask = mask if True in mask else None
    result: Tensors = JaxCall.apply(call, *tensors)  # type: ignore[no-untyped-call]
    return result


def _precision(call: Call) -> AbstractContextManager[Any]:
    """The forward's ``jax_enable_x64``, which another thread or the end of a ``with`` block may have left."""
    return nullcontext() if call.x64 == x64_enabled() else enable_x64(call.x64)


class JaxCall(torch.autograd.Function):
    """``(call, *tensors) -> tensors``."""

    @staticmethod
    def forward(call: Call, *tensors: torch.Tensor) -> Tensors:
        return call.run(tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
        call: Call = inputs[0]
        tensors: Tensors = inputs[1:]
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[call.smooth :])
        ctx.save_for_forward(*tensors)
        if call.plan is None:
            ctx.save_for_backward(*tensors)
        else:
            _save(ctx, call, call.plan, tensors, output)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Gradients:
        call: Call = ctx.call
        needed: Mask = tuple(ctx.needs_input_grad[1:])
        present = tuple([c is not None for c in cotangents[: call.smooth]])
        if not any(present):
            return (None,) * (1 + len(needed))
        given = tuple([c for c in cotangents[: call.smooth] if c is not None])
        with _precision(call):
            gradients = iter(_pull(ctx, needed, present, given))
        return (None, *[next(gradients) if need else None for need in needed])

    @staticmethod
    def jvp(ctx: Any, *tangents: torch.Tensor | None) -> Gradients:
        call: Call = ctx.call
        mask = tuple([t is not None for t in tangents[1:]])
        given = tuple([t for t in tangents if t is not None])
        out = call.derived(call.flat.jvp(mask), (*ctx.saved_tensors, *given))
        return (*out, *[None] * (call.total - call.smooth))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], call: Call, *tensors: torch.Tensor) -> tuple[Tensors, Any]:
        out = call.batched(call.flat.vmap(tuple(in_dims[1:]), info.batch_size), tensors)
        return out, (0,) * len(out)


def _save(ctx: Any, call: Call, plan: Plan, tensors: Tensors, output: Tensors) -> None:
    """Save for plain reverse mode; inputs that only a second derivative reads are kept beside it.

    NOTE [Inputs the backward does not read]: torch refuses a backward when a saved tensor was changed in place. Inputs
    that the plan does not read must not be saved so, or adding to a tensor after ``x + y`` would be refused, and so
    would updating the buffers of a stateful module. ``create_graph`` reads them, and checks their version itself.
    """
    residuals, call.residuals = call.residuals[0], ((), call.residuals[1])
    ctx.save_for_backward(*[tensors[i] for i in plan.arrays], *[output[i] for i in plan.outputs], *residuals)
    ctx.unread = [(i, t, t._version) for i, t in enumerate(tensors) if i not in plan.arrays]


def _inputs(ctx: Any, plan: Plan, saved: Tensors) -> Tensors:
    """All inputs of the forward, from what :func:`_save` kept."""
    inputs = dict(zip(plan.arrays, saved[: len(plan.arrays)], strict=True))
    for i, tensor, version in ctx.unread:
        if tensor._version != version:
            raise core.GradientError(
                f"an input of shape {tuple(tensor.shape)} was modified by an inplace operation: it is at version "
                f"{tensor._version}, and the second derivative needs version {version}; clone it before changing it"
            )
        inputs[i] = tensor
    return tuple([inputs[i] for i in range(len(inputs))])


def _pull(ctx: Any, needed: Mask, present: Mask, given: Tensors) -> Tensors:
    """The gradients in ``needed`` for the cotangents ``given`` of the outputs that are ``present``."""
    call: Call = ctx.call
    saved: Tensors = ctx.saved_tensors  # raises if one was changed in place, or freed
    if call.plan is None:
        return call.derived(call.flat.vjp(needed, present), (*saved, *given))
    if torch.is_grad_enabled() or not is_plain():
        inputs = _inputs(ctx, call.plan, saved)
        return call.derived(call.flat.vjp(needed, present), (*inputs, *given))
    backward = call.plan.backward(needed, present)
    gradients = backward(call.constants, to_jax(saved), call.residuals[1], to_jax(given))
    if not keeps_graph():
        ctx.unread = ()
    return to_torch(gradients)
