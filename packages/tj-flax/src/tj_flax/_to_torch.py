"""A Flax module as a torch module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._core import autograd, core
from ._flax import errors, linen
from ._kinds import check_linen_module, check_variables

# What Flax raises when a module reaches for a collection or a stream of random numbers that it was not given.
_MISSING_STATE = (
    errors.InvalidRngError,
    errors.ModifyScopeVariableError,
    errors.ScopeCollectionNotFound,
    errors.ScopeVariableNotFoundError,
)


class _Apply:
    """``module.apply``, with an error of this project for what is not supported yet."""

    def __init__(self, module: linen.Module) -> None:
        self.module = module

    def __call__(self, variables: Any, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.module.apply(variables, *args, **kwargs)
        except _MISSING_STATE as error:
            raise core.UnsupportedKindError(
                f"module: {type(self.module).__name__} uses state or random numbers besides its parameters, which is "
                f"not supported yet ({type(error).__name__}, see above); random numbers can be switched off by the "
                "module's own argument, as in deterministic=True"
            ) from error

    def __repr__(self) -> str:
        return repr(self.module)


class FlaxModule(autograd.WrappedJaxFunction):
    """A linen module as a torch module; made by :func:`flax_to_torch`."""

    def __init__(self, module: linen.Module, variables: Mapping[str, Any]) -> None:
        super().__init__(_Apply(module), variables)

    @property
    def flax_module(self) -> linen.Module:
        """The module that was wrapped."""
        apply: Any = self.jax_function
        return apply.module  # type: ignore[no-any-return]


def flax_to_torch(module: linen.Module, variables: Mapping[str, Any] | None = None) -> FlaxModule:
    """A linen module as a torch module that trains, saves and composes like any other.

    Args:
        module: an instance of a ``flax.linen.Module`` that has parameters and no other state.
        variables: ``{"params": {...}}``, as ``module.init`` returns it. The values are copied; the torch module owns
            its parameters.

    Returns:
        An nn.Module. Its parameters are named by their path (``params.Dense_0.kernel``) and keep the layout of Flax;
        its ``state_dict()`` has the names of :func:`variables_to_state_dict`, and :func:`state_dict_to_variables` gives
        the trained variables back. Calling it is ``module.apply(variables, *args, **kwargs)``: arguments are trees of
        tensors, results are trees of new tensors; Python bools and strings reach the module as they are. It is traced
        and compiled once for each structure, shapes and dtypes.

    Gradients of parameters and of floating-point arguments are those of JAX, in torch's convention.

    Raises:
        UnsupportedKindError: for a flax.nnx module, for collections other than ``params``, for boxed parameters, for
            ``variables=None``; and in the call, if the module draws random numbers or reaches for other state.

    >>> import flax.linen as nn, jax, jax.numpy as jnp, torch
    >>> dense = nn.Dense(3)
    >>> model = flax_to_torch(dense, dense.init(jax.random.key(0), jnp.ones((1, 2))))
    >>> {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    {'params.bias': (3,), 'params.kernel': (2, 3)}
    >>> model(torch.ones(5, 2)).sum().backward()
    >>> model.params.bias.grad
    tensor([5., 5., 5.])
    """
    return FlaxModule(check_linen_module(module), check_variables(variables))
