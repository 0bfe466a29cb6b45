"""Functions and modules handed to the conversions.

A converted function takes and gives values of the other framework. It computes no derivatives, and shows none that
are wrong: backward through it raises. What it returns shares memory with nothing that the caller holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import jax
import torch

from ._array import array_to_tensor, convert_array
from ._errors import GradientError
from ._siblings import owner
from ._tensor import convert_tensor, tensor_to_array
from ._tree import node_of, tree_flatten

Function = Callable[..., Any]
Framework = Literal["jax", "torch"]
_ATTRIBUTE = "__tj_origin__"


class Origin(NamedTuple):
    """What a function was before it was converted. ``wrapper`` tells a copied attribute from the real one."""

    wrapper: Function
    function: Any
    framework: Framework


def mark_origin(wrapper: Function, function: Any, framework: Framework) -> Function:
    """Note on ``wrapper`` that it is ``function`` of ``framework``, converted to the other one."""
    setattr(wrapper, _ATTRIBUTE, Origin(wrapper, function, framework))
    return wrapper


def origin_of(function: Any) -> Origin | None:
    """What ``function`` was before it was converted, or None if it never was."""
    origin = getattr(function, _ATTRIBUTE, None)
    return origin if isinstance(origin, Origin) and origin.wrapper is function else None


def _is_flax_module(value: Any) -> bool:
    return any(
        cls.__name__ == "Module" and cls.__module__.startswith(("flax.linen.", "flax.nnx."))
        for cls in type(value).__mro__
    )


def _is_function(value: Any) -> bool:
    return callable(value) and not isinstance(value, type | torch.Tensor | jax.Array) and node_of(value) is None


def torch_callable_to_jax(value: Any) -> Any:
    """The JAX counterpart of a torch function or module; None if ``value`` is neither."""
    if isinstance(value, torch.nn.Module):
        return owner("tj_jaxify", "tj-jaxify", f"the torch module {type(value).__name__}").torch_module_to_jax(value)
    if _is_flax_module(value) or not _is_function(value):
        return None
    return _converted(value, "torch", _over_arrays)


def jax_callable_to_torch(value: Any) -> Any:
    """The torch counterpart of a JAX function or Flax module; None if ``value`` is neither."""
    if _is_flax_module(value):
        return owner("tj_flax", "tj-flax", f"the Flax module {type(value).__name__}").flax_to_torch(value)
    if isinstance(value, torch.nn.Module) or not _is_function(value):
        return None
    return _converted(value, "jax", _over_tensors)


def _converted(function: Any, framework: Framework, wrap: Callable[[Any], Function]) -> Any:
    origin = origin_of(function)
    if origin is None:
        return mark_origin(wrap(function), function, framework)
    # Converted back, it is what it was; already on the other side, it stays there.
    return function if origin.framework == framework else origin.function


# ---- a torch function over arrays


def _over_arrays(function: Any) -> Function:
    @functools.wraps(function)
    def over_arrays(*args: Any, **kwargs: Any) -> Any:
        # Copied both ways: torch may write to its arguments, and may return memory that it will write to.
        args, kwargs = _map_leaves(jax.Array, lambda a: convert_array(a, None, True), (args, kwargs))
        return _map_leaves(torch.Tensor, lambda t: convert_tensor(t, None, True), function(*args, **kwargs))

    return over_arrays


def _map_leaves(cls: Any, convert: Callable[[Any], Any], tree: Any) -> Any:
    leaves, treedef = tree_flatten(tree)
    return treedef.unflatten([convert(leaf) if isinstance(leaf, cls) else leaf for leaf in leaves])


# ---- a JAX function over tensors


def _over_tensors(function: Any) -> Function:
    name = getattr(function, "__name__", repr(function))

    @functools.wraps(function)
    def over_tensors(*args: Any, **kwargs: Any) -> Any:
        leaves, treedef = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        args, kwargs = treedef.unflatten(
            [tensor_to_array(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        )
        # JAX does not write to its arguments, so they are shared; the conversion of the result waits for it.
        result = _unaliased(function(*args, **kwargs), tensors)
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return _severed(name, result, [tensor for tensor in tensors if tensor.requires_grad])
        return result

    return over_tensors


def _unaliased(result: Any, tensors: Iterable[torch.Tensor]) -> Any:
    """``result`` in tensors that share memory neither with the arguments nor with each other.

    ``jax.jit`` gives back the buffer of an argument for the identity, and one buffer for two equal results.
    """
    taken = {tensor.data_ptr() for tensor in tensors}

    def convert(array: jax.Array) -> torch.Tensor:
        tensor = array_to_tensor(array)
        address = tensor.data_ptr()
        if address in taken and address:
            return tensor.clone()
        taken.add(address)
        return tensor

    return _map_leaves(jax.Array, convert, result)


class _Severed(torch.autograd.Function):
    """The identity on its second argument, with an error where its gradient would be."""

    @staticmethod
    def forward(name: str, result: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return result.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise GradientError(
            f"{ctx.name}: a function converted by jax_to_torch has no derivatives; convert it with "
            "tj_autograd.jax_function_to_torch (pip install tj-autograd), or call it under torch.no_grad()"
        )


_apply_severed: Callable[..., torch.Tensor] = _Severed.apply


def _severed(name: str, result: Any, tensors: list[torch.Tensor]) -> Any:
    def sever(leaf: torch.Tensor) -> torch.Tensor:
        differentiable = leaf.is_floating_point() or leaf.is_complex()
        return _apply_severed(name, leaf, *tensors) if differentiable else leaf

    return _map_leaves(torch.Tensor, sever, result)
