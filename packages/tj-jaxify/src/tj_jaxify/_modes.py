"""The modes of a thread that torch programs expect, whatever the caller of JAX has set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def own_modes() -> Iterator[None]:
    """Gradients recorded, no inference mode, no autocast; what was set is put back afterwards.

    XLA runs a callback on a thread of its own or on the caller's: only so is it the same on both.
    """
    with ExitStack() as stack:
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if torch.is_autocast_enabled("cpu"):
            stack.enter_context(torch.autocast("cpu", enabled=False))
        stack.enter_context(torch.enable_grad())
        yield
