"""The function form: a JAX function that is called with torch tensors."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch

from ._arguments import Signature, Structure, split
from ._compat import untraced, x64_enabled
from ._compiled import Rebuild, in_graph, name_of
from ._core import core_callables
from ._engine import Call, apply
from ._flat import Flat
from ._outputs import CACHE_SIZE, Arrays, Constants, Outputs
from ._pickling import Portable, is_named
from ._results import collect
from ._sharing import SharedArrays, Tensors


class JaxFunction:
    """A JAX function as torch sees it; made by :func:`jax_function_to_torch`.

    It pickles and copies as its function does, and keeps what was compiled for it as long as it lives.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        has_aux: bool,
        static_argnums: int | Sequence[int],
        static_argnames: str | Iterable[str],
        scalar: bool = False,
    ) -> None:
        self.__wrapped__: Callable[..., Any]
        functools.update_wrapper(self, fn, updated=())
        self._name: str = getattr(fn, "__qualname__", "")
        self._fn, self._has_aux, self._scalar = fn, has_aux, scalar
        self._static = (static_argnums, static_argnames)
        self._signature = Signature(fn, static_argnums, static_argnames)
        core_callables.mark_origin(self, fn, "jax")  # so that tj_core.torch_to_jax gives fn back
        self._flat = functools.lru_cache(CACHE_SIZE)(self._make_flat)
        self._in_graph = name_of(self)

    def _make_flat(self, structure: Structure) -> Flat:
        fn, has_aux = self._fn, self._has_aux

        def body(constants: Constants, arrays: Arrays) -> Outputs:
            args, kwargs = structure.fill(arrays, constants)
            return collect(fn(*args, **kwargs), has_aux)

        return Flat(body, scalar=self._scalar)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return in_graph(self._in_graph, self._outside, args, kwargs)
        return self.call(None, args, kwargs)

    @untraced
    def _outside(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(None, args, kwargs)

    def call(self, shared: SharedArrays | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call it; ``shared`` holds the arrays of an owner whose tensors come first in each call."""
        call, tensors = self._prepare(shared, args, kwargs)
        out = apply(call, tensors)
        return call.meta.rebuild(out, call.opaque)

    def _flat_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensors, Rebuild]:
        """See :class:`._compiled.Owner`."""
        call, tensors = self._prepare(None, args, kwargs)
        if not tensors:  # nothing that the compiler could trace
            return (), tuple
        out = apply(call, tensors)
        return out, lambda leaves: call.meta.rebuild(leaves, call.opaque)

    def _prepare(
        self, shared: SharedArrays | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Call, Tensors]:
        structure, tensors, constants = split(self._signature, args, kwargs)
        return Call(self._flat(structure), constants, x64_enabled(), shared), tensors

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def has_aux(self) -> bool:
        """Whether the function returns ``(out, aux)``."""
        return self._has_aux

    def __repr__(self) -> str:
        return f"jax_function_to_torch({self._fn!r})"

    def __copy__(self) -> JaxFunction:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> JaxFunction:
        return self

    def __reduce__(self) -> Any:
        if is_named(self, getattr(self, "__module__", None), self._name):  # decorated: its name leads here
            return self._name
        return JaxFunction, (Portable(self._fn), self._has_aux, *self._static, self._scalar)


def jax_function_to_torch(
    fn: Callable[..., Any],
    *,
    has_aux: bool = False,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[..., Any]:
    """A JAX function as a function of torch tensors, differentiable to any order and under any transform of torch.

    Args:
        fn: any function that JAX can trace, jitted or not. It is traced once for each structure, shapes, dtypes and
            static values of its arguments, and compiled.
        has_aux: ``fn`` returns ``(out, aux)``; nothing in ``aux``, any pytree, has a gradient.
        static_argnums: places of arguments that are passed as they are instead of being traced; they must be hashable.
        static_argnames: the same by name.

    Returns:
        A function of the same arguments. Arguments are any pytrees; their leaves may be

        - torch tensors, shared with JAX without a copy where memory allows;
        - JAX and NumPy arrays, PRNG keys and Python numbers, which are traced and have no gradient (Python numbers
          keep their weak type: ``2.0`` does not turn bfloat16 into float32);
        - bool, None, str and any other hashable object, which are static.

        Results keep their structure, with a torch tensor for each array; PRNG keys stay JAX arrays, and what is no
        array (None, str, Python numbers) comes as the trace left it. A result never shares memory with an argument,
        with another result or with what is saved for the backward.
        If ``fn`` is a torch function that was converted to JAX, the torch function itself is returned.

    The gradient of every floating-point or complex tensor among the arguments is JAX's, in torch's convention (of a
    complex leaf it is the conjugate). A tensor changed in place between forward and backward raises torch's error.

    Raises:
        tj_core.UnsupportedKindError: an argument is neither array nor hashable, or ``fn`` returns no pair
            under ``has_aux``.
        tj_core.ValueRangeError: an integer does not fit 32 bits while ``jax_enable_x64`` is off.

    Example:
        >>> import jax.numpy as jnp
        >>> import torch
        >>> f = jax_function_to_torch(lambda x, y: {"out": jnp.sin(x) * y})
        >>> x = torch.zeros(3, requires_grad=True)
        >>> f(x, 2.0)["out"].sum().backward()
        >>> x.grad
        tensor([2., 2., 2.])
    """
    origin = core_callables.origin_of(fn)
    if origin is not None and origin.framework == "torch" and not has_aux:
        return cast(Callable[..., Any], origin.function)
    return JaxFunction(fn, has_aux, static_argnums, static_argnames)
