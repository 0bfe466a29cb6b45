"""WrappedJaxFunction: a module that owns its parameters, names them by path, and trains as its pure JAX twin does."""

import copy
import io
import pickle
from collections import OrderedDict
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close, assert_equal

tj_autograd = subject("tj_autograd")
WrappedJaxFunction = tj_autograd.WrappedJaxFunction


def dot(params: Any, x: Any) -> Any:
    return jnp.dot(x, params)


def mlp(params: Any, x: Any) -> Any:
    hidden = jnp.tanh(x @ params["first"]["kernel"] + params["first"]["bias"])
    return hidden @ params["second"]["kernel"] + params["second"]["bias"]


def normal(seed: int, *shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), shape)


def mlp_params() -> dict[str, Any]:
    return {
        "first": {"kernel": normal(0, 3, 5), "bias": normal(1, 5)},
        "second": {"kernel": normal(2, 5, 2), "bias": normal(3, 2)},
    }


def leaves_of(module: torch.nn.Module) -> dict[str, jax.Array]:
    return {name: jnp.asarray(p.detach().numpy().copy()) for name, p in module.named_parameters()}


# ---- one array


def test_the_state_dict_of_a_bare_array() -> None:
    params = normal(0, 2, 1)
    module = WrappedJaxFunction(dot, params)
    state = module.state_dict()
    assert list(state) == ["params.0"]
    assert_equal(state["params.0"], params)


