"""WrappedJaxScalarFunction as scripts written for the earlier torch-jax-interop call it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from ._core import autograd


class _Aux(enum.Enum):
    """What stands in the place of aux where the function returned none."""

    NONE = enum.auto()


class _Pair:
    """``function`` made to return ``(out, aux)`` whether or not it does."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        out = self.function(*args, **kwargs)
        return out if isinstance(out, tuple) and len(out) == 2 else (out, _Aux.NONE)


class WrappedJaxScalarFunction(autograd.WrappedJaxScalarFunction):
    """A JAX function of parameters that returns one real number, such as a loss, as a module.

    This is :class:`tj_autograd.WrappedJaxScalarFunction` (value and gradient in one pass), except that ``has_aux`` need
    not be said: by default, ``None``, a function that returns a pair is one that returns ``(loss, aux)``. The earlier
    package of this name took every such function to return a pair.

    Args:
        jax_function: ``jax_function(params, *args)`` returns a scalar of shape (), or ``(scalar, aux)``.
        jax_params: any pytree of arrays.
        has_aux: True, False, or None for "as the function does".
        clone_params: the module has its own copy of the parameters.

    >>> import jax.numpy as jnp, torch
    >>> loss = WrappedJaxScalarFunction(lambda w, x: (jnp.sum(w * x), {"max": jnp.max(x)}), jnp.ones(2))
    >>> value, aux = loss(torch.tensor([1.0, 2.0]))
    >>> value.item(), aux
    (3.0, {'max': tensor(2.)})
    """

    def __init__(
        self,
        jax_function: Callable[..., Any],
        jax_params: Any,
        has_aux: bool | None = None,
        clone_params: bool = True,
    ) -> None:
        function = _Pair(jax_function) if has_aux is None else jax_function
        super().__init__(function, jax_params, has_aux is not False, clone_params)

    @property
    def jax_function(self) -> Callable[..., Any]:
        """The function as it was given."""
        function = super().jax_function
        return function.function if isinstance(function, _Pair) else function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The loss, or ``(loss, aux)``."""
        result = super().forward(*args, **kwargs)
        return result[0] if isinstance(result, tuple) and result[1] is _Aux.NONE else result
