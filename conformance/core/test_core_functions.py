"""Functions converted with the two names, also as decorators."""

import functools

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close, assert_equal

tj_core = subject("tj_core")
t2j, j2t, shares = tj_core.torch_to_jax, tj_core.jax_to_torch, tj_core.shares_memory


def test_a_jax_function_is_called_with_tensors():
    @j2t
    def scaled_sum(x, y, *, scale=1.0):
        """Docstring."""
        assert isinstance(x, jax.Array)
        return {"sum": (x + y) * scale, "scale": scale}

    out = scaled_sum(torch.arange(5), torch.ones(5), scale=2.0)
    assert_equal(out["sum"], (torch.arange(5) + torch.ones(5)) * 2)
    assert out["scale"] == 2.0
    assert scaled_sum.__name__ == "scaled_sum"
    assert scaled_sum.__doc__ == "Docstring."


def test_a_torch_function_is_called_with_arrays():
    @t2j
    def scaled_sum(x, y):
        assert isinstance(x, torch.Tensor)
        return torch.add(x, y), None

    total, nothing = scaled_sum(jnp.arange(5.0), y=jnp.ones(5))
    assert_equal(total, jnp.arange(5.0) + 1)
    assert nothing is None


def test_methods_and_other_callables_are_functions():
    class Model:
        @j2t
        def double(self, x):
            return x * 2

        def triple(self, x):
            return x * 3

    assert_equal(Model().double(torch.ones(3)), torch.full((3,), 2.0))
    assert_equal(j2t(Model().triple)(torch.ones(3)), torch.full((3,), 3.0))
    assert_equal(j2t(functools.partial(jnp.add, 1.0))(torch.ones(3)), torch.full((3,), 2.0))
    assert_close(j2t(jax.jit(jnp.sin))(torch.ones(3)), torch.ones(3).sin())
    assert_close(t2j(torch.sin)(jnp.ones(3)), jnp.sin(jnp.ones(3)))


def test_a_round_trip_gives_the_function_back():
    def of_torch(x):
        return x

    def of_jax(x):
        return x

    assert j2t(t2j(of_torch)) is of_torch
    assert t2j(j2t(of_jax)) is of_jax
    assert t2j(t2j(of_torch)).__wrapped__ is of_torch
    once = t2j(of_torch)
    assert t2j(once) is once

    @functools.wraps(once)
    def around(x):
        return once(x) + 1

    assert j2t(around) is not of_torch


@pytest.mark.parametrize("jit", [False, True])
def test_no_output_shares_memory_with_an_input_or_another_output(jit):
    def function(x, y):
        return x, x, y + 0, [y]

    x, y = torch.arange(16.0), torch.arange(16.0)
    out = j2t(jax.jit(function) if jit else function)(x, y)
    tensors = [out[0], out[1], out[2], out[3][0]]
    addresses = {t.data_ptr() for t in (*tensors, x, y)}
    assert len(addresses) == 6
    for number, tensor in enumerate(tensors):
        tensor.fill_(number)
    assert_equal(x, torch.arange(16.0))
    assert [int(t[0]) for t in tensors] == [0, 1, 2, 3]


def test_an_input_may_be_written_to_right_after_the_call():
    x = torch.ones(1000, 1000)
    product = j2t(jax.jit(lambda a: a @ a @ a))
    for _ in range(5):
        x.fill_(1.0)
        result = product(x)
        x.zero_()
        assert_equal(result, torch.full((1000, 1000), 1e6))


def test_a_torch_function_cannot_write_to_the_callers_arrays():
    @t2j
    def in_place(x):
        return x.mul_(2)

    array = jnp.ones(16)
    assert_equal(in_place(array), jnp.full(16, 2.0))
    assert_equal(array, jnp.ones(16))


def test_what_a_torch_function_returns_is_not_changed_by_later_writes():
    state = torch.zeros(16)

    @t2j
    def read():
        return state

    array = read()
    state.fill_(1.0)
    assert_equal(array, jnp.zeros(16))


def test_backward_through_a_bare_conversion_is_an_error_that_names_the_wrapper():
    x = torch.ones(3, requires_grad=True)

    @j2t
    def square(x):
        return x**2, jnp.arange(3)

    out, integers = square(x)
    assert_equal(out.detach(), torch.ones(3))
    assert not integers.requires_grad
    with pytest.raises(tj_core.GradientError, match="tj_autograd.jax_function_to_torch"):
        out.sum().backward()
    with torch.no_grad():
        assert not square(x)[0].requires_grad
    assert not square(x.detach())[0].requires_grad


def test_a_bare_converted_torch_function_refuses_to_be_traced():
    for transform in (jax.jit, jax.vmap):
        with pytest.raises(tj_core.UnsupportedKindError, match="torch_function_to_jax"):
            transform(t2j(torch.sin))(jnp.ones(3))


def test_an_exception_of_the_function_is_raised_as_it_is():
    @j2t
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        broken(torch.ones(3))


def test_a_callable_container_is_a_container_and_a_class_is_itself():
    @jax.tree_util.register_pytree_node_class
    class Layer:
        def __init__(self, weight):
            self.weight = weight

        def __call__(self, x):
            return self.weight * x

        def tree_flatten(self):
            return (self.weight,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    assert isinstance(j2t(Layer(jnp.ones(3))).weight, torch.Tensor)
    assert t2j(Layer) is Layer
