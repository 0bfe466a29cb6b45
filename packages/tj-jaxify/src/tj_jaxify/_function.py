"""A torch function of trees of tensors as a JAX function of trees of arrays."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import jax
import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from ._capture import Observed, observe
from ._core import core, core_callables, core_tree
from ._errors import BackendError, DataDependenceError, RandomnessError, StateError
from ._primitive import torch_call_p
from ._program import Call
from ._spec import Spec, spec_of_array, spec_of_tensor, x64

Backend = Literal["auto", "torch", "xla"]


def check_backend(backend: str) -> None:
    """Refuse a backend that is unknown or not there yet."""
    if backend == "xla":
        raise BackendError(
            'backend: "xla" (every operator lowered to XLA) is not there yet; use "torch", which runs the function in '
            'torch from within the XLA program, or "auto"'
        )
    if backend not in get_args(Backend):
        raise BackendError(f'backend: expected "auto", "torch" or "xla", got {backend!r}')


class _Static:
    """A leaf that is not an array, as part of a key: equal if of one type and equal, or else the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Static) or type(self.value) is not type(other.value):
            return False
        if self.value is other.value:
            return True
        # repr tells 0.0 from -0.0
        return type(self.value) in _COMPARED and self.value == other.value and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(self.value) if type(self.value) in _COMPARED else id(self.value)


_COMPARED = frozenset({bool, int, float, complex, str, bytes, torch.Size, torch.dtype})
_NUMPY = (np.ndarray, np.generic)


class _Tensor(NamedTuple):
    """The place of a tensor among the leaves of a result."""

    spec: Spec


class _Operand(NamedTuple):
    """The place of an operand that the function gives back as it came: it does not pass through torch."""

    position: int


class Traced(NamedTuple):
    """One function at one structure and one set of shapes."""

    call: Call
    treedef: Any
    leaves: tuple[Any, ...]
    """The leaves of the result: ``_Tensor`` or ``_Operand`` for a tensor, anything else as the function gave it."""
    observed: Observed

    def rebuild(self, arrays: Sequence[Any], operands: Sequence[Any]) -> Any:
        """The result, with arrays in the places of its tensors."""
        given = iter(arrays)
        places = (operands[x.position] if isinstance(x, _Operand) else x for x in self.leaves)
        return self.treedef.unflatten([next(given) if isinstance(x, _Tensor) else x for x in places])


