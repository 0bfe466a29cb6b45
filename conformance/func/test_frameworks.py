"""How a function of one framework is told from one of the other, and what is said when it does not fit."""

import functools
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close

tj_core = subject("tj_core")
tj_autograd = subject("tj_autograd")
tj_jaxify = subject("tj_jaxify")
tj_func = subject("tj_func")
framework_of = subject("tj_func._frameworks").framework_of

DENSE = flax.linen.Dense(1)
LINEAR = torch.nn.Linear(3, 1)
X = torch.linspace(-1, 1, 3)
A = jnp.asarray(X.numpy())


@jax.custom_jvp
def custom(x: jax.Array) -> jax.Array:
    return jnp.sin(x)


custom.defjvps(lambda tangent, out, x: jnp.cos(x) * tangent)


@pytest.mark.parametrize(
    ("function", "framework"),
    [
        (torch.sin, "torch"),
        (torch.nn.functional.relu, "torch"),
        (torch.Tensor.sin, "torch"),
        (torch.ops.aten.sin, "torch"),
        (torch.ops.aten.sin.default, "torch"),
        (LINEAR, "torch"),
        (LINEAR.forward, "torch"),
        (functools.partial(torch.add, 1), "torch"),
        (jnp.sin, "jax"),
        (jax.nn.relu, "jax"),
        (jax.lax.sin, "jax"),
        (jax.jit(lambda x: x), "jax"),
        (custom, "jax"),
        (DENSE.apply, "jax"),
        (DENSE, "jax"),
        (functools.partial(jnp.add, 1), "jax"),
        (lambda x: x, None),
        (abs, None),
        (str.upper, None),
        ([].append, None),
    ],
)
def test_what_can_be_told_without_a_call(function: Any, framework: str | None) -> None:
    assert framework_of(function) == framework


@pytest.mark.parametrize("function", [torch.sin, jnp.sin, torch.ops.aten.sin, custom])
@pytest.mark.parametrize("x", [X, A], ids=["tensor", "array"])
def test_recognised_functions(function: Any, x: Any) -> None:
    found = tj_func.vmap(tj_func.grad(function))(x)
    assert isinstance(found, type(x) if x is X else jax.Array)
    assert_close(found, torch.cos(X))


@pytest.mark.parametrize(
    "function",
    [
        tj_autograd.jax_function_to_torch(lambda x: jnp.sin(x)),
        tj_jaxify.torch_function_to_jax(lambda x: torch.sin(x)),
        tj_core.jax_to_torch(lambda x: jnp.sin(x)),
        tj_core.torch_to_jax(lambda x: torch.sin(x)),
    ],
    ids=["jax_function_to_torch", "torch_function_to_jax", "jax_to_torch", "torch_to_jax"],
)
@pytest.mark.parametrize("x", [X, A], ids=["tensor", "array"])
def test_functions_that_were_converted_before(function: Any, x: Any) -> None:
    assert_close(tj_func.vmap(tj_func.grad(function))(x), torch.cos(X))
    assert_close(tj_func.jacrev(tj_func.vmap(tj_func.grad(function)))(x), torch.diag(-torch.sin(X)))


@pytest.mark.parametrize("function", [lambda x: torch.sin(x), lambda x: jnp.sin(x)], ids=["torch", "jax"])
def test_a_transform_of_a_transform_is_of_either_side_whenever_it_is_made(function: Any) -> None:
    gradient = tj_func.grad(function)
    for x in (X, A, X):  # what is found out on the way must not bind the outer transform
        assert_close(tj_func.vmap(gradient)(x), torch.cos(X))
        assert_close(tj_func.jacrev(tj_func.vmap(tj_func.grad(gradient)))(x), torch.diag(-torch.cos(X)))


def test_nothing_of_jax_runs_inside_a_callback(monkeypatch: pytest.MonkeyPatch) -> None:
    # A function that was converted from JAX is taken back there, not called back: that can deadlock.
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("carried into JAX as a torch function")

    monkeypatch.setattr(subject("tj_func._core").jaxify, "torch_function_to_jax", refuse)
    gradient = tj_func.grad(tj_autograd.jax_function_to_torch(lambda x: jnp.sin(x)))
    for x in (A, X, A):
        assert_close(tj_func.vmap(gradient)(x), torch.cos(X))


def test_a_mixture_through_the_wrappers() -> None:
    layer = tj_autograd.jax_function_to_torch(lambda x: jnp.tanh(x))
    loss = tj_jaxify.torch_function_to_jax(lambda x: torch.square(x).sum())
    in_torch = lambda x: torch.square(torch.tanh(x)).sum()  # noqa: E731
    expected = torch.func.grad(in_torch)(X)
    assert_close(tj_func.grad(lambda x: torch.square(layer(x)).sum())(X), expected)
    assert_close(tj_func.grad(lambda x: loss(jnp.tanh(x)))(A), expected)


def test_modules_of_either_framework() -> None:
    rows = torch.stack([X, 2 * X])
    expected = torch.func.vmap(torch.func.grad(lambda x: LINEAR(x).sum()))(rows)
    assert_close(tj_func.vmap(tj_func.jacrev(LINEAR))(rows)[:, 0].detach(), expected.detach())
    assert_close(tj_func.vmap(tj_func.jacrev(LINEAR))(jnp.asarray(rows.numpy()))[:, 0], expected.detach())

    variables = DENSE.init(jax.random.key(0), A)
    gradient = tj_func.grad(lambda x: DENSE.apply(variables, x).sum())
    assert_close(gradient(X), jax.grad(lambda x: DENSE.apply(variables, x).sum())(A))
    by_variables = tj_func.jacrev(DENSE.apply)(variables, A)
    jax.tree.map(assert_close, by_variables, jax.jacrev(DENSE.apply)(variables, A))


