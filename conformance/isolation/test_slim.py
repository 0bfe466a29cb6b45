"""Importing a package does nothing else: no backend, no context, no output, no patch, no library of its own."""

import functools

import pytest
from tjtest import subject
from tjtest.packages import PACKAGES, modules_beside
from tjtest.watch import Observed, observe


@functools.cache
def seen(name: str) -> Observed:
    [report] = observe([subject.PREFIX + name], beside=modules_beside(name))
    return report


@pytest.mark.parametrize("name", subject.EXPECTED)
def test_importing_does_nothing_else(name: str) -> None:
    assert seen(name).printed == ""
    assert seen(name).changed == []
    assert seen(name).patched == []


@pytest.mark.parametrize("name", subject.EXPECTED)
def test_importing_brings_only_what_the_package_may_need(name: str) -> None:
    ours = {name, *PACKAGES[name].siblings, *subject.PREFIX.split(".")[:1]}
    assert set(seen(name).imported) <= ours
