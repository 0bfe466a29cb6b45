"""A script for the torch-jax-interop package of the index runs unchanged: each use that its documentation shows."""

import warnings
from typing import Any

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close, assert_equal

torch_jax_interop = subject("torch_jax_interop")
from_the_package = (
    "jax_to_torch",
    "torch_to_jax",
    "WrappedJaxFunction",
    "WrappedJaxScalarFunction",
    "torch_module_to_jax",
)
jax_to_torch, torch_to_jax, WrappedJaxFunction, WrappedJaxScalarFunction, torch_module_to_jax = (
    getattr(torch_jax_interop, name) for name in from_the_package
)


class Classifier(flax.linen.Module):
    """Two layers, on images."""

    num_classes: int = 10

    @flax.linen.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.reshape((x.shape[0], -1))
        x = flax.linen.relu(flax.linen.Dense(features=256)(x))
        return flax.linen.Dense(features=self.num_classes)(x)


def test_a_tree_of_tensors_through_the_tree_map_of_jax() -> None:
    tensors = {"x": torch.randn(5), "y": torch.arange(5)}
    arrays = jax.tree.map(torch_to_jax, tensors)
    assert arrays["x"].dtype == jnp.float32
    assert arrays["y"].dtype == jnp.int32
    assert_close(arrays["x"], tensors["x"])
    assert arrays["y"].tolist() == [0, 1, 2, 3, 4]
    back = jax.tree.map(jax_to_torch, arrays)
    assert_equal(back["x"], tensors["x"])
    assert back["y"].dtype is torch.int32


def test_whole_trees_devices_and_what_is_no_tensor() -> None:
    tree = {"a": (torch.ones(2), [torch.zeros(3)]), "b": None, "c": 3, "d": "text"}
    arrays = torch_to_jax(tree)
    assert isinstance(arrays["a"][0], jax.Array)
    assert isinstance(arrays["a"][1][0], jax.Array)
    assert (arrays["b"], arrays["c"], arrays["d"]) == (None, 3, "text")
    assert jax_to_torch(arrays)["a"][1][0].tolist() == [0, 0, 0]
    assert torch_to_jax(torch.device("cpu")) == jax.devices("cpu")[0]
    assert jax_to_torch(jax.devices("cpu")[0]) == torch.device("cpu")


def test_a_jax_function_by_decorator() -> None:
    @jax_to_torch
    def some_jax_function(x: jax.Array) -> jax.Array:
        return x + jnp.ones_like(x)

    out = some_jax_function(torch.arange(5))
    assert isinstance(out, torch.Tensor)
    assert out.tolist() == [1, 2, 3, 4, 5]


def test_a_torch_function_by_decorator() -> None:
    @torch_to_jax
    def some_torch_function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones_like(x)

    out = some_torch_function(jnp.arange(5))
    assert isinstance(out, jax.Array)
    assert out.tolist() == [1, 2, 3, 4, 5]


