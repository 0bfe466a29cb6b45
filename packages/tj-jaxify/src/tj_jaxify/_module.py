"""A torch module as a JAX function of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._capture import Observed, observing
from ._core import core
from ._errors import ParameterError, StateError
from ._function import Backend, Jaxified, check_backend
from ._shell import Shell
from ._spec import spec_of_tensor

Arrays = Mapping[str, Any]


class _Module:
    """A module as it was when it was wrapped: its structure, its modes, its parameters, and copies of its buffers."""

    def __init__(self, model: nn.Module) -> None:
        _check_module(model)
        self.name = type(model).__name__
        buffers = {id(b): _as_jax_has_it(b.detach().clone()) for b in model.buffers()}
        self.module = Shell(model, buffers).module
        self.parameters = dict(self.module.named_parameters())
        self.buffers = dict(self.module.named_buffers())

    def with_tensors(self, parameters: Sequence[Tensor], buffers: Sequence[Tensor] | None = None) -> nn.Module:
        """A module for one call, with these in the place of its parameters and buffers."""
        given = [
            t if p.requires_grad else t.detach() for p, t in zip(self.parameters.values(), parameters, strict=True)
        ]
        replaced = dict(zip(map(id, self.parameters.values()), given, strict=True))
        if buffers is not None:
            replaced.update(zip(map(id, self.buffers.values()), buffers, strict=True))
        return Shell(self.module, replaced).module

    def refuse_closures(self, observed: Observed) -> None:
        """Refuse a forward that reaches a parameter around the module, where no other can be put in its place."""
        own = {p.untyped_storage()._cdata: name for name, p in self.parameters.items()}
        for tensor in observed.read.values():
            name = own.get(tensor.untyped_storage()._cdata)
            if name is not None:
                raise StateError(
                    f"{self.name}: forward reaches the parameter {name!r} through a closure or a global and not "
                    "through the module, so the value given for it would be ignored; read it from self"
                )

    def refuse_updates(self, observed: Observed) -> None:
        """Refuse a forward that updates buffers, for a caller that cannot return them."""
        self.refuse_closures(observed)
        if observed.captured:
            own = {b.untyped_storage()._cdata: name for name, b in self.buffers.items()}
            names = sorted({own.get(t.untyped_storage()._cdata, "a tensor it closes over") for t in observed.captured})
            raise self._update_error(names)

    def refuse_other_writes(self, observed: Observed) -> None:
        """Refuse a forward that writes to tensors which are neither its parameters nor its buffers."""
        self.refuse_closures(observed)
        if observed.captured:
            raise StateError(
                f"{self.name} edits in place a tensor of shape {tuple(observed.captured[0].shape)} that is no buffer "
                "of it, so its new value could not be returned; register it with register_buffer"
            )

    def _update_error(self, names: Sequence[str]) -> StateError:
        return StateError(
            f"{self.name} updates state when it runs ({', '.join(names)}), and torch_module_to_jax has no place to "
            "return it; use torch_module_to_jax_with_buffers, or put the module into eval()"
        )

    def refuse_rebinding(self, module: nn.Module) -> None:
        """Refuse a forward that has put new tensors into the buffers of ``module``."""
        now = dict(module.named_buffers())
        names = [name for name, buffer in self.buffers.items() if now.get(name) is not buffer]
        if names:
            raise self._update_error(names)


def _as_jax_has_it(tensor: Tensor) -> Tensor:
    """float64 as float32 while x64 is off, as the parameters beside it; integers stay, they are not shown to JAX."""
    narrow = tensor.is_floating_point() or tensor.is_complex()
    return tensor.to(spec_of_tensor(tensor, "buffer").dtype) if narrow else tensor


def _check_module(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise core.UnsupportedKindError(
            f"model: expected a torch.nn.Module, got {type(model).__name__}; use torch_function_to_jax for a function"
        )
    if isinstance(model, torch.jit.ScriptModule):
        raise core.UnsupportedKindError("model: a ScriptModule hides its structure; pass the module it was made from")
    lazy = [name for name, p in model.named_parameters() if nn.parameter.is_lazy(p)]
    if lazy:
        raise ParameterError(f"model: {lazy[0]!r} has no shape yet; call the module once in torch before wrapping it")


def _named(what: str, given: Any, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """``given`` (a mapping by name, or a sequence in order) by name, checked against the module's own."""
    if not isinstance(given, Mapping):
        given = list(given)
        if len(given) != len(tensors):
            raise ParameterError(f"{what}: expected {len(tensors)} arrays in the order of the module, got {len(given)}")
        given = dict(zip(tensors, given, strict=True))
    missing, unknown = tensors.keys() - given.keys(), given.keys() - tensors.keys()
    if missing or unknown:
        raise ParameterError(f"{what}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    for name, tensor in tensors.items():
        if tuple(given[name].shape) != tuple(tensor.shape):
            raise ParameterError(
                f"{what}[{name!r}]: expected the shape {tuple(tensor.shape)}, got {tuple(given[name].shape)}"
            )
    return {name: given[name] for name in tensors}


def torch_module_to_jax(
    model: nn.Module, example_output: Any = None, *, backend: Backend = "auto"
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The module as a JAX function ``apply(params, *args, **kwargs)``, and its parameters as JAX arrays.

    ``params`` is a tuple in the order of ``model.named_parameters()``: a tied parameter is one array with one gradient,
    one with ``requires_grad=False`` is there and its gradient is zero. The arrays share memory with the model where
    they can (:func:`load_jax_params` writes trained values back). ``example_output`` is accepted and never needed.

    ``apply`` takes and gives trees of arrays and composes with every transform of JAX; see
    :func:`torch_function_to_jax` for what it does with other arguments, dtypes and errors. Structure, modes
    (``train``/``eval``) and buffers are those that the model has now; later changes of the model do not reach it, and
    ``apply`` does not change the model.

    Raises ``BackendError`` for ``backend="xla"``; when JAX traces ``apply``, ``RandomnessError`` for a module that
    draws random numbers and ``StateError`` for one that updates buffers, as dropout and batch normalisation do in
    training: use :func:`torch_module_to_jax_with_buffers`.

    >>> import jax, jax.numpy as jnp, torch
    >>> apply, params = torch_module_to_jax(torch.nn.Linear(3, 2))
    >>> [p.shape for p in params], apply(params, jnp.ones((5, 3))).shape
    ([(2, 3), (2,)], (5, 2))
    >>> grads = jax.jit(jax.grad(lambda params, x: apply(params, x).sum()))(params, jnp.ones((5, 3)))
    >>> grads[1].tolist()
    [5.0, 5.0]
    """
    check_backend(backend)
    wrapped = _Module(model)

    def function(params: Sequence[Tensor], args: Any, kwargs: Any) -> Any:
        module = wrapped.with_tensors(params)
        out = module(*args, **kwargs)
        if observing():
            wrapped.refuse_rebinding(module)
        return out

    declared = tuple(p.dtype for p in wrapped.parameters.values())
    call = Jaxified(function, wrapped.name, wrapped.refuse_updates, declared)

    def apply(params: Any, /, *args: Any, **kwargs: Any) -> Any:
        given = _named("params", params, wrapped.parameters)
        return call((tuple(given.values()), args, kwargs), {})

    return apply, tuple(core.torch_to_jax(p) for p in wrapped.parameters.values())


def torch_module_to_jax_with_buffers(
    model: nn.Module, *, backend: Backend = "auto"
) -> tuple[Callable[..., Any], dict[str, Any], dict[str, Any]]:
    """The module as ``apply(params, buffers, *args, rng=None, train=None, **kwargs) -> (out, new_buffers)``.

    ``params`` and ``buffers`` are dicts by name, in the order of the module. Parameters share memory with the model
    where they can; buffers are copies. ``new_buffers`` has the structure of ``buffers``: what forward has updated is
    new, the rest is given back. ``rng`` is a JAX key, from which everything random is drawn, the same in forward and
    backward. ``train`` sets the mode of the whole module, or, if None or the mode it already has, leaves each part
    in the mode that it had when it was wrapped.

    Otherwise as :func:`torch_module_to_jax`.

    >>> import jax, jax.numpy as jnp, torch
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(2, momentum=0.5), torch.nn.Dropout(0.5))
    >>> apply, params, buffers = torch_module_to_jax_with_buffers(model)
    >>> out, new = apply(params, buffers, jnp.ones((4, 2)), rng=jax.random.key(0), train=True)
    >>> new["0.running_mean"].tolist(), buffers["0.running_mean"].tolist()
    ([0.5, 0.5], [0.0, 0.0])
    """
    check_backend(backend)
    wrapped = _Module(model)

    def function(
        train: bool | None, params: Sequence[Tensor], buffers: Sequence[Tensor], args: Any, kwargs: Any
    ) -> Any:
        module = wrapped.with_tensors(params, buffers)
        if train is not None and train is not module.training:
            module.train(train)
        out = module(*args, **kwargs)
        now = dict(module.named_buffers(remove_duplicate=False))
        return out, {name: now[name] for name in wrapped.buffers}

    declared = tuple(t.dtype for t in (*wrapped.parameters.values(), *wrapped.buffers.values()))
    call = Jaxified(function, wrapped.name, wrapped.refuse_other_writes, declared)

    def apply(
        params: Any, buffers: Any, /, *args: Any, rng: Any = None, train: bool | None = None, **kwargs: Any
    ) -> tuple[Any, dict[str, Any]]:
        given = _named("params", params, wrapped.parameters), _named("buffers", buffers, wrapped.buffers)
        values = (tuple(g.values()) for g in given)
        return call((train, *values, args, kwargs), {}, rng)  # type: ignore[no-any-return]

    return apply, *(
        {name: core.torch_to_jax(t.detach(), copy=copy) for name, t in tensors.items()}
        for tensors, copy in ((wrapped.parameters, None), (wrapped.buffers, True))
    )  # type: ignore[return-value]


def load_jax_params(model: nn.Module, params: Any, buffers: Any = None) -> None:
    """Write JAX values into the parameters of ``model``, and into its buffers where these are given.

    ``params`` and ``buffers`` are what :func:`torch_module_to_jax` or :func:`torch_module_to_jax_with_buffers` gave, or
    trees of the same structure: a sequence in the order of the module, or a mapping by name. Values are copied and cast
    to the dtypes and devices of the model; parameters stay the same objects, so optimizers keep working, but are given
    memory of their own, because the old may be that of JAX arrays. No gradient flows. Raises ``ParameterError``, before
    anything is written, if names, number or shapes do not fit.

    >>> import torch
    >>> model = torch.nn.Linear(3, 2)
    >>> apply, params = torch_module_to_jax(model)
    >>> load_jax_params(model, [p * 0 + 1 for p in params])
    >>> model.bias.tolist()
    [1.0, 1.0]
    """
    _check_module(model)
    own: list[tuple[str, Any, dict[str, Tensor]]] = [("params", params, dict(model.named_parameters()))]
    if buffers is not None:
        own.append(("buffers", buffers, dict(model.named_buffers())))
    checked = [(_named(what, given, tensors), tensors) for what, given, tensors in own]
    with torch.no_grad():
        for values, tensors in checked:
            for name, tensor in tensors.items():
                tensor.data = torch.empty_like(tensor).copy_(core.jax_to_torch(values[name]))