LOSSES = {
    "mse": (lambda y: torch.nn.functional.mse_loss(y, torch.ones_like(y)), lambda y: jnp.mean((y - 1) ** 2)),
    "sum": (lambda y: y.sum(), jnp.sum),
    "mean": (lambda y: y.mean(), jnp.mean),
    "slice": (lambda y: y[1:3, 0].sum(), lambda y: jnp.sum(y[1:3, 0])),
    "one element": (lambda y: y[0, 0], lambda y: y[0, 0]),
    "expanded": (lambda y: y.expand(6, *y.shape).sum(), lambda y: 6 * jnp.sum(y)),
    "transposed": (lambda y: (y.T @ y).sum(), lambda y: jnp.sum(y.T @ y)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_alone(name: str) -> None:
    torch_loss, jax_loss = LOSSES[name]
    module = WrappedJaxFunction(dot, normal(0, 2, 1))
    x = torch.from_numpy(np.array(normal(1, 4, 2))).requires_grad_()
    torch_loss(module(x)).backward()
    expected = jax.grad(lambda p, x: jax_loss(dot(p, x)), (0, 1))(normal(0, 2, 1), normal(1, 4, 2))
    assert_close(module.get_parameter("params.0").grad, expected[0])
    assert_close(x.grad, expected[1])


@pytest.mark.parametrize("jit", [False, True])
def test_the_last_layer_of_a_sequential(jit: bool) -> None:
    model = torch.nn.Sequential(
        torch.nn.Linear(123, 2), WrappedJaxFunction(jax.jit(dot) if jit else dot, normal(0, 2, 1))
    ).to("cpu")
    x = torch.randn(8, 123)
    torch.nn.functional.mse_loss(model(x), torch.zeros(8, 1)).backward()

    twin = torch.nn.Sequential(torch.nn.Linear(123, 2), torch.nn.Linear(2, 1, bias=False))
    twin.load_state_dict(
        {"0.weight": model[0].weight, "0.bias": model[0].bias, "1.weight": model[1].get_parameter("params.0").T}
    )
    torch.nn.functional.mse_loss(twin(x), torch.zeros(8, 1)).backward()
    assert_close(model[0].weight.grad, twin[0].weight.grad)
    assert_close(model[0].bias.grad, twin[0].bias.grad)
    assert_close(model[1].get_parameter("params.0").grad, twin[1].weight.grad.T)


# ---- a tree of parameters


def test_gradients_of_a_tree_equal_pure_jax() -> None:
    params, x = mlp_params(), normal(9, 4, 3)
    module = WrappedJaxFunction(mlp, params)
    module(torch.from_numpy(np.array(x))).square().mean().backward()
    expected = jax.grad(lambda p: jnp.mean(mlp(p, x) ** 2))(params)
    for name, parameter in module.named_parameters():
        _, layer, leaf = name.split(".")
        assert_close(parameter.grad, expected[layer][leaf])


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_training_follows_the_pure_jax_twin(optimizer: str) -> None:
    params, x, y = mlp_params(), normal(8, 16, 3), normal(9, 16, 2)
    module = WrappedJaxFunction(jax.jit(mlp), params)
    stepper = getattr(torch.optim, optimizer)(module.parameters(), lr=0.05)
    twin = {k: torch.from_numpy(np.array(v)) for k, v in leaves_of(module).items()}
    stepper_of_twin = getattr(torch.optim, optimizer)(list(twin.values()), lr=0.05)
    grad = jax.jit(jax.value_and_grad(lambda p: jnp.mean((mlp(p, x) - y) ** 2)))
    tx, ty = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(y))
    for _ in range(50):
        stepper.zero_grad()
        loss = torch.nn.functional.mse_loss(module(tx), ty)
        loss.backward()
        stepper.step()

        tree: dict[str, Any] = {"first": {}, "second": {}}
        for name, value in twin.items():
            tree[name.split(".")[1]][name.split(".")[2]] = jnp.array(value.numpy())
        value, gradients = grad(tree)
        for name, value_of_twin in twin.items():
            value_of_twin.grad = torch.from_numpy(np.array(gradients[name.split(".")[1]][name.split(".")[2]]))
        stepper_of_twin.step()
        assert_close(loss.detach(), value)


class Pair(NamedTuple):
    left: Any
    right: Any


NAMES: dict[str, tuple[Any, list[str]]] = {
    "dict": ({"b": 1, "a": 2}, ["params.a", "params.b"]),
    "nested": ({"layer": {"kernel": 1}}, ["params.layer.kernel"]),
    "variables": ({"params": {"Dense_0": {"kernel": 1}}}, ["params.Dense_0.kernel"]),
    "collections": (
        {"params": {"w": 1}, "batch_stats": {"bn": {"mean": 2}}},
        ["batch_stats.bn.mean", "params.w"],
    ),
    "list": ([1, 2], ["params.0", "params.1"]),
    "tuple in dict": ({"w": (1, 2)}, ["params.w.0", "params.w.1"]),
    "ordered dict": (OrderedDict(b=1, a=2), ["params.b", "params.a"]),
    "namedtuple": (Pair(1, 2), ["params.left", "params.right"]),
    "integer keys": ({0: 1, 10: 2}, ["params.0", "params.10"]),
    "a string that looks like an integer": ({"0": 1}, ["params.%30"]),
    "dots and percents": ({"a.b": 1, "a": {"b": 2}, "a%2Eb": 3}, ["params.a.b", "params.a%252Eb", "params.a%2Eb"]),
    "an empty key": ({"": 1}, ["params.%"]),
    "attributes of Module": (
        {"type": 1, "training": 2, "forward": 3},
        ["params.forward", "params.training", "params.type"],
    ),
    "attributes of Module at the root": (
        {"params": {"w": 1}, "training": {"x": 2}, "forward": 3},
        ["forward", "params.w", "training.x"],
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_follow_the_path(case: str) -> None:
    tree, names = NAMES[case]
    tree = jax.tree.map(float, tree)
    module = WrappedJaxFunction(lambda p, x: jax.tree.map(lambda leaf: leaf * x, p), tree)
    assert sorted(module.state_dict()) == sorted(names)
    result = module(torch.tensor(2.0))
    assert jax.tree.structure(result) == jax.tree.structure(tree)
    assert jax.tree.map(lambda leaf: leaf.item(), result) == jax.tree.map(lambda leaf: 2 * leaf, tree)


def test_a_dotted_key_and_a_nested_one_are_two_parameters() -> None:
    module = WrappedJaxFunction(lambda p, x: p["a.b"] * x + p["a"]["b"], {"a.b": jnp.ones(2), "a": {"b": jnp.zeros(2)}})
    assert len(list(module.parameters())) == 2


def test_integer_leaves_are_buffers_and_other_leaves_stay() -> None:
    def apply(params: Any, x: Any) -> Any:
        assert params["name"] == "relu"
        noise = jax.random.normal(params["key"], x.shape)
        return params["fn"](x * params["scale"] + params["offset"] + noise)

    params = {
        "scale": jnp.float32(2), "offset": jnp.arange(3), "key": jax.random.key(0), "fn": jax.nn.relu, "name": "relu",
    }  # fmt: skip
    module = WrappedJaxFunction(apply, params)
    assert [name for name, _ in module.named_parameters()] == ["params.scale"]
    assert [name for name, _ in module.named_buffers()] == ["params.offset"]
    x = torch.linspace(-1, 1, 3)
    module(x).sum().backward()
    value, gradient = jax.value_and_grad(lambda s: apply({**params, "scale": s}, jnp.array(x.numpy())).sum())(
        jnp.float32(2)
    )
    assert_close(module(x).sum().detach(), value)
    assert_close(module.get_parameter("params.scale").grad, gradient)


def test_a_python_float_is_a_parameter() -> None:
    module = WrappedJaxFunction(lambda p, x: p["s"] * x, {"s": 3.0})
    module(torch.tensor(2.0)).backward()
    assert module.get_parameter("params.s").grad == 2.0


def test_an_array_met_twice_is_one_parameter() -> None:
    shared = jnp.full((2, 2), 0.5)
    module = WrappedJaxFunction(lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"].T, {"a": shared, "b": shared})
    assert len(list(module.parameters())) == 1
    assert sorted(module.state_dict()) == ["params.a", "params.b"]
    x = torch.ones(1, 2)
    module(x).sum().backward()
    expected = jax.grad(lambda w: (jnp.tanh(jnp.ones((1, 2)) @ w) @ w.T).sum())(shared)
    assert_close(next(module.parameters()).grad, expected)


def test_equal_python_numbers_are_two_parameters() -> None:
    number = 0.5
    module = WrappedJaxFunction(lambda p, x: p["a"] * x + p["b"], {"a": number, "b": number})
    assert len(list(module.parameters())) == 2


# ---- ownership


def test_the_module_owns_its_parameters() -> None:
    params = normal(0, 2, 1)
    before = np.array(params)
    module = WrappedJaxFunction(dot, params)
    with torch.no_grad():
        module.get_parameter("params.0").zero_()
    np.testing.assert_array_equal(np.asarray(params), before)
    assert not subject("tj_core").shares_memory(module.get_parameter("params.0"), params)


def test_the_module_shares_its_parameters_on_demand() -> None:
    params = jax.block_until_ready(normal(0, 64, 1))
    module = WrappedJaxFunction(dot, params, clone_params=False)
    assert subject("tj_core").shares_memory(module.get_parameter("params.0"), params)


def test_an_in_place_step_is_seen_by_the_next_call() -> None:
    module = WrappedJaxFunction(dot, jnp.ones((2, 1)))
    x = torch.ones(1, 2)
    assert module(x).item() == 2
    with torch.no_grad():
        module.get_parameter("params.0").mul_(5)
    assert module(x).item() == 10
    module.get_parameter("params.0").data = torch.zeros(2, 1)
    assert module(x).item() == 0


def test_frozen_parameters_have_no_gradient() -> None:
    module = WrappedJaxFunction(mlp, mlp_params())
    module.get_submodule("params.first").requires_grad_(False)
    module(torch.ones(1, 3)).sum().backward()
    graded = {name for name, p in module.named_parameters() if p.grad is not None}
    assert graded == {"params.second.kernel", "params.second.bias"}


# ---- checkpoints and copies


def test_a_positional_checkpoint_loads() -> None:
    source, target = mlp_params(), jax.tree.map(jnp.zeros_like, mlp_params())
    positional = {f"params.{i}": torch.from_numpy(np.array(p)) for i, p in enumerate(jax.tree.leaves(source))}
    module = WrappedJaxFunction(mlp, target)
    assert not any(module.load_state_dict(positional))
    for name, parameter in module.named_parameters():
        _, layer, leaf = name.split(".")
        assert_equal(parameter.detach(), source[layer][leaf])


def test_a_positional_checkpoint_loads_inside_another_module() -> None:
    source = mlp_params()
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), WrappedJaxFunction(mlp, jax.tree.map(jnp.zeros_like, source)))
    state = {f"1.params.{i}": torch.from_numpy(np.array(p)) for i, p in enumerate(jax.tree.leaves(source))}
    model.load_state_dict(state | {"0.weight": torch.zeros(3, 3), "0.bias": torch.zeros(3)})
    assert_equal(model[1].get_parameter("params.second.bias").detach(), source["second"]["bias"])


def test_a_checkpoint_with_other_names_is_refused_by_torch() -> None:
    module = WrappedJaxFunction(mlp, mlp_params())
    with pytest.raises(RuntimeError, match=r"Missing key.*params\.first\.bias"):
        module.load_state_dict({"params.0": torch.zeros(5)})


def test_a_state_dict_round_trip_through_a_file() -> None:
    module, other = (
        WrappedJaxFunction(mlp, mlp_params()),
        WrappedJaxFunction(mlp, jax.tree.map(jnp.ones_like, mlp_params())),
    )
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.ones(2, 3)
    assert_equal(other(x).detach(), module(x).detach())


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m))}


