"""What a torch function does, learned at trace time from one run on fake tensors: no memory, no arithmetic.

NOTE(fake): fake tensors carry shape and dtype only, so torch's own shape errors come up here, at JAX's trace time.
Real tensors that the function has closed over are replaced by fake ones as they are met, so none is written to.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map_only

from ._errors import DataDependenceError
from ._modes import own_modes
from ._spec import Spec

# Operators that write to operands which their schema does not mark, when they are called with training=True.
_STATISTICS = ("running_mean", "running_var")
_UNDECLARED = {
    "aten::native_batch_norm": _STATISTICS,
    "aten::cudnn_batch_norm": _STATISTICS,
    "aten::miopen_batch_norm": _STATISTICS,
}

# Operators whose forward-mode formula gives wrong numbers under torch.func.vmap (torch up to 2.13 at least, in
# `vmap(jvp(solve))` and so in `jacfwd(jacfwd(...))`); their derivative is taken by transposing the pullback instead.
_WRONG_PUSHFORWARD = frozenset({"aten::_linalg_solve_ex"})

# What `.item()`, `float(t)` and `if t` ask for.
_VALUE = torch.ops.aten._local_scalar_dense.default

# NOTE(branches): a Python branch on the value of a tensor cannot be followed without values. Shapes are inferred along
# one branch; at run time torch takes the right one, and a result of another shape or structure is an error there.
# The numbers change now and then, so that a loop which waits for a value comes to an end.
_NUMBERS = (1, 2, 0, -1)
_EACH = 8
_MOST_BRANCHES = 512


@dataclass
class Observed:
    """What happened during the run."""

    random: list[str] = field(default_factory=list)
    """Operators that drew from torch's generator."""
    pushes: bool = True
    """Whether torch's forward mode can be trusted with every operator met."""
    calls_jax: bool = False
    """Whether a JAX function wrapped by tj_autograd was called."""
    branches: int = 0
    """How often Python asked for the value of a tensor."""
    written: set[int] = field(default_factory=set)
    """Operands that were edited in place."""
    captured: list[Tensor] = field(default_factory=list)
    """Real tensors that the function has closed over and edited in place."""
    read: dict[int, Tensor] = field(default_factory=dict)
    """Real tensors that the function has closed over, by id."""


