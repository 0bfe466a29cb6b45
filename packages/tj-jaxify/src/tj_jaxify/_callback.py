"""Running a program on JAX's memory: eagerly in the caller's thread, or from a compiled XLA program.

NOTE(deadlock): XLA's CPU client runs callbacks on the very threads that its own computations need. Inside a callback
there is torch and NumPy only; a JAX operation there can wait for ever.

NOTE(borrowed): the operands of a callback belong to XLA and are read only; they are gone when it returns. So results
are copied into XLA's own buffers, a program that edits its operands is given copies, and nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import torch
from jax.extend.core import Primitive
from jax.interpreters import mlir
from torch import Tensor

from ._core import core
from ._errors import BackendError
from ._memory import borrowed, from_numpy, to_numpy
from ._modes import own_modes
from ._program import Program
from ._spec import Spec


def execute(program: Program, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Results of ``program`` in the dtypes of its specs; they may be views of ``tensors`` or of each other."""
    outs = program.run(tensors)
    return [_in_dtype(out.detach(), spec) for out, spec in zip(outs, program.outs, strict=True)]


def _in_dtype(tensor: Tensor, spec: Spec) -> Tensor:
    narrow = tensor.to(spec.dtype)
    if (
        tensor.dtype in (torch.int64, torch.uint64)
        and narrow is not tensor
        and not torch.equal(narrow.to(tensor.dtype), tensor)
    ):
        raise core.ValueRangeError(
            f"result: a value of {tensor.dtype} does not fit {spec.dtype}, which JAX uses while jax_enable_x64 is off; "
            "enable it, or return a smaller integer or a float"
        )
    return narrow


# -- eagerly -----------------------------------------------------------------------------------------------------------


def run_eagerly(primitive: Primitive, args: Sequence[Any], program: Program) -> list[Any]:
    """The primitive's implementation: without XLA where every operand lies in host memory that torch can see."""
    if not args or not _only_device():
        return _compiled(primitive, program)(*args)
    arrays = [jax.numpy.asarray(arg) for arg in args]
    with own_modes():
        operands = [core.jax_to_torch(array) for array in arrays]
        held = [*operands, *program.call.closed_over]
        return [core.torch_to_jax(out) for out in _unaliased(execute(program, operands), held)]


@cache
def _only_device() -> bool:
    # With several devices it is XLA that knows which one an operand is committed to.
    return jax.device_count() == 1 and jax.default_backend() == "cpu"


def _compiled(primitive: Primitive, program: Program) -> Callable[..., list[Any]]:
    return jax.jit(partial(primitive.bind, program=program))


def _unaliased(outs: list[Tensor], held: Sequence[Tensor]) -> list[Tensor]:
    """Copies of those results that share memory with a tensor that is ``held``, or with an earlier result."""
    seen = {t.untyped_storage().data_ptr() for t in held}
    return [_claim(out, seen) for out in outs]


def _claim(out: Tensor, seen: set[int]) -> Tensor:
    pointer = out.untyped_storage().data_ptr()
    if pointer in seen:
        return out.clone()
    seen.add(pointer)
    return out


# -- from XLA ----------------------------------------------------------------------------------------------------------


def call_from_xla(ctx: mlir.LoweringRuleContext, *operands: Any, program: Program) -> Any:
    """The lowering: a callback that works on XLA's buffers, or on NumPy's views and copies of them."""
    if program.call.calls_jax:
        raise BackendError(
            f"{program.call.name}: a wrapped JAX function is called in it, which would run JAX inside a callback of a "
            "compiled program and may never end; call it outside of jit, grad and scan, or call the JAX function itself"
        )
    platforms = ctx.module_context.platforms
    on_buffers = buffer_callback()
    if tuple(platforms) == ("cpu",) and on_buffers is not None:
        lowered = mlir.lower_fun(partial(_on_buffers, on_buffers, program), multiple_results=True)
        return lowered(ctx, *operands)
    avals = [spec.aval() for spec in program.ins], [spec.aval() for spec in program.outs]
    results, _, _ = mlir.emit_python_callback(
        ctx, partial(_on_numpy, program), None, operands, *avals, has_side_effect=False
    )
    return results


@cache
def buffer_callback() -> Callable[..., Any] | None:
    """JAX's experimental callback on device buffers, where this version of JAX has it."""
    try:
        from jax.experimental.buffer_callback import buffer_callback as found
    except ImportError:
        return None
    return found


def _on_buffers(on_buffers: Callable[..., Any], program: Program, *operands: Any) -> Any:
    def callback(_: Any, outs: Sequence[Any], *buffers: Any) -> None:
        with own_modes():
            results = execute(program, [borrowed(buffer) for buffer in buffers])
            for out, result in zip(outs, results, strict=True):
                borrowed(out).copy_(result)

    return on_buffers(callback, [spec.struct() for spec in program.outs])(*operands)


def _on_numpy(program: Program, *arrays: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], ...]:
    with own_modes():
        operands = [from_numpy(np.array(array)) for array in arrays]
        return tuple(to_numpy(out) for out in execute(program, operands))
