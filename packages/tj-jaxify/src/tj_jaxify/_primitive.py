"""The two JAX primitives that run a program in torch, and JAX's rules for them.

``torch_call`` runs any program. ``torch_linear_call`` runs one that is linear in its last operands, so it can be
transposed; both are batched by :class:`Vmap`, differentiated by :class:`Jvp` and transposed by :class:`Vjp`, which are
programs again. Reverse mode never runs forward mode: the pushforward is only written down, and then transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ._callback import call_from_xla, run_eagerly
from ._program import Program, batch, differentiate
from ._spec import Spec, differentiable

torch_call_p = Primitive("torch_call")
torch_linear_call_p = Primitive("torch_linear_call")


def _abstract(*_: Any, program: Program) -> list[Any]:
    return [spec.aval() for spec in program.outs]


def _batch(primitive: Primitive, args: Sequence[Any], dims: Sequence[Any], *, program: Program) -> tuple[Any, Any]:
    size = next(arg.shape[dim] for arg, dim in zip(args, dims, strict=True) if dim is not None)
    lanes = batch(program, tuple(dims), size)
    return primitive.bind(*args, program=lanes), [0] * len(lanes.outs)


def _no_tangent(spec: Spec) -> Any:
    return ad.Zero(spec.aval().to_tangent_aval())


def _push(primitive: Primitive, primals: Sequence[Any], tangents: Sequence[Any], *, program: Program) -> Any:
    outs = primitive.bind(*primals, program=program)
    wrt = tuple(i for i, t in enumerate(tangents) if type(t) is not ad.Zero and program.ins[i].differentiable)
    if not wrt:
        return outs, [_no_tangent(spec) for spec in program.outs]
    first = program.linear_from
    if wrt[0] >= first:  # only linear operands move: the program is its own derivative in them
        moved = [ad.instantiate_zeros(t) for t in tangents[first:]]
        return outs, torch_linear_call_p.bind(*primals[:first], *moved, program=program)
    pushed = torch_linear_call_p.bind(*primals, *(tangents[i] for i in wrt), program=differentiate(program, wrt))
    by_index = dict(zip(differentiable(program.outs), pushed, strict=True))
    return outs, [by_index.get(k, _no_tangent(spec)) for k, spec in enumerate(program.outs)]


def _pull(cotangents: Sequence[Any], *args: Any, program: Program) -> list[Any]:
    wrt = tuple(i for i, arg in enumerate(args) if ad.is_undefined_primal(arg))
    of = tuple(k for k, ct in enumerate(cotangents) if type(ct) is not ad.Zero)
    residuals = args[: program.linear_from]
    if not of:
        return [ad.Zero(arg.aval) if ad.is_undefined_primal(arg) else None for arg in args]
    given = [cotangents[k] for k in of]
    pulled = torch_linear_call_p.bind(*residuals, *given, program=program.transpose(wrt, of))
    by_index = dict(zip(wrt, pulled, strict=True))
    return [by_index.get(i) for i in range(len(args))]


def _register(primitive: Primitive) -> None:
    primitive.multiple_results = True
    primitive.def_impl(lambda *args, program: run_eagerly(primitive, args, program))
    primitive.def_abstract_eval(_abstract)
    mlir.register_lowering(primitive, call_from_xla)
    batching.primitive_batchers[primitive] = lambda args, dims, **params: _batch(primitive, args, dims, **params)
    ad.primitive_jvps[primitive] = lambda primals, tangents, **params: _push(primitive, primals, tangents, **params)


_register(torch_call_p)
_register(torch_linear_call_p)
ad.primitive_transposes[torch_linear_call_p] = _pull
