"""JAX's 64-bit mode, for the length of a block."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax


@contextmanager
def x64_mode(enabled: bool = True) -> Iterator[None]:
    """Set ``jax_enable_x64``, and put back what stood before."""
    before = jax.config.values["jax_enable_x64"]
    jax.config.update("jax_enable_x64", enabled)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