@pytest.mark.parametrize("how", COPIES)
def test_a_copy_is_independent(how: str) -> None:
    module = WrappedJaxFunction(mlp, mlp_params())
    x = torch.ones(2, 3)
    before = module(x)
    twin = COPIES[how](module)
    assert_equal(twin(x).detach(), before.detach())
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert_equal(module(x).detach(), before.detach())
    assert twin(x).abs().max() == 0


def test_a_lambda_deepcopies_and_keeps_its_state_dict() -> None:
    module = WrappedJaxFunction(lambda p, x: p * x, jnp.ones(2))
    assert_equal(copy.deepcopy(module)(torch.ones(2)).detach(), torch.ones(2))
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(module)


# ---- dtypes


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_module_follows_to(dtype: torch.dtype) -> None:
    module = WrappedJaxFunction(dot, jnp.ones((2, 1))).to(dtype)
    out = module(torch.ones(3, 2, dtype=dtype))
    out.sum().backward()
    assert out.dtype == module.get_parameter("params.0").grad.dtype == dtype


@pytest.mark.usefixtures("x64")
def test_double_precision_is_kept_under_x64() -> None:
    module = WrappedJaxFunction(dot, jnp.full((2, 1), 1.0, jnp.float32)).double()
    x = torch.full((1, 2), 1 + 2.0**-40, dtype=torch.float64, requires_grad=True)
    out = module(x)
    out.backward()
    assert out.item() == 2 + 2.0**-39
    assert module.get_parameter("params.0").grad.dtype == torch.float64
    assert x.grad.dtype == torch.float64