class _Observer(TorchDispatchMode):
    """Notes draws and writes, and puts a fake tensor in the place of every real one."""

    def __init__(self, fakes: FakeTensorMode, operands: Sequence[Tensor], observed: Observed) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.observed = observed
        self._fakes = fakes
        self._operands = {_storage(t): i for i, t in enumerate(operands)}
        self._captured: dict[int, Tensor] = {}
        self._alive: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _VALUE and self._is_constant(args[0]):
            with _disable_current_modes():
                return func(*args)
        args, kwargs = tree_map_only(Tensor, self._fake, (args, kwargs or {}))
        # tj_autograd's operator, in a package that may be vendored under any name.
        self.observed.calls_jax |= func._schema.name.endswith("tj_autograd::call")
        self.observed.pushes &= func._schema.name not in _WRONG_PUSHFORWARD
        if self._draws(func, args, kwargs):
            self.observed.random.append(str(func))
        for tensor in _written(func, args, kwargs):
            self._note_write(_storage(tensor))
        try:
            return func(*args, **kwargs)
        except DataDependentOutputException:
            return self._made_up(func, args)

    def _made_up(self, func: Any, args: Any) -> bool | int | float | complex:
        """A Python number for the value of a fake tensor, so that the branch on it can go on; see NOTE(branches)."""
        self.observed.branches += 1
        if self.observed.branches > _MOST_BRANCHES:
            raise DataDependenceError(
                f"the function asked for the value of a tensor ({func}) more than {_MOST_BRANCHES} times while its "
                "shapes were inferred, where no values are known; is there a Python loop that waits for one? "
                "Use torch.where or a loop of fixed length"
            )
        numbers = _NUMBERS[(self.observed.branches - 1) // _EACH % len(_NUMBERS)]
        if func is not _VALUE:
            return bool(numbers)
        dtype = args[0].dtype
        return bool(numbers - 1) if dtype is torch.bool else float(numbers) if dtype.is_floating_point else numbers

    def _is_constant(self, tensor: Tensor) -> bool:
        written = {t.untyped_storage()._cdata for t in self.observed.captured}
        return not isinstance(tensor, FakeTensor) and tensor.untyped_storage()._cdata not in written

    def _fake(self, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        fake = self._fakes.from_tensor(tensor)
        self.observed.read[id(tensor)] = tensor
        self._alive.append(fake)  # or the address of its storage may be given to another
        self._captured.setdefault(_storage(fake), tensor)
        return fake

    def _note_write(self, storage: int) -> None:
        if storage in self._operands:
            self.observed.written.add(self._operands[storage])
        elif storage in self._captured:
            self.observed.captured.append(self._captured[storage])

    @staticmethod
    def _draws(func: Any, args: Any, kwargs: Any) -> bool:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return False
        given = _bound(func, args, kwargs)
        # Attention carries the tag whether or not it drops anything.
        return bool(given.get("dropout_p", 1.0))


def _bound(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of an operator by name, defaults included."""
    names = [a.name for a in func._schema.arguments]
    defaults = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    return {**defaults, **dict(zip(names, args, strict=False)), **kwargs}


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[Tensor]:
    """The tensors that an operator edits in place."""
    name = func._schema.name
    if not func._schema.is_mutable and name not in _UNDECLARED:
        return
    given = _bound(func, args, kwargs)
    if name in _UNDECLARED:
        names = _UNDECLARED[name] if given["training"] else ()
    else:
        names = tuple(a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    for value in (given.get(n) for n in names):
        yield from (t for t in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(t, Tensor))


def _storage(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


@contextmanager
def _quiet() -> Iterator[None]:
    """FakeTensorMode logs every shape error before it raises it; here the raised one is enough."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


class Runnable(Protocol):
    """What :func:`runs_on_fakes` tries: a program."""

    @property
    def ins(self) -> tuple[Spec, ...]: ...

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]: ...


def runs_on_fakes(program: Runnable) -> bool:
    """Whether ``program`` gets to its end on fake tensors; whatever stops it, the caller has another way."""
    operands = [(spec.shape, spec.dtype) for spec in program.ins]
    try:
        observe(program.run, operands, Observed())
    except Exception:
        return False
    return True


_THREAD = threading.local()


def observing() -> bool:
    """Whether this thread is inside :func:`observe`."""
    return getattr(_THREAD, "depth", 0) > 0


@contextmanager
def _observing() -> Iterator[None]:
    _THREAD.depth = getattr(_THREAD, "depth", 0) + 1
    try:
        yield
    finally:
        _THREAD.depth -= 1


def observe(
    function: Callable[[list[Tensor]], Any],
    operands: Sequence[tuple[tuple[int, ...], torch.dtype]],
    observed: Observed,
) -> tuple[Any, list[Tensor]]:
    """Run ``function`` once on fake operands of these shapes and dtypes: its result, and the operands.

    What it did is noted in ``observed``, as far as it got.
    """
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    with own_modes(), fakes:
        tensors: list[Tensor] = [torch.empty(shape, dtype=dtype, device="cpu") for shape, dtype in operands]
    observer = _Observer(fakes, tensors, observed)
    with own_modes(), _quiet(), _observing(), fakes, observer:
        try:
            result = function(tensors)
        except DynamicOutputShapeException as error:
            raise DataDependenceError(
                f"the shape that {error.func} gives depends on the values of its operand, and JAX needs every shape "
                "beforehand; select with torch.where or a mask instead"
            ) from error
    return result, tensors
