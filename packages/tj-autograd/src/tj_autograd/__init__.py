"""A JAX function as a differentiable torch function or nn.Module."""

__version__ = "0.1.0"

__all__: list[str] = []
