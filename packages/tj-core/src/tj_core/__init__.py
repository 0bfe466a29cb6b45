"""Zero-copy conversion of tensors, arrays and nested containers between PyTorch and JAX."""

__version__ = "0.1.0"

__all__: list[str] = []
