"""What differs between versions, and private functions of torch behind a probe, each with a public fallback."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import torch
from torch.autograd import forward_ad

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


def _probe_plain() -> Callable[[], bool]:
    """A test that no transform of torch is at work: no functorch level, no old batching, no dual level, no mode.

    Without the private functions everything takes the general path, which is right under any of them.
    """
    try:
        functorch: Callable[[], bool] = torch._C._are_functorch_transforms_active
        modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
        functorch(), modes(), forward_ad._current_level
    except AttributeError:
        return _never

    def plain() -> bool:
        return not (functorch() or forward_ad._current_level >= 0 or modes() or in_old_batching())

    return plain


def _probe_keeps_graph() -> Callable[[], bool]:
    """A test, inside a backward, for ``retain_graph=True``; True where torch cannot say."""
    probe: Callable[[], bool] | None = getattr(
        getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None
    )
    return _keep_graph_unknown if probe is None else probe


in_old_batching: Callable[[], bool] = _probe_old_batching()
is_plain: Callable[[], bool] = _probe_plain()
keeps_graph: Callable[[], bool] = _probe_keeps_graph()
