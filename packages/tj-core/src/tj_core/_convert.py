"""The two conversions: what the user hands in is recognised here, and given to the module that knows it."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import torch

from ._array import array_to_tensor, convert_array
from ._callables import jax_callable_to_torch, torch_callable_to_jax
from ._devices import as_jax_device, as_torch_device, jax_device_of, torch_device_of
from ._dtypes import is_jax_dtype, jax_dtype_of, torch_dtype_of
from ._exchange import EXCHANGE
from ._tensor import PLAIN_CLASSES, convert_tensor, plain_to_array, tensor_to_array
from ._walk import Walk


def torch_to_jax(value: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Convert a tensor, a tree of tensors, a torch function or a ``torch.nn.Module`` to its JAX counterpart.

    Args:
        value: a tensor of any shape, or a container of tensors: tuple, list, dict (any key), ``OrderedDict``,
            ``defaultdict``, namedtuple, dataclass, or a class registered as a pytree with either framework, nested in
            each other. Python scalars, strings, None, NumPy arrays, arrays and unknown objects pass through by
            identity. Structure, types, key order, None, and sharing inside the tree (one tensor met twice becomes one
            array) survive. A ``torch.device`` becomes the JAX device of the same memory, and a dtype the dtype that a
            tensor of it becomes.
            A function becomes a function from arrays to arrays; it may be used as a decorator. A module goes to
            ``tj_jaxify.torch_module_to_jax``.
        device: where the arrays shall be: a ``jax.Device``, a ``jax.sharding.Sharding``, a ``torch.device`` or a
            string. By default they stay where the tensors are.
        copy: None shares memory where it can be shared and copies elsewhere; True never shares; False shares or
            raises. The arrays have the dtypes of the tensors; while ``jax_enable_x64`` is off, 64-bit types become
            32-bit ones by copy.

    Returns:
        The same structure with arrays of the same shapes. A tensor that requires grad is converted detached:
        the gradient does not cross here (``tj_jaxify`` converts functions with their gradients).
        An array that shares memory sees what torch writes there later, although JAX takes arrays to be immutable: a
        computation that JAX has not finished may see it too. Pass ``copy=True``, or block on the result first.

    Raises:
        SharingError: ``copy=False`` and the memory cannot be shared.
        UnsupportedDtypeError: JAX has no such dtype.
        UnsupportedKindError: a sparse, nested, quantized, meta or fake tensor, or one that ``torch.func`` has wrapped.
        ValueRangeError: an integer does not fit 32 bits while ``jax_enable_x64`` is off.
        DeviceError: JAX does not have the device.
        TreeDepthError: the containers are nested too deeply or contain themselves.

    Warns:
        PrecisionLossWarning: once per process, when float64 or complex128 lose precision.

    Example:
        >>> import torch
        >>> from tj_core import torch_to_jax
        >>> tensor = torch.arange(3, dtype=torch.float32)
        >>> tree = torch_to_jax({"x": tensor, "names": ("a", None)})
        >>> tree["x"].shape, tree["names"]
        ((3,), ('a', None))
    """
    if device is None and copy is None:
        if type(value) in PLAIN_CLASSES:
            return plain_to_array(value)
        plain, convert = plain_to_array, tensor_to_array
    else:
        target = None if device is None else as_jax_device(device)
        plain = convert = partial(convert_tensor, device=target, copy=copy)
    function = torch_callable_to_jax(value)
    if function is not None:
        return function
    return Walk(PLAIN_CLASSES, plain, partial(_other_to_jax, convert))(value)


def _other_to_jax(convert: Any, leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return convert(leaf)
    if isinstance(leaf, torch.device):
        return jax_device_of(leaf)
    return jax_dtype_of(leaf) if isinstance(leaf, torch.dtype) else leaf


def jax_to_torch(value: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """Convert an array, a tree of arrays, a JAX function or a Flax module to its torch counterpart.

    Args:
        value: an array of any shape, or a container of arrays: tuple, list, dict (any key), ``OrderedDict``,
            ``defaultdict``, namedtuple, dataclass, or a class registered as a pytree with either framework, nested in
            each other. Python scalars, strings, None, NumPy arrays, tensors and unknown objects pass through by
            identity. Structure, types, key order, None, and sharing inside the tree survive. A JAX device becomes the
            ``torch.device`` of the same memory, and a dtype the dtype of the same name.
            A function becomes a function from tensors to tensors; it may be used as a decorator. Its outputs carry no
            gradient: backward through them raises :class:`GradientError` (``tj_autograd.jax_function_to_torch``
            converts functions with their derivatives). A Flax module goes to ``tj_flax.flax_to_torch``.
        device: where the tensors shall be: a ``torch.device``, a string or a ``jax.Device``. By default they stay
            where the arrays are.
        copy: None shares memory where it can be shared; True never shares; False shares or raises.

    Returns:
        The same structure with tensors of the same shapes and dtypes, none of which requires grad. The call waits for
        the arrays. Writing to a tensor that shares memory changes an array that JAX takes to be immutable: pass
        ``copy=True`` for a tensor that will be written to. A fully replicated array gives its local shard.

    Raises:
        SharingError: ``copy=False`` and the memory cannot be shared.
        UnsupportedDtypeError: torch has no such dtype.
        UnsupportedKindError: a tracer, a typed PRNG key, a deleted array, or an array sharded over several devices.
        DeviceError: torch does not have the device.
        TreeDepthError: the containers are nested too deeply or contain themselves.

    Example:
        >>> import jax.numpy as jnp
        >>> from tj_core import jax_to_torch
        >>> jax_to_torch([jnp.ones((2, 2)), 3])
        [tensor([[1., 1.],
                [1., 1.]]), 3]
    """
    if device is None and copy is None:
        convert: Any = array_to_tensor
    else:
        target = None if device is None else as_torch_device(device)
        convert = partial(convert_array, device=target, copy=copy)
    if type(value) in EXCHANGE.array_classes or isinstance(value, jax.Array):
        return convert(value)
    function = jax_callable_to_torch(value)
    if function is not None:
        return function
    return Walk(EXCHANGE.array_classes, convert, partial(_other_to_torch, convert))(value)


def _other_to_torch(convert: Any, leaf: Any) -> Any:
    if isinstance(leaf, jax.Array):
        return convert(leaf)
    if isinstance(leaf, jax.Device):
        return torch_device_of(leaf)
    return torch_dtype_of(leaf) if is_jax_dtype(leaf) else leaf
