"""Functions of one framework inside functions of the other."""

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close

tj_core = subject("tj_core")
tj_autograd = subject("tj_autograd")
tj_jaxify = subject("tj_jaxify")


def _mixed(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(tj_autograd.jax_function_to_torch(lambda a: jnp.cos(a) * 2)(x)).sum()


def test_a_wrapped_jax_function_inside_a_jaxified_torch_function_runs_eagerly():
    x = jnp.linspace(0.0, 1.0, 5)
    expected = lambda a: jnp.sin(jnp.cos(a) * 2).sum()  # noqa: E731
    function = tj_jaxify.torch_function_to_jax(_mixed)
    assert_close(function(x), expected(x))


@pytest.mark.parametrize("transform", [jax.jit, lambda f: jax.jit(jax.grad(f)), lambda f: jax.jit(jax.vmap(f))])
def test_compiled_it_is_refused_and_not_left_to_hang(transform):
    x = jnp.ones((3, 4))
    with pytest.raises(tj_jaxify.BackendError, match="inside a callback"):
        transform(tj_jaxify.torch_function_to_jax(_mixed))(x)


def test_a_jaxified_torch_function_inside_a_wrapped_jax_function_is_compiled_with_it():
    inner = tj_jaxify.torch_function_to_jax(torch.sin)
    outer = tj_autograd.jax_function_to_torch(lambda a: (inner(a) ** 2).sum())
    x = torch.linspace(0.0, 1.0, 5, requires_grad=True)
    (gradient,) = torch.autograd.grad(outer(x), x)
    assert_close(gradient, 2 * torch.sin(x.detach()) * torch.cos(x.detach()))


def test_round_trips_cancel_in_every_pairing_of_packages():
    def of_torch(x):
        return x * 2

    def of_jax(x):
        return x * 2

    to_jax = (tj_core.torch_to_jax, tj_jaxify.torch_function_to_jax)
    to_torch = (tj_core.jax_to_torch, tj_autograd.jax_function_to_torch)
    for there in to_jax:
        for back in to_torch:
            assert back(there(of_torch)) is of_torch
            assert there(back(of_jax)) is of_jax
