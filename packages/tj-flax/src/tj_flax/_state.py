"""State: the variables of a Flax module as a flat dict of tensors with readable names, and back again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
import torch

from ._core import autograd_names, core
from ._errors import StateNameError

Path = tuple[str | int, ...]
_LEAF = jax.Array | np.ndarray | np.generic


def variables_to_state_dict(variables: Mapping[str, Any], /) -> dict[str, torch.Tensor]:
    """The variables of a Flax module as a torch state dict: ``{"params.Dense_0.kernel": tensor, ...}``.

    Args:
        variables: nested dicts (a ``FrozenDict`` too) of JAX or NumPy arrays, as ``module.init`` gives them: any
            collections, any depth; keys are strings or whole numbers. Layouts and dtypes are left as they are.

    Returns:
        A flat dict in the order of ``variables``. The tensors are copies, equal to the bit, on the device of the
        array; none shares memory with ``variables``. No gradient flows through.

    The names are those of the module that :func:`flax_to_torch` makes, which loads such a dict: the path of the leaf,
    its keys joined by dots. A whole number is written as its digits, and a string of digits has the first one
    percent-encoded (``"%30"``), as have the dots and percent signs in any key: :func:`state_dict_to_variables` reads
    every name back to the path it came from.

    Raises:
        UnsupportedKindError: for a leaf that is no array (a boxed parameter, a PRNG key, a number), an empty dict
            inside ``variables``, or a list or tuple: none of these has a place in a flat dict of tensors.

    >>> import jax.numpy as jnp
    >>> variables = {"params": {"Dense_0": {"kernel": jnp.ones((2, 3)), "bias": jnp.zeros(3)}}}
    >>> {name: tuple(tensor.shape) for name, tensor in variables_to_state_dict(variables).items()}
    {'params.Dense_0.kernel': (2, 3), 'params.Dense_0.bias': (3,)}
    """
    return {_name_of(path): _to_tensor(path, leaf) for path, leaf in leaves_of(variables)}


def state_dict_to_variables(state_dict: Mapping[str, torch.Tensor], /) -> dict[str, Any]:
    """A flat dict of tensors named by path, as the nested variables of a Flax module.

    The inverse of :func:`variables_to_state_dict`; the containers that come back are plain dicts.

    Args:
        state_dict: names to tensors, from :func:`variables_to_state_dict`, from the ``state_dict()`` of a module made
            by :func:`flax_to_torch`, or from a safetensors file of either.

    Returns:
        Nested dicts of JAX arrays: copies, equal to the bit where JAX has the dtype (64-bit values are narrowed while
        ``jax_enable_x64`` is off, as ``tj_core.torch_to_jax`` describes). No gradient flows through.

    Raises:
        StateNameError: if one name is the beginning of another: ``"params.a"`` beside ``"params.a.b"``.
        UnsupportedKindError: for a value that is no tensor.

    >>> import torch
    >>> variables = state_dict_to_variables({"params.Dense_0.bias": torch.zeros(3)})
    >>> variables["params"]["Dense_0"]["bias"].shape
    (3,)
    """
    variables: dict[str, Any] = {}
    for name, tensor in state_dict.items():
        if not isinstance(tensor, torch.Tensor):
            raise core.UnsupportedKindError(
                f"state_dict[{name!r}]: expected a torch.Tensor, found {_kind(tensor)}; leave it out"
            )
        _insert(variables, name, core.torch_to_jax(tensor, copy=True))
    return variables


def leaves_of(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The path and the value of each leaf of nested dicts of arrays; an error for anything else."""
    if not isinstance(tree, Mapping):
        yield path, _checked(path, tree)
        return
    if path and not tree:
        raise core.UnsupportedKindError(f"{_where(path)}: an empty dict has no leaf to name; remove it first")
    for key, child in tree.items():
        if isinstance(key, bool) or not isinstance(key, str | int):
            raise core.UnsupportedKindError(f"{_where(path)}: the key {key!r} is neither a string nor a whole number")
        yield from leaves_of(child, (*path, key))


def _checked(path: Path, leaf: Any) -> Any:
    if not isinstance(leaf, _LEAF):
        raise core.UnsupportedKindError(
            f"{_where(path)}: expected a dict or an array, found {_kind(leaf)}; "
            "unbox a boxed parameter with flax.linen.meta.unbox, turn a list into a dict, a number into an array"
        )
    return leaf


def _name_of(path: Path) -> str:
    return ".".join(map(autograd_names.encode, path))


def _path_of(name: str) -> Path:
    return tuple(map(autograd_names.decode, name.split(".")))


def _to_tensor(path: Path, leaf: Any) -> torch.Tensor:
    try:
        tensor: torch.Tensor = core.jax_to_torch(leaf, copy=True) if isinstance(leaf, jax.Array) else _from_numpy(leaf)
    except core.TJError as error:
        error.add_note(f"(the leaf is {_where(path)})")
        raise
    return tensor


def _from_numpy(leaf: np.ndarray[Any, Any] | np.generic) -> torch.Tensor:
    if leaf.dtype.isbuiltin == 2:  # bfloat16 and the like, which only JAX hands on
        tensor: torch.Tensor = core.jax_to_torch(jax.numpy.asarray(leaf), copy=True)
        return tensor
    try:
        return torch.from_numpy(np.array(leaf, leaf.dtype.newbyteorder("="), order="C"))
    except TypeError as error:
        raise core.UnsupportedDtypeError(f"torch has no dtype for the NumPy dtype {leaf.dtype}; convert it") from error


def _insert(variables: dict[str, Any], name: str, array: jax.Array) -> None:
    *parents, last = _path_of(name)
    node: Any = variables
    for key in parents:
        node = node.setdefault(key, {})
        if not isinstance(node, dict):
            raise StateNameError(f"state_dict: {name!r} goes below {key!r}, which another name made an array")
    if last in node:
        raise StateNameError(f"state_dict: {name!r} is an array, and other names go below it; rename one of them")
    node[last] = array


def _where(path: Path) -> str:
    return "variables" + "".join(f"[{key!r}]" for key in path)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
