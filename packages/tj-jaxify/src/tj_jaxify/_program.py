"""Programs: flat torch functions of known shapes, and the transforms of torch.func over them.

A program takes and returns a flat list of tensors, knows their specs, and is hashable, so that it can be a parameter
of a JAX primitive. :class:`Call` is a traced function; the other classes wrap a program and are what JAX's rules for
batching, forward and reverse mode ask for. They nest to any order.

NOTE(functorch): derivatives are taken by plain autograd as long as no transform of torch.func is at work around them,
because plain autograd takes more programs (old-style ``autograd.Function``, checkpointing, hooks on saved tensors);
inside ``torch.func.vmap`` or ``torch.func.jvp`` only ``torch.func.vjp`` composes. ``run`` is told which it is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Protocol

import torch
from torch import Tensor

from ._capture import runs_on_fakes
from ._seed import seeded
from ._spec import Spec, differentiable

Tensors = Sequence[Tensor]


class Program(Protocol):
    """A flat torch function: hashable, of known specs."""

    @property
    def ins(self) -> tuple[Spec, ...]:
        """The operands."""

    @property
    def outs(self) -> tuple[Spec, ...]:
        """The results."""

    @property
    def call(self) -> Call:
        """The traced function at the bottom."""

    @property
    def linear_from(self) -> int:
        """The first operand in which the program is linear; the number of operands if there is none."""

    def run(self, tensors: Tensors, functorch: bool = False) -> list[Tensor]:
        """Run on tensors of the specs ``ins``; ``functorch`` tells that a transform of torch.func is at work."""

    def transpose(self, wrt: tuple[int, ...], of: tuple[int, ...]) -> Program:
        """From the operands before ``linear_from`` and cotangents of the results ``of`` to those of ``wrt``."""


@dataclass(frozen=True, eq=False)
class Call:
    """A traced torch function; equal only to itself, as its cache gives one object for one function and shape."""

    name: str
    function: Callable[[Tensors], list[Tensor]] = field(repr=False)
    ins: tuple[Spec, ...]
    outs: tuple[Spec, ...]
    dtypes: tuple[torch.dtype, ...] = field(repr=False)
    """What the function is given: int64 where an int32 array stands for it."""
    written: frozenset[int] = frozenset()
    """Operands that the function edits in place: it is given copies of these."""
    seed: int | None = None
    """The operand that holds the seed, for a function that draws random numbers; the function does not see it."""
    branches: bool = False
    """Whether Python branches on values, so that no two lanes need to go the same way."""
    closed_over: tuple[Tensor, ...] = field(default=(), repr=False)
    """Tensors that it reads beside its operands, and may return."""
    calls_jax: bool = False
    """Whether it calls a wrapped JAX function, which must not happen in a callback: see NOTE(deadlock)."""
    pushes: list[bool] = field(default_factory=lambda: [True], repr=False)
    """One element: whether to use torch's forward mode; False once it has failed."""
    _batches: dict[tuple[bool, ...], bool] = field(default_factory=dict, repr=False)

    def batches(self, lanes: tuple[bool, ...]) -> bool:
        """Whether torch.func.vmap takes the function with lanes in these operands: tried once, on fake tensors."""
        if self.branches or (self.seed is not None and lanes[self.seed]):
            return False
        if lanes not in self._batches:
            self._batches[lanes] = runs_on_fakes(Vmap(self, tuple(0 if lane else None for lane in lanes), 2))
        return self._batches[lanes]

    @property
    def call(self) -> Call:
        return self

    @property
    def linear_from(self) -> int:
        return len(self.ins)

    def transpose(self, wrt: tuple[int, ...], of: tuple[int, ...]) -> Program:
        raise TypeError(f"{self.name} is not linear in its operands {wrt}, and has no transpose")

    def run(self, tensors: Tensors, functorch: bool = False) -> list[Tensor]:
        given = [self._given(i, t) for i, t in enumerate(tensors)]
        if self.seed is None:
            return self.function(given)
        with seeded(given.pop(self.seed)):
            return self.function(given)

    def _given(self, i: int, tensor: Tensor) -> Tensor:
        cast_ = tensor.to(self.dtypes[i])
        return cast_.clone() if i in self.written and cast_ is tensor else cast_


@dataclass(frozen=True)
class Vmap:
    """``inner`` for each of ``size`` lanes; ``dims`` has each operand's axis of lanes or None. Results: axis 0.

    An operand without lanes stays without them, and ``inner`` runs once for all lanes, through ``torch.func.vmap``;
    where torch cannot batch it (a branch on data, a seed for each lane) it runs lane after lane.
    """

    inner: Program
    dims: tuple[int | None, ...]
    size: int

    @property
    def call(self) -> Call:
        return self.inner.call

    @cached_property
    def ins(self) -> tuple[Spec, ...]:
        return tuple(
            spec if dim is None else Spec((*spec.shape[:dim], self.size, *spec.shape[dim:]), spec.dtype)
            for spec, dim in zip(self.inner.ins, self.dims, strict=True)
        )

    @cached_property
    def outs(self) -> tuple[Spec, ...]:
        return tuple(spec.lanes(self.size) for spec in self.inner.outs)

    @property
    def linear_from(self) -> int:
        return self.inner.linear_from

    at_once: bool = True

    def run(self, tensors: Tensors, functorch: bool = False) -> list[Tensor]:
        if not self.at_once or self.size == 0:
            return self._one_by_one(tensors, functorch)

        def lane(*tensors: Tensor) -> tuple[Tensor, ...]:
            return tuple(self.inner.run(tensors, functorch=True))

        # The seed has no lanes here, so each lane draws what it would draw alone: "same".
        return list(torch.func.vmap(lane, self.dims, randomness="same")(*tensors))

    def _one_by_one(self, tensors: Tensors, functorch: bool) -> list[Tensor]:
        if self.size == 0:
            return [torch.zeros(spec.shape, dtype=spec.dtype) for spec in self.outs]
        lanes = [self.inner.run(self._lane(tensors, k), functorch) for k in range(self.size)]
        return [torch.stack(results) for results in zip(*lanes, strict=True)]

    def _lane(self, tensors: Tensors, k: int) -> list[Tensor]:
        return [t if dim is None else t.select(dim, k) for t, dim in zip(tensors, self.dims, strict=True)]

    def transpose(self, wrt: tuple[int, ...], of: tuple[int, ...]) -> Program:
        residuals = self.dims[: self.linear_from]
        dims = (*residuals, *(0 for _ in of))
        lanes = Vmap(self.inner.transpose(wrt, of), dims, self.size, self.at_once)
        return OverLanes(lanes, tuple(self.dims[i] for i in wrt))


@dataclass(frozen=True)
class OverLanes:
    """Cotangents from all lanes of ``inner``: moved to the axis of the operand, or summed where it has no lanes."""

    inner: Vmap
    dims: tuple[int | None, ...]

    @property
    def call(self) -> Call:
        return self.inner.call

    @property
    def ins(self) -> tuple[Spec, ...]:
        return self.inner.ins

    @cached_property
    def outs(self) -> tuple[Spec, ...]:
        return tuple(self._spec(spec, dim) for spec, dim in zip(self.inner.inner.outs, self.dims, strict=True))

    @property
    def linear_from(self) -> int:
        return self.inner.linear_from

    def _spec(self, spec: Spec, dim: int | None) -> Spec:
        return spec if dim is None else Spec((*spec.shape[:dim], self.inner.size, *spec.shape[dim:]), spec.dtype)

    def run(self, tensors: Tensors, functorch: bool = False) -> list[Tensor]:
        lanes = self.inner.run(tensors, functorch)
        return [t.sum(0) if dim is None else t.movedim(0, dim) for t, dim in zip(lanes, self.dims, strict=True)]

    def transpose(self, wrt: tuple[int, ...], of: tuple[int, ...]) -> Program:
        first = self.linear_from
        dims = (*self.inner.dims[:first], *(self.dims[k] for k in of))
        lanes = Vmap(self.inner.inner.transpose(wrt, of), dims, self.inner.size, self.inner.at_once)
        return OverLanes(lanes, tuple(self.inner.dims[i] for i in wrt))


@dataclass(frozen=True)
class Jvp:
    """Primals, then tangents of the operands ``wrt``, to tangents of the results ``of``."""

    inner: Program
    wrt: tuple[int, ...]
    of: tuple[int, ...]

    @property
    def call(self) -> Call:
        return self.inner.call

    @cached_property
    def ins(self) -> tuple[Spec, ...]:
        return (*self.inner.ins, *(self.inner.ins[i] for i in self.wrt))

    @cached_property
    def outs(self) -> tuple[Spec, ...]:
        return tuple(self.inner.outs[k] for k in self.of)

    @property
    def linear_from(self) -> int:
        return len(self.inner.ins)

    def run(self, tensors: Tensors, functorch: bool = False) -> list[Tensor]:
        primals, tangents = tensors[: self.linear_from], tensors[self.linear_from :]
        if self.call.pushes[0]:
            try:
                return self._forward_mode(primals, tangents)
            except RuntimeError:  # often: an operator or an autograd.Function without a forward-mode formula
                outs = self._by_transposing_twice(primals, tangents, functorch)
                self.call.pushes[0] = False
                return outs
        return self._by_transposing_twice(primals, tangents, functorch)

    def _forward_mode(self, primals: Tensors, tangents: Tensors) -> list[Tensor]:
        _load_forward_formulas()
        function = _restricted(self.inner, primals, self.wrt, self.of, functorch=True)
        tangents = [t.to(primals[i].dtype) for i, t in zip(self.wrt, tangents, strict=True)]
        _, out = torch.func.jvp(  # type: ignore[misc]
            function, tuple(primals[i] for i in self.wrt), tuple(tangents)
        )
        return list(out)

    def _by_transposing_twice(self, primals: Tensors, tangents: Tensors, functorch: bool) -> list[Tensor]:
        # The pullback is linear in its cotangents, so its own pullback, at any cotangents, is the pushforward.
        pullback = Vjp(self.inner, self.wrt, self.of)
        count = len(primals)
        zeros = [torch.zeros(spec.shape, dtype=spec.dtype) for spec in self.outs]
        pushforward = Vjp(pullback, tuple(range(count, count + len(zeros))), tuple(range(len(self.wrt))))
        return pushforward.run([*primals, *zeros, *tangents], functorch)

    def transpose(self, wrt: tuple[int, ...], of: tuple[int, ...]) -> Program:
        first = self.linear_from
        return Vjp(self.inner, tuple(self.wrt[i - first] for i in wrt), tuple(self.of[k] for k in of))


