"""The exchange itself: memory of one framework in the hands of the other, for CPU memory (CUDA: :mod:`._cuda`).

Two ways lead across. The public one is ``jax.dlpack.from_dlpack`` and ``torch.from_dlpack``. The private one calls the
functions beneath them and costs a tenth; it is taken only after a probe, made once, has seen it work. Set
``TJ_CORE_EXCHANGE=public`` to do without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
import torch
import torch.utils.dlpack

from ._devices import default_cpu_device
from ._dtypes import ROW_OF_TORCH, TORCH_TO_JAX, WIDE

Way = Literal["private", "public"]
ENVIRONMENT_VARIABLE = "TJ_CORE_EXCHANGE"


class Functions(NamedTuple):
    """One way across: ``take(to_capsule(tensor), device, None)`` and ``from_capsule(give(array))``."""

    to_capsule: Callable[[torch.Tensor], Any]
    take: Callable[[Any, Any, None], jax.Array]
    give: Callable[[jax.Array], Any]
    from_capsule: Callable[[Any], torch.Tensor]


def _public() -> Functions:
    return Functions(
        to_capsule=lambda tensor: tensor,
        take=lambda tensor, device, _: jax.dlpack.from_dlpack(tensor, device=device),
        give=lambda array: array,
        from_capsule=torch.utils.dlpack.from_dlpack,
    )


def _private() -> Functions:
    from jaxlib import _jax

    to_capsule = _jax.buffer_to_dlpack_managed_tensor

    def give(array: jax.Array) -> Any:
        # NOTE [Export a handle of its own]: as JAX's own __dlpack__ does. A buffer exported from the array itself
        # brings the process down when the array is deleted while the tensor lives.
        return to_capsule(array.addressable_data(0), None)

    return Functions(
        to_capsule=torch._C._to_dlpack,
        take=_jax.dlpack_managed_tensor_to_buffer,
        give=give,
        from_capsule=torch._C._from_dlpack,
    )


_WAYS: dict[Way, Callable[[], Functions]] = {"private": _private, "public": _public}


def _carries(way: Functions, tensor: torch.Tensor, dtype: np.dtype[np.generic]) -> bool:
    """Whether this tensor goes across and back with its values, shape, dtype and memory."""
    try:
        array = way.take(way.to_capsule(tensor), default_cpu_device(), None)
        back = way.from_capsule(way.give(array))
        same_memory = array.unsafe_buffer_pointer() == tensor.data_ptr() == back.data_ptr()
        same_kind = array.dtype == dtype and back.dtype == tensor.dtype and array.shape == back.shape == tensor.shape
        # The bytes are compared, not the values: float8 has few operators in torch.
        same_bits = np.asarray(array).tobytes() == tensor.contiguous().view(torch.uint8).numpy().tobytes()
    except Exception:  # whatever a version does that cannot carry this tensor, the answer is no
        return False
    return bool(same_memory and same_kind and same_bits)


def _sample(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(16, dtype=torch.uint8).view(dtype)


class Exchange:
    """What the installed versions can do, found once, at the first conversion (``way`` is None before)."""

    to_capsule: Callable[[torch.Tensor], Any]
    take: Callable[[Any, Any, None], jax.Array]
    give: Callable[[jax.Array], Any]
    from_capsule: Callable[[Any], torch.Tensor]
    cpu: jax.Device
    permuted: bool
    shared_dtypes: frozenset[torch.dtype] = frozenset()  # without those that are narrowed while x64 is off
    shared_numpy_dtypes: frozenset[np.dtype[np.generic]] = frozenset()
    array_classes: frozenset[type] = frozenset()  # what an array is that is no tracer and no key
    way: Way | None = None

    def use(self, way: Way) -> None:
        """Take this way from now on."""
        functions = _WAYS[way]()
        self.to_capsule, self.take, self.give, self.from_capsule = functions
        self.cpu = default_cpu_device()
        self.array_classes = frozenset({type(functions.take(functions.to_capsule(torch.ones(16)), self.cpu, None))})
        # Whether JAX reads dense permuted memory rightly: 0.7.0 and 0.7.1 get the values wrong, 0.7.2 refuses.
        self.permuted = _carries(functions, torch.arange(6.0).reshape(2, 3).T, np.dtype("float32"))
        carried = {d for d, row in ROW_OF_TORCH.items() if row.passage == "share"} | {
            d
            for d, row in ROW_OF_TORCH.items()
            if row.passage == "bits" and d in TORCH_TO_JAX and _carries(functions, _sample(d), TORCH_TO_JAX[d])
        }
        self.shared_dtypes = frozenset(carried)
        self.shared_numpy_dtypes = frozenset(TORCH_TO_JAX[d] for d in carried | set(WIDE))
        self.way = way

    def ready(self) -> Way:
        """The way in force, chosen now if no conversion has been made."""
        if self.way is None:
            # NOTE [Probe in a clean thread]: the first conversion may come from within FakeTensorMode or a torch.func
            # transform. Those are per thread, and would make the probe fail for reasons that do not last.
            with ThreadPoolExecutor(max_workers=1) as clean:
                clean.submit(lambda: self.use(_probe())).result()
        assert self.way is not None
        return self.way


def _probe() -> Way:
    if os.environ.get(ENVIRONMENT_VARIABLE) == "public":
        return "public"
    try:
        works = _carries(_private(), torch.arange(6.0).reshape(2, 3), np.dtype("float32"))
    except (ImportError, AttributeError):
        works = False
    return "private" if works else "public"


EXCHANGE = Exchange()


@contextmanager
def exchange(way: Way) -> Iterator[None]:
    """Take one way within the block and the earlier one after it (for tests and measurements)."""
    before = EXCHANGE.ready()
    EXCHANGE.use(way)
    try:
        yield
    finally:
        EXCHANGE.use(before)