class Jaxified:
    """Calls a torch function on arrays: traces it for the shapes at hand, once each, and binds the primitive.

    ``declared`` has the torch dtypes of the first operands where they are known (parameters and buffers);
    ``check`` is shown what the function did, and refuses what its caller cannot return.
    """

    CACHE = 128

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        check: Callable[[Observed], None],
        declared: tuple[torch.dtype, ...] = (),
    ) -> None:
        self._function, self._name, self._check, self._declared = function, name, check, declared
        self._traces: OrderedDict[Hashable, Traced] = OrderedDict()
        self._lock = threading.RLock()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any], rng: Any = None) -> Any:
        leaves, treedef = core_tree.tree_flatten((args, kwargs))
        leaves = [jax.numpy.asarray(x) if isinstance(x, _NUMPY) else x for x in leaves]
        dynamic = [isinstance(x, jax.Array) for x in leaves]
        row = tuple(self._key(i, x, d) for i, (x, d) in enumerate(zip(leaves, dynamic, strict=True)))
        traced = self._traced(treedef, row, seeded=rng is not None)
        operands = [x for x, d in zip(leaves, dynamic, strict=True) if d]
        if traced.call.seed is not None:
            operands.append(_seed(rng))
        return traced.rebuild(torch_call_p.bind(*operands, program=traced.call), operands)

    def _key(self, i: int, leaf: Any, dynamic: bool) -> Spec | _Static:
        if dynamic:
            return spec_of_array(leaf, f"{self._name}: argument leaf {i}")
        if isinstance(leaf, Tensor):
            raise core.UnsupportedKindError(
                f"{self._name}: argument leaf {i} is a torch.Tensor of shape {tuple(leaf.shape)}, and this is a JAX "
                "function; convert it with torch_to_jax first"
            )
        return _Static(leaf)

    def _traced(self, treedef: Any, row: tuple[Spec | _Static, ...], seeded: bool) -> Traced:
        key = (treedef, row, seeded, x64(), torch.get_default_dtype())
        with self._lock:
            traced = self._traces.get(key)
            if traced is None:
                traced = self._traces[key] = self._trace(treedef, row, seeded)
                while len(self._traces) > self.CACHE:
                    self._traces.popitem(last=False)
            self._traces.move_to_end(key)
        return traced

    def _trace(self, treedef: Any, row: tuple[Spec | _Static, ...], seeded: bool) -> Traced:
        ins = tuple(x for x in row if isinstance(x, Spec))
        dtypes = tuple(self._dtype(i, spec) for i, spec in enumerate(ins))
        flat = _Flat(self._function, self._name, treedef, row)
        shapes = [(spec.shape, dtype) for spec, dtype in zip(ins, dtypes, strict=True)]
        observed = Observed()
        try:
            (tree, leaves), operands = observe(flat.leaves, shapes, observed)
        except Exception as error:
            self._check(observed)  # what is refused anyhow may have been the cause
            given = ", ".join(f"{str(s.dtype).removeprefix('torch.')}{list(s.shape)}" for s in ins)
            error.add_note(f"tj_jaxify: while the shapes of {self._name} were inferred for the operands {given}")
            raise
        self._check(observed)
        seed = self._seed_operand(observed, len(ins), seeded)
        same = {} if observed.branches else {id(t): i for i, t in enumerate(operands) if i not in observed.written}
        flat.outs = tuple(self._place(i, x, same) for i, x in enumerate(leaves))
        flat.out_tree = tree
        if observed.branches and any(isinstance(x, (bool, int, float, complex)) for x in leaves):
            raise DataDependenceError(
                f"{self._name}: a result is a Python number, and the function asked for the value of a tensor; "
                "return it as a tensor, without .item()"
            )
        if seed is not None:
            ins, dtypes = (*ins, Spec((), torch.uint32)), (*dtypes, torch.uint32)
        call = Call(
            name=self._name,
            function=flat,
            ins=ins,
            outs=tuple(x.spec for x in flat.outs if isinstance(x, _Tensor)),
            dtypes=dtypes,
            # A branch that was not followed may write to any operand.
            written=frozenset(range(len(ins))) if observed.branches else frozenset(observed.written),
            seed=seed,
            branches=observed.branches > 0,
            calls_jax=observed.calls_jax,
            closed_over=(*observed.read.values(), *(x for x in leaves if _is_real(x))),
            pushes=[observed.pushes],
        )
        return Traced(call, tree, flat.outs, observed)

    def _place(self, i: int, leaf: Any, same: dict[int, int]) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) in same:
            return _Operand(same[id(leaf)])
        return _Tensor(spec_of_tensor(leaf, f"{self._name}: result leaf {i}"))

    def _dtype(self, i: int, spec: Spec) -> torch.dtype:
        # While x64 is off JAX has no int64, and an int32 array stands for one: labels, indices, token ids.
        narrow = spec.dtype is torch.int32 and not x64()
        if narrow and i < len(self._declared) and self._declared[i] in (torch.int32, torch.int64):
            return self._declared[i]
        return torch.int64 if narrow else spec.dtype

    def _seed_operand(self, observed: Observed, position: int, seeded: bool) -> int | None:
        if not observed.random:
            return None
        if not seeded:
            raise RandomnessError(
                f"{self._name} draws random numbers ({observed.random[0]}), and JAX draws none without a key: pass "
                "rng= to the function that torch_module_to_jax_with_buffers returns, or put the module into eval(), "
                "or pass the random values as an argument"
            )
        return position


def _is_real(value: Any) -> bool:
    """Whether a result of the run on fake tensors is a tensor that the function has closed over."""
    return isinstance(value, Tensor) and not isinstance(value, FakeTensor)


