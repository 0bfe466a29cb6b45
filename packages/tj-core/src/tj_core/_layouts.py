"""Which memory JAX can take as it lies, and the copy that it can always take."""

from __future__ import annotations

import torch

ALIGNMENT = 64  # bytes; XLA's CPU backend shares memory from this alignment on


def fresh(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous, aligned copy that nothing else refers to."""
    return tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


def why_not_shared(tensor: torch.Tensor) -> str:
    """What keeps JAX from taking this memory as it is, in words."""
    if tensor.is_conj() or tensor.is_neg():
        return "the tensor's conjugation or negation is still to be done (resolve_conj(), resolve_neg())"
    if tensor.device.type == "cpu" and tensor.data_ptr() % ALIGNMENT:
        return f"the tensor's memory does not begin at a multiple of {ALIGNMENT} bytes (a fresh tensor's does)"
    return f"JAX cannot take strides {tensor.stride()} of shape {tuple(tensor.shape)} as they are (see .contiguous())"
