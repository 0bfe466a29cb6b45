"""What can cross: which modules and which variables are accepted, and an error for each that is not yet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import torch

from ._core import core
from ._flax import linen, unfreeze
from ._state import leaves_of


def check_linen_module(module: Any) -> linen.Module:
    """``module``, if it is an instance of a linen module."""
    if isinstance(module, linen.Module):
        return module
    if _is_nnx(module):
        raise core.UnsupportedKindError(
            f"module: {type(module).__name__} is a flax.nnx module, and only flax.linen modules are supported yet; "
            "split it with nnx.split and wrap the pure function with tj_autograd.WrappedJaxFunction"
        )
    hint = "; make an instance of it" if isinstance(module, type) and issubclass(module, linen.Module) else ""
    raise core.UnsupportedKindError(f"module: expected a flax.linen.Module, found {module!r}{hint}")


def _is_nnx(module: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")  # not imported for this: it brings optax
    return nnx is not None and isinstance(module, nnx.Module)


def check_variables(variables: Any) -> dict[str, Any]:
    """``variables`` as plain dicts, if they are those of a module and hold parameters only."""
    if variables is None:
        raise core.UnsupportedKindError(
            "variables: expected what module.init returned, found None; initialising on the first call is not "
            "supported yet: pass variables = module.init(key, example)"
        )
    if not isinstance(variables, Mapping) or not all(isinstance(value, Mapping) for value in variables.values()):
        raise core.UnsupportedKindError(
            f"variables: expected {{'params': {{...}}}} as module.init returns it, found {_outline(variables)}"
        )
    others = sorted(map(str, variables.keys() - {"params"}))
    if others:
        raise core.UnsupportedKindError(
            f"variables: the collections {others} are not supported yet, only 'params' is; take them as arguments of a "
            "function and wrap it with tj_autograd.jax_function_to_torch"
        )
    for _ in leaves_of(variables):
        pass
    plain: dict[str, Any] = unfreeze(dict(variables))
    return plain


def check_torch_module(module: Any) -> torch.nn.Module:
    """``module``, if it is a torch module that has parameters only."""
    if not isinstance(module, torch.nn.Module):
        raise core.UnsupportedKindError(f"module: expected a torch.nn.Module, found {module!r}")
    buffers = [name for name, _ in module.named_buffers()]
    if buffers:
        raise core.UnsupportedKindError(
            f"module: {type(module).__name__} has the buffers {buffers}, which are not supported yet, only parameters "
            "are; use tj_jaxify.torch_module_to_jax_with_buffers"
        )
    return module


def _outline(variables: Any) -> str:
    if not isinstance(variables, Mapping):
        return f"{type(variables).__module__}.{type(variables).__qualname__}"
    return "{" + ", ".join(f"{key!r}: {type(value).__name__}" for key, value in variables.items()) + "}"
