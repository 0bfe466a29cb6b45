"""A function under a transform, carried to the side of the values that it is called with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from ._core import autograd, autograd_function, core_callables, core_tree, jaxify
from ._frameworks import Framework, Function, check_framework, framework_of, framework_of_values

_ATTRIBUTE = "__tj_transformed__"
# What a function raises that hands values on to the framework which they are not of; see NOTE(which framework). The
# words are those of torch, when jax.numpy.asarray asks a tensor under a transform for its memory.
_FOREIGN: dict[type[Exception], tuple[str, ...]] = {
    TypeError: ("",),
    AttributeError: ("",),
    RuntimeError: ("numpy()", "data pointer", "export"),
    BufferError: ("export",),
}
# What tj_jaxify finds in a function that it has recognised as one of torch.
_VERDICTS = (jaxify.DataDependenceError, jaxify.RandomnessError, jaxify.StateError)
_ARRAYS = (torch.Tensor, jax.Array, np.ndarray)


class Transform(NamedTuple):
    """One transform in both frameworks: each field makes a function of a function.

    ``trial`` takes the arguments of the transformed function, and calls the function itself in JAX.
    """

    in_torch: Callable[[Function], Function]
    in_jax: Callable[[Function], Function]
    trial: Callable[[Function], Function] = lambda function: function


class Carried:
    """A function, what it is to be transformed by, and its form on either side, made when first needed."""

    def __init__(self, function: Function, transform: Transform, framework: Framework | None) -> None:
        check_framework(framework)
        if not callable(function):
            raise TypeError(f"func: expected a function, found {function!r}")
        self.function, self.transform = function, transform
        self.inner = _carried_by(function)  # of a function that is itself transformed, and carries itself
        self.origin = None if self.inner else _origin_of(function)
        self.framework = framework or (None if self.inner or self.origin else framework_of(function))
        self.forms: dict[tuple[Framework, bool], Function] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        side = framework_of_values(args, kwargs) or self.known() or "jax"  # torch.func takes no Python numbers
        if self.inner or self.origin or self.framework:
            native = self.inner is not None or (self.origin is None and self.framework == side)
            return self.form(side, native)(*args, **kwargs)
        try:
            return self.form(side, native=True)(*args, **kwargs)
        except Exception as error:
            if not _is_foreign(error):
                raise
            refused = self._refused_on_the_other_side(side, args, kwargs)
            if isinstance(refused, _VERDICTS):
                raise refused from error
            if refused is not None:
                raise
        self.framework = _other(side)
        return self.form(side, native=False)(*args, **kwargs)

    def known(self) -> Framework | None:
        """The framework that the innermost function is written in, as far as it is known."""
        if self.inner is not None:
            return self.inner.known()
        return self.framework if self.origin is None else self.origin.framework

    def form(self, side: Framework, native: bool) -> Function:
        """The transformed function for values of ``side``; its own function is of that side if it is ``native``."""
        key = side, native
        if key not in self.forms:
            self.forms[key] = self._make(side, native)
        return self.forms[key]

    def _make(self, side: Framework, native: bool) -> Function:
        transform = self.transform.in_torch if side == "torch" else self.transform.in_jax
        return transform(self.function if native else self._carried(side))

    def _carried(self, side: Framework) -> Function:
        if self.origin is not None and self.origin.framework == side:
            return self.origin.function
        if isinstance(self.function, autograd_function.JaxFunction):
            return self.function
        # What tj_core has converted cannot be transformed, so it is its origin that is converted here.
        return _convert(self.function if self.origin is None else self.origin.function, side)

    def _refused_on_the_other_side(
        self, side: Framework, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Exception | None:
        """What the function raises, without values, in the framework it was not called in; None if it runs through."""
        function = self.function if side == "torch" else self._carried("jax")
        leaves, treedef = core_tree.tree_flatten((args, kwargs))
        dynamic = [isinstance(leaf, _ARRAYS) for leaf in leaves]

        def run(*arrays: jax.Array) -> Any:
            given = iter(arrays)
            args, kwargs = treedef.unflatten(
                [next(given) if d else leaf for leaf, d in zip(leaves, dynamic, strict=True)]
            )
            return self.transform.trial(function)(*args, **kwargs)

        try:
            jax.eval_shape(run, *[_shape_of(leaf) for leaf, d in zip(leaves, dynamic, strict=True) if d])
        except Exception as error:
            return error
        return None


def transformed(function: Function, transform: Transform, framework: Framework | None) -> Function:
    """``function`` under ``transform``, to be called with tensors or with arrays."""
    carried = Carried(function, transform, framework)

    @functools.wraps(function, updated=())
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return carried(args, kwargs)

    setattr(wrapper, _ATTRIBUTE, (wrapper, carried))
    return wrapper


def _is_foreign(error: Exception) -> bool:
    if isinstance(error, jax.errors.JAXTypeError):  # about control flow on traced values
        return False
    return any(isinstance(error, kind) and any(w in str(error) for w in words) for kind, words in _FOREIGN.items())


def _carried_by(function: Any) -> Carried | None:
    wrapper, carried = getattr(function, _ATTRIBUTE, (None, None))
    return carried if wrapper is function else None


def _other(side: Framework) -> Framework:
    return "jax" if side == "torch" else "torch"


class Origin(NamedTuple):
    """What a function was before it was converted, and of which framework."""

    function: Function
    framework: Framework


def _origin_of(function: Any) -> Origin | None:
    origin = core_callables.origin_of(function)
    if origin is not None:
        return Origin(origin.function, origin.framework)
    is_jax = isinstance(function, autograd_function.JaxFunction)
    return Origin(function.__wrapped__, "jax") if is_jax else None


def _convert(function: Function, side: Framework) -> Function:
    return autograd.jax_function_to_torch(function) if side == "torch" else _in_jax(function)


def _in_jax(function: Function) -> Function:
    if isinstance(function, torch.nn.Module):
        return jaxify.torch_function_to_jax(functools.wraps(function, updated=())(lambda *a, **k: function(*a, **k)))
    return jaxify.torch_function_to_jax(function)


def _shape_of(value: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(tuple(value.shape), str(value.dtype).removeprefix("torch."))
