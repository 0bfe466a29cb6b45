"""The private way is taken only where it works, and public DLPack gives the same."""

from importlib import import_module

import jax.numpy as jnp
import pytest
import torch
from jaxlib import _jax
from tjtest.subject import subject
from tjtest.tolerances import assert_equal

tj_core = subject("tj_core")
module = import_module(f"{tj_core.__name__}._exchange")
private = module._private()


def _chosen() -> str:
    """The way that a process takes which begins now, after a look at what it does."""
    exchange = module.Exchange()
    exchange.ready()
    tensor = torch.arange(16.0)
    array = exchange.take(exchange.to_capsule(tensor), exchange.cpu, None)
    assert array.unsafe_buffer_pointer() == tensor.data_ptr()
    assert exchange.from_capsule(exchange.give(array)).equal(tensor)
    return exchange.way


def test_the_private_way_is_taken_where_it_works():
    assert _chosen() == "private"


def test_the_environment_can_ask_for_the_public_way(monkeypatch):
    monkeypatch.setenv("TJ_CORE_EXCHANGE", "public")
    assert _chosen() == "public"


def _missing() -> None:
    raise AttributeError("no such function")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_missing, id="missing"),
        pytest.param(lambda: private._replace(take=None), id="not-callable"),
        pytest.param(lambda: private._replace(to_capsule=lambda t: private.to_capsule(t + 1)), id="wrong-values"),
        pytest.param(lambda: private._replace(to_capsule=lambda t: private.to_capsule(t.clone())), id="copying"),
        pytest.param(lambda: private._replace(to_capsule=lambda t: private.to_capsule(t.int())), id="wrong-dtype"),
        pytest.param(
            lambda: private._replace(from_capsule=lambda c: private.from_capsule(c).reshape(-1)), id="wrong-shape"
        ),
    ],
)
def test_a_private_function_that_changed_is_not_used(change, monkeypatch):
    monkeypatch.setattr(module, "_private", change)
    assert _chosen() == "public"


def test_the_names_that_the_private_way_stands_on_are_there():
    """When this fails a new version has moved them: conversion still works, at ten times the price."""
    assert callable(_jax.dlpack_managed_tensor_to_buffer)
    assert callable(_jax.buffer_to_dlpack_managed_tensor)
    assert callable(torch._C._to_dlpack)
    assert callable(torch._C._from_dlpack)


def test_the_way_can_be_changed_for_a_block():
    before = module.EXCHANGE.ready()
    with module.exchange("public"):
        assert module.EXCHANGE.way == "public"
        assert_equal(tj_core.jax_to_torch(jnp.arange(3.0)), torch.arange(3.0))
    assert module.EXCHANGE.way == before