def test_what_was_found_out_is_remembered() -> None:
    calls = []

    def written_in_jax(x: Any) -> Any:
        calls.append(type(x))
        return jnp.sin(x).sum()

    gradient = tj_func.grad(written_in_jax)
    gradient(X)
    tried = [kind for kind in calls if issubclass(kind, torch.Tensor)]
    assert len(tried) == 1
    calls.clear()
    gradient(X)
    assert not any(issubclass(kind, torch.Tensor) for kind in calls)
    assert_close(gradient(A), torch.cos(X))


@pytest.mark.parametrize("x", [X, A], ids=["tensor", "array"])
def test_numbers_go_where_the_innermost_function_is(x: Any) -> None:
    assert float(tj_func.grad(lambda x: x * x)(3.0)) == 6.0
    with pytest.raises(ValueError, match="must be Tensor"):
        tj_func.grad(torch.sin)(3.0)


@pytest.mark.parametrize("convert", [jnp.asarray, jnp.array])
@pytest.mark.parametrize("transform", ["grad", "jacfwd", "vmap"])
def test_functions_that_ask_for_the_memory_of_a_tensor(convert: Any, transform: str) -> None:
    found = getattr(tj_func, transform)(lambda x: jnp.sum(convert(x) ** 2))(X)
    expected = getattr(torch.func, transform)(lambda x: (x**2).sum())(X)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("x", [X, A], ids=["tensor", "array"])
def test_the_error_of_the_function_is_the_error(x: Any) -> None:
    def broken(x: Any) -> Any:
        raise LookupError("mine")

    def foreign_and_broken(x: Any) -> Any:
        return jnp.sin(x).nowhere + torch.sin(x)

    with pytest.raises(LookupError, match="mine"):
        tj_func.grad(broken)(x)
    with pytest.raises((TypeError, AttributeError)):
        tj_func.grad(foreign_and_broken)(x)


def test_control_flow_on_values_does_not_change_the_framework() -> None:
    # The standard deviation of torch divides by n - 1 and that of JAX by n: to change sides is to change the result.
    function = lambda x: x.std() if x.sum() > 0 else x.mean()  # noqa: E731
    with pytest.raises(jax.errors.TracerBoolConversionError):
        tj_func.vmap(function)(jnp.ones((2, 3)))
    spread = tj_func.grad(lambda x: x.std())
    assert_close(spread(X), torch.func.grad(lambda x: x.std())(X))
    assert_close(spread(A), jax.grad(lambda x: x.std())(A))


NOT_SCALAR = (lambda x: torch.sin(x), lambda x: jnp.sin(x), lambda x: x * 2)


@pytest.mark.parametrize("function", NOT_SCALAR, ids=["torch", "jax", "either"])
@pytest.mark.parametrize("x", [X, A], ids=["tensor", "array"])
def test_kinds_of_error_are_those_of_torch(function: Any, x: Any) -> None:
    with pytest.raises(RuntimeError, match="scalar"):
        tj_func.grad(function)(x)
    with pytest.raises(RuntimeError, match="arg"):
        tj_func.grad(function, argnums=3)(x)
    with pytest.raises(RuntimeError, match="tuple|aux"):
        tj_func.grad(function, has_aux=True)(x)
    with pytest.raises(ValueError, match="in_dims"):
        tj_func.vmap(function, in_dims=None)(x)
    with pytest.raises(ValueError, match="in_dims|in_axes"):
        tj_func.vmap(function, in_dims=(0, 0))(x)
    with pytest.raises(ValueError, match="in_dim|axis"):
        tj_func.vmap(function, in_dims=5)(x)
    with pytest.raises(ValueError, match="size"):
        tj_func.vmap(lambda x, y: function(x) + function(y))(x, x[:2])
    out, vjp_fn = tj_func.vjp(function, x)
    with pytest.raises(RuntimeError, match="shape|structure"):
        vjp_fn(out[:1])
    with pytest.raises(RuntimeError, match="structure|same python structure|same"):
        tj_func.jvp(function, (x,), (x, x))
    with pytest.raises(RuntimeError, match="tuple"):
        tj_func.jvp(function, x, x)


@pytest.mark.parametrize("x", [torch.arange(3), jnp.arange(3)], ids=["tensor", "array"])
def test_integers_have_no_gradient(x: Any) -> None:
    for transform in (tj_func.grad, tj_func.jacrev):
        with pytest.raises(RuntimeError, match="floating"):
            transform(lambda x: x.sum())(x)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: tj_func.grad(3), TypeError, "expected a function"),
        (lambda: tj_func.grad(torch.sin, framework="numpy"), ValueError, "framework"),
        (lambda: tj_func.vmap(torch.sin, randomness="some"), RuntimeError, "randomness"),
        (lambda: tj_func.grad(torch.dot)(X, A), tj_core.UnsupportedKindError, "both torch tensors and JAX arrays"),
        (lambda: tj_func.jacrev(jnp.sin, chunk_size=2)(A), tj_func.TransformError, "chunk_size"),
        (lambda: tj_func.jvp(jnp.sin, (A,), (A,), strict=True), tj_func.TransformError, "strict"),
    ],
)
def test_what_is_refused(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()