class _Flat:
    """The function on flat tensors: puts them among the static leaves, calls it, and checks what comes back."""

    outs: tuple[Any, ...]
    out_tree: Any

    def __init__(self, function: Callable[..., Any], name: str, treedef: Any, row: Sequence[Spec | _Static]) -> None:
        self._function, self._name, self._treedef = function, name, treedef
        self._row = [None if isinstance(x, Spec) else x for x in row]

    def leaves(self, tensors: Sequence[Tensor]) -> tuple[Any, list[Any]]:
        given = iter(tensors)
        args, kwargs = self._treedef.unflatten([next(given) if x is None else x.value for x in self._row])
        leaves, tree = core_tree.tree_flatten(self._function(*args, **kwargs))
        return tree, leaves

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        tree, leaves = self.leaves(tensors)
        if tree != self.out_tree:
            raise self._changed(f"its structure is {tree}, and was {self.out_tree}")
        found = [x for x, place in zip(leaves, self.outs, strict=True) if isinstance(place, _Tensor)]
        if not all(isinstance(x, Tensor) for x in found):
            raise self._changed("a tensor became something else")
        shapes = [tuple(x.shape) for x in found]
        expected = [x.spec.shape for x in self.outs if isinstance(x, _Tensor)]
        if shapes != expected:
            raise self._changed(f"its shapes are {shapes}, and were {expected}")
        return found

    def _changed(self, how: str) -> DataDependenceError:
        return DataDependenceError(
            f"{self._name}: the result is not what it was when JAX traced the function: {how}; "
            "shape and structure must not depend on the values of the operands, nor on state outside"
        )


def _seed(rng: Any) -> jax.Array:
    """32 well-mixed bits from a key, typed or raw."""
    try:
        return jax.random.bits(rng, (), np.uint32)
    except (TypeError, ValueError) as error:
        raise RandomnessError(f"rng: expected one JAX key, as jax.random.key gives, got {rng!r}") from error


def _refuse_writes(name: str, observed: Observed) -> None:
    if observed.captured:
        shape = tuple(observed.captured[0].shape)
        raise StateError(
            f"{name} edits in place a tensor of shape {shape} that it has closed over, which a JAX function cannot do; "
            "pass it as an argument and return the new one, or use torch_module_to_jax_with_buffers for a module"
        )


def torch_function_to_jax(fn: Callable[..., Any], *, backend: Backend = "auto") -> Callable[..., Any]:
    """The torch function ``fn`` as a JAX function.

    Takes and returns trees of JAX arrays where ``fn`` takes and returns trees of tensors; whatever is not an array
    (numbers, strings, None, objects) reaches ``fn`` as it is. Composes with ``jit``, ``grad``, ``vmap``, ``jvp``,
    ``scan`` and the rest, to any order that torch itself can differentiate. Shapes are inferred when JAX traces, by
    torch, with fake tensors; torch's own error is raised there if they do not fit.

    While ``jax_enable_x64`` is off an int32 array stands for torch's int64. Operands that ``fn`` edits in place are
    copied for it; JAX arrays never change. Tensors that ``fn`` closes over are constants without a gradient.

    Gradients are those of torch, in JAX's convention where they are complex. If ``fn`` is a JAX function that was
    converted to torch, the JAX function itself is returned.

    Raises ``BackendError`` for ``backend="xla"``; ``RandomnessError`` if ``fn`` draws random numbers; ``StateError`` if
    it writes to a tensor that it closes over; ``DataDependenceError`` if a shape depends on values.

    >>> import jax, jax.numpy as jnp, torch
    >>> f = torch_function_to_jax(lambda x: torch.sin(x) * 2)
    >>> jax.jit(jax.grad(f))(jnp.float32(0.0)).item()
    2.0
    """
    check_backend(backend)
    origin = core_callables.origin_of(fn)
    if origin is not None and origin.framework == "jax":
        return cast(Callable[..., Any], origin.function)
    if isinstance(fn, torch.nn.Module):
        raise core.UnsupportedKindError("fn: this is an nn.Module; use torch_module_to_jax, which gives its parameters")
    if not callable(fn):
        raise core.UnsupportedKindError(f"fn: expected a function of tensors, got {type(fn).__name__}")
    name = getattr(fn, "__name__", type(fn).__name__)
    call = Jaxified(fn, name, functools.partial(_refuse_writes, name))

    @functools.wraps(fn, assigned=("__name__", "__qualname__", "__doc__"), updated=())
    def jax_function(*args: Any, **kwargs: Any) -> Any:
        return call(args, kwargs)

    return core_callables.mark_origin(cast(Callable[..., Any], jax_function), fn, "torch")
