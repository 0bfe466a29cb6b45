"""What differs between versions, and private functions of torch behind a probe, each with a public fallback."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax
import torch
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode

F = TypeVar("F", bound=Callable[..., Any])

# jax.config makes its options attributes of its own while it runs.
_config: Any = jax.config


def enable_x64(enabled: bool) -> AbstractContextManager[Any]:
    """``jax_enable_x64`` inside a ``with`` block, for this thread."""
    context: Any = getattr(jax, "enable_x64", None)
    if context is None:  # before jax 0.8
        context = importlib.import_module("jax.experimental").enable_x64
    result: AbstractContextManager[Any] = context(enabled)
    return result


def x64_enabled() -> bool:
    """Whether JAX keeps 64-bit dtypes now, in this thread."""
    return bool(_config.jax_enable_x64)


def untraced(fn: F) -> F:
    """``torch.compiler.disable(fn)``, without importing the compiler, which takes seconds, before the user does."""
    disabled: list[F] = []

    @functools.wraps(fn)
    def outside(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return fn(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(fn))
        return disabled[0](*args, **kwargs)

    outside._torchdynamo_disable = True  # type: ignore[attr-defined]  # the mark that torch.compiler.disable leaves
    return outside  # type: ignore[return-value]


def constant(fn: F) -> F:
    """``torch.compiler.assume_constant_result(fn)``, without importing the compiler: what it returns while the compiler
    reads its caller is part of the program. A compiler that does not know the mark reads ``fn`` or breaks the graph."""
    fn._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return fn


# With torch 2.8, compiling a graph with a call in it, or JAX tracing for symbolic sizes in the middle of a recording,
# fails now and then: "'FunctionalTensor' object has no attribute 'elem'", perhaps by pytorch/pytorch#136358. So it is
# not offered there; 2.13 is the next version that is tested.
COMPILES_CALLS = RECORDS_SIZES = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)


def _never() -> bool:
    return False


def _keep_graph_unknown() -> bool:
    return True


def _probe_old_batching() -> Callable[[], bool]:
    """A test for the batching that is older than ``torch.func``; False where torch has lost it. See :mod:`._legacy`."""
    try:
        key: Any = torch._C._parse_dispatch_key("VmapMode")
        included: Callable[[Any], bool] = torch._C._dispatch_tls_is_dispatch_key_included
        included(key)
    except (AttributeError, RuntimeError):
        return _never
    return lambda: included(key)


def _probe_dispatch_mode() -> Callable[[], bool]:
    """A test for a dispatch mode in this thread."""
    depth: Callable[[], int] | None = getattr(torch._C, "_len_torch_dispatch_stack", None)
    if depth is None:
        return lambda: _get_current_dispatch_mode() is not None
    return lambda: depth() > 0


def _probe_plain() -> Callable[[], bool]:
    """A test that no transform of torch is at work: no functorch level, no old batching, no dual level, no mode.

    Without the private functions everything takes the general path, which is right under any of them.
    """
    try:
        functorch: Callable[[], bool] = torch._C._are_functorch_transforms_active
        functorch(), forward_ad._current_level
    except AttributeError:
        return _never

    def plain() -> bool:
        return not (functorch() or forward_ad._current_level >= 0 or in_dispatch_mode() or in_old_batching())

    return plain


def _probe_unwatched() -> Callable[[], bool]:
    """A test that no hook wants to see what is saved, and that a backward can tell when to let go of it."""
    autograd: Any = getattr(torch._C, "_autograd", None)
    top: Callable[[bool], Any] | None = getattr(autograd, "_top_saved_tensors_default_hooks", None)
    if top is None or not hasattr(autograd, "_get_current_graph_task_keep_graph"):
        return _never
    return lambda: top(True) is None


def _probe_keeps_graph() -> Callable[[], bool]:
    """A test, inside a backward, for ``retain_graph=True``; True where torch cannot say."""
    probe: Callable[[], bool] | None = getattr(
        getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None
    )
    return _keep_graph_unknown if probe is None else probe


in_old_batching: Callable[[], bool] = _probe_old_batching()
in_dispatch_mode: Callable[[], bool] = _probe_dispatch_mode()
is_plain: Callable[[], bool] = _probe_plain()
saves_unwatched: Callable[[], bool] = _probe_unwatched()
keeps_graph: Callable[[], bool] = _probe_keeps_graph()
