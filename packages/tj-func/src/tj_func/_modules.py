"""Modules as functions of their parameters; for torch modules and tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ._core import core
from ._frameworks import framework_of_values


def functional_call(
    module: torch.nn.Module,
    parameter_and_buffer_dicts: Mapping[str, torch.Tensor] | Sequence[Mapping[str, torch.Tensor]],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a torch module with other parameters and buffers in the place of its own.

    This is ``torch.func.functional_call``, for tensors; what is left out of the dicts is taken from the module, and the
    module is as it was afterwards.

    Args:
        module: the module.
        parameter_and_buffer_dicts: tensors by name, in one dict or in several.
        args: the argument, or a tuple of the arguments.
        kwargs: the keyword arguments.
        tie_weights: what is given for a tied parameter is given for all its names.
        strict: every parameter and buffer must be given, and none besides.

    Raises:
        UnsupportedKindError: for JAX arrays.

    >>> import torch
    >>> layer = torch.nn.Linear(2, 1)
    >>> functional_call(layer, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.tensor([1.0, 2.0]))
    tensor([3.])
    """
    if framework_of_values(parameter_and_buffer_dicts, args, kwargs) == "jax":
        raise core.UnsupportedKindError(
            "functional_call: the arguments hold JAX arrays, and this takes tensors; for arrays, "
            "tj_jaxify.torch_module_to_jax_with_buffers(module) gives a function of parameters and buffers"
        )
    dicts: Any = parameter_and_buffer_dicts
    return torch.func.functional_call(module, dicts, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(
    models: Sequence[torch.nn.Module] | torch.nn.ModuleList,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The parameters and the buffers of modules of one make, stacked along a new first dimension.

    This is ``torch.func.stack_module_state``: with :func:`vmap` and :func:`functional_call` it makes an ensemble of the
    modules. The tensors are copies.

    >>> import torch
    >>> from tj_func import vmap
    >>> models = [torch.nn.Linear(2, 1) for _ in range(3)]
    >>> params, buffers = stack_module_state(models)
    >>> params["weight"].shape
    torch.Size([3, 1, 2])
    >>> ensemble = vmap(lambda params, x: functional_call(models[0], params, x), in_dims=(0, None))
    >>> ensemble(params, torch.ones(5, 2)).shape
    torch.Size([3, 5, 1])
    """
    return torch.func.stack_module_state(models)
