"""Tensors, functions and modules across PyTorch and JAX."""

__version__ = "0.1.0"

__all__: list[str] = []