@dataclass(frozen=True)
class Vjp:
    """Primals, then cotangents of the results ``of``, to cotangents of the operands ``wrt``, in JAX's convention.

    NOTE(conjugate): torch's pullback is the conjugate transpose, JAX's the transpose: ``jax = conj . torch . conj``.
    """

    inner: Program
    wrt: tuple[int, ...]
    of: tuple[int, ...]

    @property
    def call(self) -> Call:
        return self.inner.call

    @cached_property
    def ins(self) -> tuple[Spec, ...]:
        return (*self.inner.ins, *(self.inner.outs[k] for k in self.of))

    @cached_property
    def outs(self) -> tuple[Spec, ...]:
        return tuple(self.inner.ins[i] for i in self.wrt)

    @property
    def linear_from(self) -> int:
        return len(self.inner.ins)

    def run(self, tensors: Tensors, functorch: bool = False) -> list[Tensor]:
        primals, cotangents = tensors[: self.linear_from], tensors[self.linear_from :]
        pullback = self._by_functorch if functorch else self._by_autograd
        return [_conjugate(t) for t in pullback(primals, [_conjugate(t) for t in cotangents])]

    def _by_functorch(self, primals: Tensors, cotangents: Tensors) -> list[Tensor]:
        function = _restricted(self.inner, primals, self.wrt, self.of, functorch=True)
        outs, pullback = torch.func.vjp(  # type: ignore[misc]
            function, *(primals[i] for i in self.wrt)
        )
        return list(pullback(tuple(ct.to(out.dtype) for ct, out in zip(cotangents, outs, strict=True))))

    def _by_autograd(self, primals: Tensors, cotangents: Tensors) -> list[Tensor]:
        nested = any(t.requires_grad for t in (*primals, *cotangents))
        variables = [p if p.requires_grad else p.detach().requires_grad_() for p in (primals[i] for i in self.wrt)]
        outs = _restricted(self.inner, primals, self.wrt, self.of, functorch=False)(*variables)
        pairs = [(o, ct.to(o.dtype)) for o, ct in zip(outs, cotangents, strict=True) if o.requires_grad]
        if not pairs:
            return [torch.zeros_like(v) for v in variables]
        heads, cotangents = zip(*pairs, strict=True)
        return list(torch.autograd.grad(heads, variables, cotangents, create_graph=nested, materialize_grads=True))

    def transpose(self, wrt: tuple[int, ...], of: tuple[int, ...]) -> Program:
        first = self.linear_from
        return Jvp(self.inner, tuple(self.wrt[k] for k in of), tuple(self.of[i - first] for i in wrt))


def _conjugate(tensor: Tensor) -> Tensor:
    # Neither the lazy conj() nor conj_physical(): torch.func.vmap lacks the rules for _neg_view and conj_physical.
    if not tensor.is_complex():
        return tensor
    return tensor.conj() if tensor.is_conj() else torch.complex(tensor.real, -tensor.imag)


@cache
def _load_forward_formulas() -> None:
    # torch.func.jvp scripts a few decompositions when it is first used, and torch warns about torch.jit.script: 2.13 by
    # a DeprecationWarning, 2.15 by a FutureWarning.
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        torch.func.jvp(torch.sin, (torch.zeros(()),), (torch.zeros(()),))


def _restricted(
    program: Program, primals: Tensors, wrt: tuple[int, ...], of: tuple[int, ...], functorch: bool
) -> Callable[..., tuple[Tensor, ...]]:
    """``program`` as a function of its operands ``wrt`` alone, giving the results ``of`` alone."""

    def function(*variables: Tensor) -> tuple[Tensor, ...]:
        full = list(primals)
        for i, variable in zip(wrt, variables, strict=True):
            full[i] = variable
        outs = program.run(full, functorch)
        return tuple(outs[k] for k in of)

    return function


def batch(program: Program, dims: tuple[int | None, ...], size: int) -> Vmap:
    """``program`` for each of ``size`` lanes: all at once if torch can batch it, or else one by one."""
    # Every program takes the operands of its call first; inside another Vmap they have the same lanes or fewer.
    call = program.call
    lanes = tuple(dim is not None for dim in dims[: len(call.ins)])
    if not any(lanes):  # the lanes are in tangents or cotangents only
        lanes = tuple(i != call.seed for i in range(len(call.ins)))
    return Vmap(program, dims, size, call.batches(lanes))


def differentiate(program: Program, wrt: tuple[int, ...]) -> Jvp:
    """The pushforward of ``program`` in the operands ``wrt``, giving tangents of every result that has one."""
    return Jvp(program, wrt, differentiable(program.outs))
