"""Torch modules as linen modules. Oracle: the torch module itself, differentiated by torch."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax.training.train_state import TrainState
from flax.traverse_util import flatten_dict
from tjtest.subject import subject
from tjtest.tolerances import assert_close

tj_core = subject("tj_core")
tj_flax = subject("tj_flax")
tj_jaxify = subject("tj_jaxify")


class Oddly(torch.nn.Module):
    """Parameters with the names of attributes of a linen module, a tied weight, and a frozen one."""

    def __init__(self) -> None:
        super().__init__()
        self.name = torch.nn.Parameter(torch.tensor(2.0))
        self.scope = torch.nn.Linear(3, 3, bias=False)
        self.source = self.scope
        self.apply_ = torch.nn.ParameterDict({"init": torch.tensor([3.0])})
        self.frozen = torch.nn.Parameter(torch.tensor(5.0), requires_grad=False)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> dict[str, torch.Tensor]:
        x = self.source(self.scope(x)) * self.name * scale + self.apply_["init"]
        return {"out": x * self.frozen}


def mlp() -> torch.nn.Sequential:
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def cnn() -> torch.nn.Sequential:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2))


MODULES = {
    "mlp": (mlp, (5, 3)),
    "cnn": (cnn, (2, 1, 6, 6)),
    "transformer": (lambda: torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 3, 4)),
}


def inputs(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def linen_of(module: torch.nn.Module, *args: Any) -> tuple[nn.Module, Any]:
    model = tj_flax.torch_to_linen(module)
    return model, model.init(jax.random.key(0), *args)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_values_and_gradients_are_those_of_torch(name: str, jit: bool) -> None:
    make, shape = MODULES[name]
    module, x = make(), inputs(shape)
    array = jnp.asarray(x.numpy())
    model, variables = linen_of(module, array)
    transform = jax.jit if jit else lambda f: f
    assert_close(transform(model.apply)(variables, array), module(x).detach())

    loss_of = lambda variables, x: jnp.sum(jnp.sin(model.apply(variables, x)))  # noqa: E731
    gradients, by_input = transform(jax.grad(loss_of, argnums=(0, 1)))(variables, array)
    x.requires_grad_()
    torch.sin(module(x)).sum().backward()
    assert_close(by_input, x.grad)
    flat = flatten_dict(gradients["params"], sep=".")
    assert set(flat) == {n for n, _ in module.named_parameters()}
    for parameter_name, parameter in module.named_parameters():
        assert_close(flat[parameter_name], parameter.grad)


def test_the_starting_weights_are_copies_of_the_torch_weights() -> None:
    module = mlp()
    model, variables = linen_of(module, jnp.ones((1, 3)))
    weights = module[0].weight.detach().clone()
    assert jax.tree.map(jnp.shape, variables) == {
        "params": {"0": {"weight": (8, 3), "bias": (8,)}, "2": {"weight": (2, 8), "bias": (2,)}}
    }
    with torch.no_grad():
        module[0].weight.zero_()
    assert_close(variables["params"]["0"]["weight"], weights)
    # Given away for good, they are still there for the next init.
    jax.jit(lambda tree: jax.tree.map(lambda a: a + 1, tree), donate_argnums=0)(variables)
    assert_close(model.init(jax.random.key(1), jnp.ones((1, 3)))["params"]["0"]["weight"], weights)


def test_init_under_transforms_of_jax() -> None:
    model = tj_flax.torch_to_linen(mlp())
    shapes = jax.eval_shape(model.init, jax.random.key(0), jnp.ones((1, 3)))
    assert shapes["params"]["2"]["bias"].shape == (2,)
    jitted = jax.jit(model.init)(jax.random.key(0), jnp.ones((1, 3)))
    jax.tree.map(np.testing.assert_array_equal, jitted, model.init(jax.random.key(5), jnp.ones((1, 3))))


def test_names_ties_frozen_parameters_and_keywords() -> None:
    module, x = Oddly(), inputs((4, 3))
    array = jnp.asarray(x.numpy())
    model, variables = linen_of(module, array)
    assert set(flatten_dict(variables["params"], sep=".")) == {n for n, _ in module.named_parameters()}
    assert_close(model.apply(variables, array, scale=3.0)["out"], module(x, scale=3.0)["out"].detach())

    gradients = jax.grad(lambda v: model.apply(v, array)["out"].sum())(variables)["params"]
    module(x)["out"].sum().backward()
    assert_close(gradients["scope"]["weight"], module.scope.weight.grad)
    assert_close(gradients["name"], module.name.grad)
    assert float(gradients["frozen"]) == 0.0


def test_in_a_train_state_it_follows_torch() -> None:
    module, x = mlp(), inputs((8, 3))
    y = torch.arange(8) % 2
    model, variables = linen_of(module, jnp.asarray(x.numpy()))
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.sgd(0.1, momentum=0.9))

    @jax.jit
    def step(state: TrainState, x: jax.Array, y: jax.Array) -> tuple[TrainState, jax.Array]:
        def loss_of(params: Any) -> jax.Array:
            logits = state.apply_fn({"params": params}, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    for _ in range(20):
        state, loss = step(state, x.numpy(), y.numpy().astype("int32"))
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(module(x), y)
        expected.backward()
        optimizer.step()
        assert_close(loss, expected.detach())

    fresh = mlp()
    tj_jaxify.load_jax_params(fresh, flatten_dict(state.params, sep="."))
    torch.testing.assert_close(fresh(x), module(x))


class Around(nn.Module):
    """A linen module with torch modules inside."""

    inner: torch.nn.Module | nn.Module

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.inner(nn.Dense(3)(x))
        return nn.Dense(1)(tj_flax.torch_to_linen(HEAD)(x))


HEAD = torch.nn.Linear(2, 4)


def test_as_a_submodule_of_a_larger_linen_module() -> None:
    module = mlp()
    model, x = Around(tj_flax.torch_to_linen(module)), jnp.asarray(inputs((5, 3)).numpy())
    variables = model.init(jax.random.key(0), x)
    params = variables["params"]
    assert_close(params["inner"]["0"]["weight"], module[0].weight.detach())
    assert_close(params["TorchModule_0"]["weight"], HEAD.weight.detach())
    first = nn.Dense(3).apply({"params": params["Dense_0"]}, x)
    middle = HEAD(module(torch.from_numpy(np.array(first)))).detach()
    expected = nn.Dense(1).apply({"params": params["Dense_1"]}, middle.numpy())
    assert_close(model.apply(variables, x), expected)
    gradients = jax.jit(jax.grad(lambda v: model.apply(v, x).sum()))(variables)
    assert jax.tree.structure(gradients) == jax.tree.structure(variables)


def test_under_vmap_and_hessian() -> None:
    module, x = mlp(), inputs((5, 3))
    model, variables = linen_of(module, jnp.ones((1, 3)))
    rows = jax.vmap(model.apply, in_axes=(None, 0))(variables, x.numpy())
    assert_close(rows, module(x).detach())
    of_input = jax.hessian(lambda x: model.apply(variables, x).sum())(jnp.asarray(x[0].numpy()))
    assert_close(of_input, torch.func.hessian(lambda x: module(x).sum())(x[0]).detach())


def test_through_remat() -> None:
    module, x = mlp(), jnp.asarray(inputs((5, 3)).numpy())
    model, variables = linen_of(module, x)
    rematerialised = nn.remat(type(model))(model.source)
    grad = lambda m: jax.grad(lambda v: m.apply(v, x).sum())(variables)  # noqa: E731
    jax.tree.map(assert_close, grad(rematerialised), grad(model))


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (torch.nn.BatchNorm1d(3), r"BatchNorm1d has the buffers \['running_mean'"),
        (torch.nn.Linear, "module: expected a torch.nn.Module"),
        (lambda x: x, "module: expected a torch.nn.Module"),
        (nn.Dense(3), "module: expected a torch.nn.Module"),
    ],
)
def test_what_is_not_supported_is_named(module: Any, words: str) -> None:
    with pytest.raises(tj_core.UnsupportedKindError, match=words):
        tj_flax.torch_to_linen(module)


def test_dropout_is_refused_in_training_and_works_in_eval() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.5))
    with pytest.raises(tj_core.TJError, match="random"):
        linen_of(module, jnp.ones((1, 3)))
    x = inputs((4, 3))
    model, variables = linen_of(module.eval(), jnp.ones((1, 3)))
    assert_close(model.apply(variables, x.numpy()), module(x).detach())
