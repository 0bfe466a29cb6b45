"""Flax modules in PyTorch, PyTorch modules in Flax."""

__version__ = "0.1.0"

__all__: list[str] = []
