"""Fixtures of the core tests: the exchange taken both ways."""

import importlib
from collections.abc import Iterator
from types import ModuleType

import pytest
from tjtest.subject import subject

tj_core = subject("tj_core")


def internal(name: str) -> ModuleType:
    """A module inside the package under test."""
    return importlib.import_module(f"{tj_core.__name__}.{name}")


@pytest.fixture(params=["private", "public"])
def exchange(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test runs once over the private functions and once over public DLPack."""
    with internal("_exchange").exchange(request.param):
        yield request.param
