"""A torch function or nn.Module as a JAX function."""

__version__ = "0.1.0"

__all__: list[str] = []
