"""A JAX function of parameters and inputs as a ``torch.nn.Module`` that owns the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ._compat import untraced
from ._compiled import Rebuild, in_graph, name_of
from ._core import core
from ._function import JaxFunction
from ._names import ROOT, Path, named_leaves
from ._pickling import Portable
from ._sharing import SharedArrays, Tensors


class _Over:
    """``fn`` with its first argument given as a tuple of leaves; pickles if ``fn`` and the containers do."""

    def __init__(self, fn: Callable[..., Any], skeleton: Any) -> None:
        self.fn, self.skeleton = fn, skeleton  # the tree of the parameters, with the place of a leaf as that leaf
        self.treedef = jax.tree_util.tree_structure(skeleton)

    def __call__(self, leaves: tuple[Any, ...], /, *args: Any, **kwargs: Any) -> Any:
        return self.fn(jax.tree_util.tree_unflatten(self.treedef, leaves), *args, **kwargs)

    def __reduce__(self) -> Any:
        return _Over, (Portable(self.fn), self.skeleton)


class ParameterTree(torch.nn.Module):
    """One container of the tree of parameters: its leaves are parameters and buffers, its containers are children."""

    def extra_repr(self) -> str:
        leaves = {**self._parameters, **self._buffers}
        return ", ".join(f"{k}: {str(t.dtype)[6:]}{list(t.shape)}" for k, t in leaves.items() if t is not None)


def place(module: torch.nn.Module, path: Path, tensor: torch.Tensor) -> None:
    """Register ``tensor`` in ``module`` under ``path``, making the containers on the way.

    The registries are written to directly, since ``register_parameter`` refuses names that ``Module`` has attributes
    for, and a key of a pytree may be any ("type", "training", "forward").
    """
    *branches, last = path
    for branch in branches:
        module = module._modules.setdefault(branch, ParameterTree())  # type: ignore[assignment]
    if isinstance(tensor, torch.nn.Parameter):
        module._parameters[last] = tensor
    else:
        module._buffers[last] = tensor


def find(module: torch.nn.Module, path: Path) -> Any:
    """The tensor at ``path`` as it is now; a parametrization or a swapped parameter is seen."""
    *branches, last = path
    for branch in branches:
        module = module._modules[branch]  # type: ignore[assignment]
    for registry in (module._parameters, module._buffers):
        tensor = registry.get(last)
        if tensor is not None:
            return tensor
    return getattr(module, last)


class WrappedJaxFunction(torch.nn.Module):
    """A JAX function of parameters and inputs as a module: ``module(*args)`` is ``jax_function(params, *args)``.

    Args:
        jax_function: called as ``jax_function(params, *args, **kwargs)``; jitted or not.
        jax_params: any JAX pytree. Floating-point and complex leaves become parameters, integer and boolean arrays
            become buffers, and other leaves (PRNG keys, functions, strings, Python integers) stay as they are. One
            array that is met twice becomes one parameter.
        has_aux: ``jax_function`` returns ``(out, aux)``, and so does the module; ``aux`` has no gradient.
        clone_params: the module has its own copy. With False it shares the memory of the JAX arrays, which an
            optimizer will then write to although JAX takes them to be immutable.

    Parameter names follow the path in the tree: ``params.Dense_0.kernel`` for ``{"params": {"Dense_0": {"kernel":``
    and for ``{"Dense_0": {"kernel":`` alike, ``params.0`` for a bare array. A ``state_dict`` with positional names
    (``params.0``, ``params.1``, ... in the order of ``jax.tree.leaves``) loads too.

    Arguments, results, gradients and errors are those of :func:`jax_function_to_torch`.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import torch
        >>> def apply(params, x):
        ...     return jax.nn.relu(x @ params["kernel"] + params["bias"])
        >>> head = WrappedJaxFunction(apply, {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)})
        >>> model = torch.nn.Sequential(torch.nn.Linear(5, 2), head)
        >>> model(torch.zeros(4, 5)).sum().backward()
        >>> {name: tuple(p.grad.shape) for name, p in head.named_parameters()}
        {'params.bias': (3,), 'params.kernel': (2, 3)}
    """

    _scalar = False

    def __init__(
        self, jax_function: Callable[..., Any], jax_params: Any, has_aux: bool = False, clone_params: bool = True
    ) -> None:
        super().__init__()
        leaves, treedef = named_leaves(jax_params)
        skeleton = jax.tree_util.tree_unflatten(treedef, range(len(leaves)))
        self._function = JaxFunction(_Over(jax_function, skeleton), has_aux, (), (), self._scalar)
        self._leaves: list[tuple[Path | None, Any]] = []  # (path of the tensor, None), or (None, what stays as it is)
        tensors: dict[int, torch.Tensor] = {}
        for path, leaf in leaves:
            if not _has_tensor(leaf):
                self._leaves.append((None, leaf))
                continue
            tensor = tensors.get(id(leaf))
            if tensor is None:
                tensor = _to_tensor(leaf, clone_params)
            if not isinstance(leaf, (float, complex)):  # equal numbers are one object by chance
                tensors[id(leaf)] = tensor
            place(self, path, tensor)
            self._leaves.append((path, None))
        self._paths = [path for path, _ in self._leaves if path is not None]
        self._shared = SharedArrays(len(self._paths))
        self._in_graph = name_of(self)

    @property
    def jax_function(self) -> Callable[..., Any]:
        """The function as it was given."""
        over: Any = self._function.__wrapped__
        function: Callable[..., Any] = over.fn
        return function

    @property
    def has_aux(self) -> bool:
        """Whether the function returns ``(out, aux)``."""
        return self._function.has_aux

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            tensors = tuple([find(self, path) for path in self._paths])
            return in_graph(self._in_graph, self._outside, (tensors, *args), kwargs)
        leaves = tuple([fixed if path is None else find(self, path) for path, fixed in self._leaves])
        return self._function.call(self._shared, (leaves, *args), kwargs)

    @untraced
    def _outside(self, tensors: Tensors, *args: Any, **kwargs: Any) -> Any:
        return self._function.call(self._shared, (self._with_fixed(tensors), *args), kwargs)

    def _flat_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensors, Rebuild]:
        """See :class:`._compiled.Owner`; the first argument holds the leaves that are tensors."""
        return self._function._flat_call((self._with_fixed(args[0]), *args[1:]), kwargs)

    def _with_fixed(self, tensors: Tensors) -> tuple[Any, ...]:
        """All leaves of the parameters, given those that are tensors."""
        left = iter(tensors)
        return tuple([fixed if path is None else next(left) for path, fixed in self._leaves])

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._in_graph = name_of(self)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self._shared.clear()  # the parameters may move, and their old memory be needed
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def extra_repr(self) -> str:
        return repr(self.jax_function)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        self._rename_positional(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _rename_positional(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Give positional names, if that is what the checkpoint has, the names of the paths."""
        names = [prefix + ".".join(path) for path in self._paths]
        positions = [f"{prefix}{ROOT}.{i}" for i in range(len(names))]
        mine = {key for key in state_dict if key.startswith(prefix)}
        if mine == set(positions) and mine != set(names):
            for name, value in zip(names, [state_dict.pop(p) for p in positions], strict=True):
                state_dict[name] = value


class WrappedJaxScalarFunction(WrappedJaxFunction):
    """:class:`WrappedJaxFunction` for a function that returns one real number, such as a loss.

    Value and gradient are computed in one pass by the forward, and ``backward()`` only scales the gradient: cheaper
    in memory, as no residuals are kept, and dearer if the backward is never called. Without gradients (under
    ``torch.no_grad``) only the value is computed.

    Raises:
        tj_core.UnsupportedKindError: the function returns anything but one real number of shape ().

    Example:
        >>> import jax.numpy as jnp
        >>> import torch
        >>> loss = WrappedJaxScalarFunction(lambda w, x: jnp.sum((x * w) ** 2), jnp.ones(2))
        >>> loss(torch.tensor([1.0, 2.0])).backward()
        >>> loss.get_parameter("params.0").grad
        tensor([2., 8.])
    """

    _scalar = True


def _has_tensor(leaf: Any) -> bool:
    """Whether this leaf of the parameters becomes a tensor; PRNG keys, functions, strings and Python ints do not."""
    if isinstance(leaf, jax.Array):
        return not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)
    return isinstance(leaf, (float, complex, np.ndarray, np.generic, torch.Tensor))


def _to_tensor(leaf: Any, clone: bool) -> torch.Tensor:
    tensor: torch.Tensor = leaf if isinstance(leaf, torch.Tensor) else core.jax_to_torch(jnp.asarray(leaf))
    tensor = tensor.detach().clone() if clone or not isinstance(leaf, jax.Array) else tensor.detach()
    return torch.nn.Parameter(tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor
