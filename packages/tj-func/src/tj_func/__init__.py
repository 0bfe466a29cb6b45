"""functorch's transforms for functions of PyTorch and JAX, compiled by XLA."""

__version__ = "0.1.0"

__all__: list[str] = []
