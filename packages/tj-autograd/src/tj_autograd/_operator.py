"""The operator that stands for a call where torch records or simulates operators instead of executing them.

Under a dispatch mode (``make_fx``, ``torch.func.linearize``, fake tensors, AOTAutograd, a FLOP counter) a tensor may
have no values, and what is computed behind torch's back would be taken for a constant. There a call is one operator,
``(handle, tensors) -> tensors``, whose handle names the flat function and its constants.

A recorded program holds nothing but the handle. So what a handle names is kept as long as the process lives; the same
function with the same constants has the same handle.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import torch

from ._compat import enable_x64
from ._core import core
from ._flat import Flat
from ._outputs import Constants, Outputs

Tensors = tuple[torch.Tensor, ...]
Execute = Callable[[Flat, Constants, Tensors], Tensors]


class Callee(NamedTuple):
    """What a handle names."""

    flat: Flat
    constants: Constants
    x64: bool

    def key(self) -> Hashable:
        """Equal for callees that compute the same; arrays count by identity."""
        values = [(type(c), c) if isinstance(c, (int, float, complex)) else id(c) for c in self.constants]
        return id(self.flat), self.x64, *values

    def shapes(self, tensors: Tensors) -> Outputs:
        """What the function returns for tensors like these, with ``jax.ShapeDtypeStruct`` for arrays."""
        with enable_x64(self.x64):
            avals = tuple([jax.ShapeDtypeStruct(tuple(map(int, t.shape)), _jax_dtype(t.dtype)) for t in tensors])
            out: Outputs = jax.eval_shape(self.flat.run, self.constants, avals)
        if out.opaque:
            raise core.UnsupportedKindError(
                "fn: it returns a PRNG key, which has no place in a program that torch records; "
                "return jax.random.key_data(key) instead"
            )
        return out


def _jax_dtype(dtype: torch.dtype) -> Any:
    return jax.dtypes.canonicalize_dtype(jnp.dtype(str(dtype).removeprefix("torch.")))


def _torch_dtype(dtype: Any) -> torch.dtype:
    found: torch.dtype = getattr(torch, jnp.dtype(dtype).name)
    return found


_lock = threading.Lock()
_callees: list[Callee] = []
_handles: dict[Hashable, int] = {}


def handle_of(callee: Callee) -> int:
    """The number of ``callee``, from now on."""
    with _lock:
        handle = _handles.setdefault(callee.key(), len(_callees))
        if handle == len(_callees):
            _callees.append(callee)
        return handle


@functools.cache
def operator(execute: Execute) -> Any:
    """The operator, registered when it is first needed; its namespace is this package's path, vendored or not."""

    def call(handle: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        flat, constants, x64 = _callees[handle]
        with enable_x64(x64):
            return list(execute(flat, constants, tuple(tensors)))

    def fake(handle: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        out = _callees[handle].shapes(tuple(tensors))
        device = tensors[0].device
        return [torch.empty(o.shape, dtype=_torch_dtype(o.dtype), device=device) for o in out.smooth + out.rest]

    # The annotations of a nested function are strings here, and the schema is read from them.
    call.__annotations__ = {"handle": int, "tensors": list[torch.Tensor], "return": list[torch.Tensor]}
    name = f"{(__package__ or '').replace('.', '_')}::call"
    definition = torch.library.custom_op(name, call, mutates_args=())
    definition.register_fake(fake)
    return definition