def dot(params: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.dot(x, params)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_function_of_parameters_as_a_module(by_name: bool) -> None:
    params = jax.random.normal(jax.random.key(0), (2, 1))
    module = WrappedJaxFunction(dot, jax_params=params) if by_name else WrappedJaxFunction(dot, params)
    module = module.to("cpu")
    state = dict(module.state_dict())
    assert list(state) == ["params.0"]
    assert_close(state["params.0"], params)

    x, y = torch.randn(2), torch.rand(1)
    torch.nn.functional.mse_loss(module(x), y).backward()
    by_jax = jax.grad(lambda params: jnp.mean((dot(params, x.numpy()) - y.numpy()) ** 2))(params)
    (parameter,) = module.parameters()
    assert_close(parameter.grad, by_jax)

    model = torch.nn.Sequential(torch.nn.Linear(123, 2), module)
    model(torch.randn(4, 123)).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


@pytest.mark.parametrize("jit", [False, True])
def test_a_flax_classifier_as_a_module(jit: bool) -> None:
    images = jax.random.uniform(key=jax.random.key(0), shape=(16, 28, 28, 1))
    jax_module = Classifier(num_classes=10)
    jax_params = jax_module.init(jax.random.key(0), images)
    module = WrappedJaxFunction(jax.jit(jax_module.apply) if jit else jax_module.apply, jax_params)

    x = jax_to_torch(images)
    y = torch.randint(0, 10, (16,), generator=torch.Generator().manual_seed(0))
    loss = torch.nn.functional.cross_entropy(module(x), y, reduction="mean")
    loss.backward()

    def by_jax(params: Any) -> jax.Array:
        log_probabilities = jax.nn.log_softmax(jax_module.apply(params, images))
        return -jnp.mean(log_probabilities[jnp.arange(16), y.numpy()])

    value, gradients = jax.value_and_grad(by_jax)(jax_params)
    assert_close(loss.detach(), value)
    shapes = [tuple(p.shape) for p in module.parameters()]
    assert shapes == [(256,), (784, 256), (10,), (256, 10)]  # in the order of the leaves, as the package shows it
    for parameter, gradient in zip(module.parameters(), jax.tree.leaves(gradients), strict=True):
        assert_close(parameter.grad, gradient)


def test_a_checkpoint_of_the_package_loads() -> None:
    images = jnp.zeros((1, 4, 4, 1))
    variables = Classifier().init(jax.random.key(0), images)
    module = WrappedJaxFunction(Classifier().apply, Classifier().init(jax.random.key(1), images))
    module.load_state_dict({f"params.{i}": jax_to_torch(leaf) for i, leaf in enumerate(jax.tree.leaves(variables))})
    x = torch.randn(2, 4, 4, 1)
    assert_close(module(x).detach(), Classifier().apply(variables, x.numpy()))


def test_auxiliary_output() -> None:
    def function(params: jax.Array, x: jax.Array) -> tuple[jax.Array, dict[str, jax.Array]]:
        out = dot(params, x)
        return out, {"mean": out.mean(), "max": out.max()}

    module = WrappedJaxFunction(jax.jit(function), jnp.ones((2, 1)), has_aux=True)
    out, aux = module(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert out.requires_grad
    assert (aux["mean"].item(), aux["max"].item()) == (5.0, 7.0)
    assert not aux["mean"].requires_grad


@pytest.mark.parametrize("options", [{}, {"has_aux": True}, {"has_aux": True, "clone_params": True}])
@pytest.mark.parametrize("input_requires_grad", [False, True])
def test_a_scalar_function_with_auxiliary_output(options: dict[str, bool], input_requires_grad: bool) -> None:
    images = jax.random.uniform(jax.random.key(0), (4, 3, 3, 1))
    variables = Classifier().init(jax.random.key(1), images)

    @jax.jit
    def loss_of(params: Any, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        logits = Classifier().apply(params, x)
        return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(4), y]), logits

    module = WrappedJaxScalarFunction(loss_of, variables, **options)
    assert module.jax_function is loss_of
    x, y = jax_to_torch(images).clone().requires_grad_(input_requires_grad), torch.arange(4)
    loss, logits = module(x, y)
    loss.backward()
    expected, gradients = jax.value_and_grad(lambda *args: loss_of(*args)[0], argnums=(0, 1))(
        variables, images, jnp.arange(4)
    )
    assert_close(loss.detach(), expected)
    assert_close(logits.detach(), loss_of(variables, images, jnp.arange(4))[1])
    for parameter, gradient in zip(module.parameters(), jax.tree.leaves(gradients[0]), strict=True):
        assert_close(parameter.grad, gradient)
    if input_requires_grad:
        assert_close(x.grad, gradients[1])


@pytest.mark.parametrize("options", [{}, {"has_aux": False}])
def test_a_scalar_function_without_auxiliary_output(options: dict[str, bool]) -> None:
    module = WrappedJaxScalarFunction(lambda w, x: jnp.sum((w * x) ** 2), jnp.ones(2), **options)
    loss = module(torch.tensor([1.0, 2.0]))
    loss.backward()
    assert loss.item() == 5.0
    assert module.get_parameter("params.0").grad.tolist() == [2.0, 8.0]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("example_output", [False, True])
@pytest.mark.parametrize("through", ["torch_module_to_jax", "torch_to_jax"])
def test_a_torch_module_in_jax(jit: bool, example_output: bool, through: str) -> None:
    model = torch.nn.Linear(3, 2)
    example = (torch.zeros(1, 2),) if example_output and through == "torch_module_to_jax" else ()
    apply, params = getattr(torch_jax_interop, through)(model, *example)
    assert isinstance(params, tuple)

    def loss_function(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.mean((y - apply(params, x)) ** 2)

    x = jax.random.uniform(key=jax.random.key(0), shape=(1, 3))
    y = jax.random.uniform(key=jax.random.key(1), shape=(1, 1))
    both = jax.value_and_grad(loss_function)
    loss, gradients = (jax.jit(both) if jit else both)(params, x, y)

    expected = ((jax_to_torch(y) - model(jax_to_torch(x))) ** 2).mean()
    expected.backward()
    assert_close(loss, expected.detach())
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        assert_close(gradient, parameter.grad)


def test_nothing_is_announced() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(torch_to_jax(torch.arange(6).reshape(2, 3).t()), np.arange(6).reshape(2, 3).T)
