"""A torch module as a Flax linen module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch

from ._core import core, jaxify
from ._flax import linen
from ._kinds import check_torch_module


class Source:
    """The function of a torch module and the weights it starts with. Equal to itself only: a static field."""

    def __init__(self, module: torch.nn.Module) -> None:
        self.title = type(module).__name__
        self.apply: Callable[..., Any] = jaxify.torch_module_to_jax(module)[0]
        weights = {name: core.torch_to_jax(p.detach(), copy=True) for name, p in module.named_parameters()}
        self.weights = _nested(weights)

    def __repr__(self) -> str:
        return self.title


class TorchModule(linen.Module):
    """A torch module as a linen module; made by :func:`torch_to_linen`."""

    source: Source

    @linen.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        params = {name: self._param(name, weights) for name, weights in self.source.weights.items()}
        return self.source.apply(_flat(params), *args, **kwargs)

    def _param(self, name: str, weights: Any) -> Any:
        # A name that this class has an attribute of, like "name", is refused by Module.param but not by the scope.
        assert self.scope is not None
        register = self.scope.param if hasattr(self, name) else self.param
        return register(name, lambda _key: jax.tree.map(lambda array: jnp.array(array, copy=True), weights))


def torch_to_linen(module: torch.nn.Module) -> TorchModule:
    """A torch module as a linen module, whose ``init`` gives the weights that the torch module has now.

    Args:
        module: an ``nn.Module`` with parameters and no buffers. Its structure and its modes (``train``/``eval``) are
            taken as they are; later changes of it are not seen.

    Returns:
        A ``flax.linen.Module``. ``init(key, *args)`` returns ``{"params": {...}}`` with copies of the torch weights
        (the key is not used), nested by the names of torch: the parameter ``0.weight`` is
        ``variables["params"]["0"]["weight"]``, in torch's layout. ``apply(variables, *args, **kwargs)`` takes and gives
        trees of arrays. It works under ``jit``, ``grad``, ``vmap``, in a ``TrainState``, and as a submodule of a larger
        linen module. To write trained values back::

            load_jax_params(module, flax.traverse_util.flatten_dict(variables["params"], sep="."))

    Gradients are those of torch; the gradient of a parameter with ``requires_grad=False`` is zero.

    Raises:
        UnsupportedKindError: if ``module`` is no ``nn.Module``, or has buffers. What
            ``tj_jaxify.torch_module_to_jax`` raises, for example in the call if the module draws random numbers.

    >>> import jax, jax.numpy as jnp, torch
    >>> model = torch_to_linen(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))
    >>> variables = model.init(jax.random.key(0), jnp.ones((1, 3)))
    >>> jax.tree.map(jnp.shape, variables)
    {'params': {'0': {'bias': (2,), 'weight': (2, 3)}}}
    >>> model.apply(variables, jnp.ones((5, 3))).shape
    (5, 2)
    """
    return TorchModule(Source(check_torch_module(module)))


def _nested(weights: Mapping[str, jax.Array]) -> dict[str, Any]:
    """``{"0.weight": w}`` as ``{"0": {"weight": w}}``."""
    tree: dict[str, Any] = {}
    for name, array in weights.items():
        *parents, last = name.split(".")
        node = tree
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = array
    return tree


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"0": {"weight": w}}`` as ``{"0.weight": w}``."""
    flat: dict[str, Any] = {}
    for key, child in tree.items():
        flat |= _flat(child, f"{prefix}{key}.") if isinstance(child, Mapping) else {prefix + key: child}
    return flat
