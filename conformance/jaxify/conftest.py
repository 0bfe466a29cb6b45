"""Fixtures of the tests of tj_jaxify."""

from collections.abc import Iterator
from types import ModuleType

import pytest
from tjtest.subject import subject


@pytest.fixture
def jaxify() -> ModuleType:
    """The package under test."""
    return subject("tj_jaxify")


@pytest.fixture(params=["buffers", "numpy"])
def lowering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Both ways in which a compiled program reaches torch: on XLA's buffers, and through NumPy where JAX lacks them."""
    if request.param == "numpy":
        monkeypatch.setattr(subject("tj_jaxify._callback"), "buffer_callback", lambda: None)
    return str(request.param)