# ---- aux and scalars


def test_aux_comes_along_without_a_gradient() -> None:
    def apply(params: Any, x: Any) -> Any:
        y = x @ params
        return y, {"y": y, "count": jnp.arange(2), "name": "dot", "nothing": None}

    module = WrappedJaxFunction(apply, jnp.ones((2, 1)), has_aux=True)
    out, aux = module(torch.ones(3, 2))
    assert out.requires_grad
    assert not aux["y"].requires_grad
    assert_equal(aux["y"], out.detach())
    assert_equal(aux["count"], torch.arange(2, dtype=torch.int32))
    assert aux["name"] == "dot"
    assert aux["nothing"] is None


def loss_of(params: Any, x: Any, y: Any) -> Any:
    return jnp.mean((mlp(params, x) - y) ** 2)


@pytest.mark.parametrize("aux", [False, True])
def test_a_scalar_function_has_value_and_gradient_in_one_pass(aux: bool) -> None:
    params, x, y = mlp_params(), normal(8, 16, 3), normal(9, 16, 2)
    traces = []

    def loss(params: Any, x: Any, y: Any) -> Any:
        traces.append(1)
        value = loss_of(params, x, y)
        return (value, {"mean": value}) if aux else value

    module = tj_autograd.WrappedJaxScalarFunction(loss, params, has_aux=aux)
    tx, ty = torch.from_numpy(np.array(x)).requires_grad_(), torch.from_numpy(np.array(y))
    for _ in range(3):
        module.zero_grad()
        tx.grad = None
        out = module(tx, ty)
        (3 * (out[0] if aux else out)).backward()
    value, gradients = jax.value_and_grad(lambda p, x: 3 * loss_of(p, x, y), (0, 1))(params, x)
    assert_close(3 * (out[0] if aux else out).detach(), value)
    assert_close(tx.grad, gradients[1])
    for name, parameter in module.named_parameters():
        assert_close(parameter.grad, gradients[0][name.split(".")[1]][name.split(".")[2]])
    assert len(traces) == 1


def test_a_scalar_function_has_second_derivatives() -> None:
    module = tj_autograd.WrappedJaxScalarFunction(lambda w, x: jnp.sum((w * x) ** 3), jnp.ones(2))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(module(x), x, create_graph=True)
    gradient.sum().backward()
    assert_close(x.grad, torch.tensor([6.0, 12.0]))


@pytest.mark.parametrize("fn", [lambda w: w * 2, lambda w: (w.sum(), w.sum()), lambda w: jnp.arange(2)])
def test_a_scalar_function_that_is_none_is_refused(fn: Any) -> None:
    module = tj_autograd.WrappedJaxScalarFunction(fn, jnp.ones(2))
    with pytest.raises(subject("tj_core").UnsupportedKindError, match=r"jax_function.*WrappedJaxFunction"):
        module()
