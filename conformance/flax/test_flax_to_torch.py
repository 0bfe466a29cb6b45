"""Linen modules as torch modules. Oracle: the same module in pure Flax, differentiated by JAX."""

import copy
import pickle
from typing import Any

import flax.linen as nn
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close

tj_core = subject("tj_core")
tj_flax = subject("tj_flax")


class Classifier(nn.Module):
    """Two layers, on images."""

    hidden: int = 16
    classes: int = 10

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.relu(nn.Dense(self.hidden)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.classes)(x)


class Convolutions(nn.Module):
    """Convolution, normalisation and attention: layouts of every kind."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.avg_pool(nn.tanh(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.LayerNorm()(x.reshape(x.shape[0], -1, 8))
        x = nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=8)(x)
        return nn.Dense(4)(x.mean(1))


class Embedded(nn.Module):
    """Integer arguments, keyword arguments, trees in and out, and a flag that the trace depends on."""

    @nn.compact
    def __call__(self, tokens: jax.Array, *, extra: dict[str, jax.Array], doubled: bool = False) -> dict[str, Any]:
        x = nn.Embed(7, 4)(tokens) + extra["offset"]
        return {"out": (x * 2 if doubled else x).sum(-1), "tokens": tokens}


class Dropped(nn.Module):
    """Random numbers, unless told otherwise."""

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = False) -> jax.Array:
        return nn.Dropout(0.5)(nn.Dense(3)(x), deterministic=deterministic)


class Shared(nn.Module):
    """One submodule, used twice."""

    def setup(self) -> None:
        self.layer = nn.Dense(4)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layer(nn.tanh(self.layer(x)))


MODULES = {
    "classifier": (Classifier(), (5, 4, 4, 1)),
    "convolutions": (Convolutions(), (3, 4, 4, 2)),
    "shared": (Shared(), (5, 4)),
    "sequential": (nn.Sequential([nn.Dense(3), nn.gelu, nn.Dense(2)]), (5, 4)),
    "scan": (nn.RNN(nn.LSTMCell(3)), (2, 5, 4)),
}


def inputs(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def variables_of(module: nn.Module, shape: tuple[int, ...]) -> Any:
    return module.init(jax.random.key(1), jnp.zeros(shape))


@pytest.mark.parametrize("name", MODULES)
def test_values_and_gradients_are_those_of_flax(name: str) -> None:
    module, shape = MODULES[name]
    variables, x = variables_of(module, shape), inputs(shape)
    expected = module.apply(variables, x.numpy())
    loss_of = lambda variables, x: jnp.sum(jnp.sin(module.apply(variables, x)))  # noqa: E731
    by_jax = jax.grad(loss_of, argnums=(0, 1))(variables, x.numpy())

    model = tj_flax.flax_to_torch(module, variables)
    x.requires_grad_()
    out = model(x)
    assert_close(out, expected)
    torch.sin(out).sum().backward()
    assert_close(x.grad, by_jax[1])
    gradients = tj_flax.variables_to_state_dict(by_jax[0])
    assert {n: p.grad is not None for n, p in model.named_parameters()} == dict.fromkeys(gradients, True)
    for parameter_name, parameter in model.named_parameters():
        assert_close(parameter.grad, gradients[parameter_name])


def test_parameters_have_the_names_of_variables_to_state_dict() -> None:
    variables = variables_of(Classifier(), (1, 4, 4, 1))
    model = tj_flax.flax_to_torch(Classifier(), variables)
    flat = tj_flax.variables_to_state_dict(variables)
    assert "params.Dense_0.kernel" in flat
    assert set(model.state_dict()) == set(flat)
    back = tj_flax.state_dict_to_variables(model.state_dict())
    jax.tree.map(np.testing.assert_array_equal, back, variables)


def test_a_state_dict_of_variables_loads() -> None:
    model = tj_flax.flax_to_torch(Classifier(), variables_of(Classifier(), (1, 4, 4, 1)))
    others = Classifier().init(jax.random.key(9), jnp.zeros((1, 4, 4, 1)))
    model.load_state_dict(tj_flax.variables_to_state_dict(others))
    x = inputs((2, 4, 4, 1))
    assert_close(model(x).detach(), Classifier().apply(others, x.numpy()))


def test_training_follows_flax_and_leaves_the_variables_alone() -> None:
    import optax

    module, shape = Classifier(), (8, 4, 4, 1)
    variables = variables_of(module, shape)
    before = jax.tree.map(np.array, variables)
    x, y = inputs(shape), torch.arange(8)

    model = tj_flax.flax_to_torch(module, variables)
    torch_optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = optax.sgd(0.1, momentum=0.9)
    state, native = optimizer.init(variables), variables

    def loss_of(variables: Any) -> jax.Array:
        logits = module.apply(variables, x.numpy())
        return optax.softmax_cross_entropy_with_integer_labels(logits, y.numpy().astype("int32")).mean()

    for _ in range(20):
        torch_optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        torch_optimizer.step()
        expected, gradients = jax.value_and_grad(loss_of)(native)
        updates, state = optimizer.update(gradients, state)
        native = optax.apply_updates(native, updates)
        assert_close(loss.detach(), expected)
    jax.tree.map(np.testing.assert_array_equal, variables, before)


def test_keywords_trees_integers_and_flags() -> None:
    module = Embedded()
    tokens, offset = torch.tensor([[1, 2], [6, 0]]), inputs((2, 2, 4))
    extra = {"offset": offset.numpy()}
    variables = module.init(jax.random.key(0), tokens.numpy().astype("int32"), extra=extra)
    model = tj_flax.flax_to_torch(module, variables)
    for doubled in (False, True):
        result = model(tokens, extra={"offset": offset}, doubled=doubled)
        expected = module.apply(variables, tokens.numpy().astype("int32"), extra=extra, doubled=doubled)
        assert_close(result["out"].detach(), expected["out"])
        assert result["tokens"].tolist() == tokens.tolist()


def test_frozen_variables_and_apply_in_half_precision() -> None:
    from flax.core import freeze

    module = nn.Dense(3, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)
    variables = freeze(module.init(jax.random.key(0), jnp.zeros((1, 2))))
    model = tj_flax.flax_to_torch(module, variables)
    x = inputs((4, 2)).bfloat16()
    out = model(x)
    assert out.dtype is torch.bfloat16
    assert_close(out.detach(), module.apply(variables, jnp.asarray(x.float().numpy(), jnp.bfloat16)))


def test_module_survives_deepcopy_pickle_and_to() -> None:
    model = tj_flax.flax_to_torch(Classifier(), variables_of(Classifier(), (1, 4, 4, 1)))
    x = inputs((2, 4, 4, 1))
    expected = model(x).detach()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(model).to("cpu")):
        torch.testing.assert_close(other(x).detach(), expected)
        next(other.parameters()).data.zero_()
    torch.testing.assert_close(model(x).detach(), expected)


def test_composes_with_torch() -> None:
    module = Classifier()
    variables = variables_of(module, (1, 4, 4, 1))
    model = torch.nn.Sequential(
        torch.nn.Linear(3, 16), torch.nn.Unflatten(1, (4, 4, 1)), tj_flax.flax_to_torch(module, variables)
    )
    x = inputs((5, 3))
    parameters = dict(model.named_parameters())

    def loss_of(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, parameters, (x,)).pow(2).sum()

    by_func = torch.func.grad(loss_of)(parameters, x)
    loss_of(parameters, x).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(by_func[name], parameter.grad)
    assert "Classifier" in repr(model)
    assert model[2].flax_module is module


def test_through_the_conversion_itself() -> None:
    # A Flax module alone has no weights, and the way with weights is pointed out.
    with pytest.raises(tj_core.UnsupportedKindError, match=r"variables = module\.init"):
        tj_core.jax_to_torch(Classifier())


def test_random_numbers_and_state_are_refused_until_they_are_switched_off() -> None:
    module = Dropped()
    variables = module.init({"params": jax.random.key(0)}, jnp.zeros((1, 2)), deterministic=True)
    model = tj_flax.flax_to_torch(module, variables)
    x = inputs((4, 2))
    with pytest.raises(
        tj_core.UnsupportedKindError, match=r"Dropped uses .*random.*InvalidRngError.*deterministic=True"
    ):
        model(x)
    assert_close(model(x, deterministic=True).detach(), module.apply(variables, x.numpy(), deterministic=True))

    norm = nn.BatchNorm(use_running_average=False)
    variables = norm.init(jax.random.key(0), jnp.zeros((2, 3)))
    with pytest.raises(tj_core.UnsupportedKindError, match=r"\['batch_stats'\] are not supported yet"):
        tj_flax.flax_to_torch(norm, variables)
    model = tj_flax.flax_to_torch(norm, {"params": variables["params"]})
    with pytest.raises(tj_core.UnsupportedKindError, match="BatchNorm uses state"):
        model(inputs((2, 3)))


@pytest.mark.parametrize(
    ("module", "variables", "words"),
    [
        (nnx.Linear(2, 3, rngs=nnx.Rngs(0)), None, "Linear is a flax.nnx module"),
        (Classifier, {"params": {}}, "make an instance"),
        (lambda x: x, {"params": {}}, "module: expected a flax.linen.Module"),
        (Classifier(), None, r"variables = module\.init\(key, example\)"),
        (Classifier(), 3, "variables: expected .* found builtins.int"),
        (Classifier(), {"Dense_0": jnp.ones(2)}, r"variables: expected .* found \{'Dense_0'"),
        (Classifier(), {"params": {"a": nn.Partitioned(jnp.ones(2), names=("x",))}}, "Partitioned.*meta.unbox"),
    ],
)
def test_what_is_not_supported_is_named(module: Any, variables: Any, words: str) -> None:
    with pytest.raises(tj_core.UnsupportedKindError, match=words):
        tj_flax.flax_to_torch(module, variables)
