"""Each transform, on functions of either framework, with values of either. Oracle: torch.func and jax themselves."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close

tj_core = subject("tj_core")
tj_func = subject("tj_func")

Function = Callable[..., Any]


class Twins(NamedTuple):
    """One function, written in torch, in JAX, and with operators that both have."""

    torch: Function
    jax: Function
    either: Function


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


SCALAR = Twins(
    lambda x, y: (torch.sin(x) * y["w"]).sum(),
    lambda x, y: (jnp.sin(x) * y["w"]).sum(),
    lambda x, y: (x * x * x * y["w"]).sum(),
)
AUX = Twins(
    lambda x, y: ((torch.exp(x) * y["w"]).sum(), {"aux": torch.cos(x)}),
    lambda x, y: ((jnp.exp(x) * y["w"]).sum(), {"aux": jnp.cos(x)}),
    lambda x, y: ((x**3 * y["w"]).sum(), {"aux": x * 2}),
)
VECTOR = Twins(
    lambda x, y: {"out": torch.tanh(x[:, None] * y["w"])},
    lambda x, y: {"out": jnp.tanh(x[:, None] * y["w"])},
    lambda x, y: {"out": x[:, None] * y["w"] ** 2},
)
ARGS = (randn(3), {"w": randn(3)})
Use = Callable[[Any, Function, tuple[Any, ...]], Any]


def products(F: Any, f: Function, args: tuple[Any, ...]) -> Any:
    out, vjp_fn = F.vjp(f, *args)
    return out, vjp_fn({"out": out["out"] * 2})


def pushed(F: Any, f: Function, args: tuple[Any, ...]) -> Any:
    return F.jvp(f, args, (args[0] * 2, {"w": args[1]["w"] * 3}))


def linearized(F: Any, f: Function, args: tuple[Any, ...]) -> Any:
    out, jvp_fn = F.linearize(f, *args)
    return out, jvp_fn(args[0] * 2, {"w": args[1]["w"] * 3})


def mapped(F: Any, f: Function, args: tuple[Any, ...]) -> Any:
    rows = {"w": args[1]["w"][None, :] * args[0][:, None]}
    return F.vmap(f, in_dims=(None, {"w": 1}), out_dims=2)(args[0], rows)


USES: dict[str, tuple[Twins, Use]] = {
    "grad": (SCALAR, lambda F, f, args: F.grad(f)(*args)),
    "grad of two": (SCALAR, lambda F, f, args: F.grad(f, argnums=(0, 1))(*args)),
    "grad of the last": (SCALAR, lambda F, f, args: F.grad(f, argnums=-1)(*args)),
    "grad with aux": (AUX, lambda F, f, args: F.grad(f, has_aux=True)(*args)),
    "grad_and_value": (SCALAR, lambda F, f, args: F.grad_and_value(f)(*args)),
    "grad_and_value with aux": (AUX, lambda F, f, args: F.grad_and_value(f, argnums=1, has_aux=True)(*args)),
    "vjp": (VECTOR, products),
    "vjp with aux": (AUX, lambda F, f, args: F.vjp(f, *args, has_aux=True)[::2]),
    "jvp": (VECTOR, pushed),
    "jvp with aux": (AUX, lambda F, f, args: F.jvp(f, args, args, has_aux=True)),
    "linearize": (VECTOR, linearized),
    "jacrev": (VECTOR, lambda F, f, args: F.jacrev(f, argnums=(0, 1))(*args)),
    "jacrev with aux": (AUX, lambda F, f, args: F.jacrev(f, has_aux=True)(*args)),
    "jacfwd": (VECTOR, lambda F, f, args: F.jacfwd(f, argnums=1)(*args)),
    "hessian": (SCALAR, lambda F, f, args: F.hessian(f, argnums=(0, 1))(*args)),
    "vmap": (VECTOR, mapped),
    "grad of vmap": (VECTOR, lambda F, f, args: F.grad(lambda x: mapped(F, f, (x, args[1]))["out"].sum())(args[0])),
    "jacobian of gradient": (SCALAR, lambda F, f, args: F.jacfwd(F.grad(f))(*args)),
    "vmap of gradient": (SCALAR, lambda F, f, args: F.vmap(F.grad(f), in_dims=(0, None))(args[0][:, None], args[1])),
    "vmap of hessian": (SCALAR, lambda F, f, args: F.vmap(F.hessian(f), in_dims=(0, None))(args[0][:, None], args[1])),
}


def as_arrays(tree: Any) -> Any:
    return jax.tree.map(lambda t: jnp.asarray(t.detach().numpy()), tree)


def agree(found: Any, expected: Any, kind: type) -> None:
    """The same tree, with leaves of this kind, whose values are close."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for leaf, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert isinstance(leaf, kind)
        assert_close(leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, other.detach())


@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node")  # torch.func.linearize, from torch.fx
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func in forward mode, for the oracle
@pytest.mark.parametrize("values", ["tensors", "arrays"])
@pytest.mark.parametrize("written", Twins._fields)
@pytest.mark.parametrize("name", USES)
def test_every_function_with_every_kind_of_value(name: str, written: str, values: str) -> None:
    twins, use = USES[name]
    # The third function is another one: its own oracle is itself, in torch.
    expected = use(torch.func, twins.either if written == "either" else twins.torch, ARGS)
    args, kind = (ARGS, torch.Tensor) if values == "tensors" else (as_arrays(ARGS), jax.Array)
    agree(use(tj_func, getattr(twins, written), args), expected, kind)


@pytest.mark.parametrize("framework", ["torch", "jax"])
@pytest.mark.parametrize("values", ["tensors", "arrays"])
def test_saying_the_framework(framework: str, values: str) -> None:
    args, kind = (ARGS, torch.Tensor) if values == "tensors" else (as_arrays(ARGS), jax.Array)
    found = tj_func.grad(getattr(SCALAR, framework), framework=framework)(*args)
    agree(found, torch.func.grad(SCALAR.torch)(*ARGS), kind)


@pytest.mark.parametrize("chunk_size", [None, 1, 2, 5, 7])
@pytest.mark.parametrize("written", ["torch", "jax"])
@pytest.mark.parametrize("values", ["tensors", "arrays"])
def test_vmap_in_chunks(written: str, values: str, chunk_size: int | None) -> None:
    x, w = randn(4, 5, 3), randn(3)
    dims = {"in_dims": (1, {"w": None}), "out_dims": ({"out": 1, "first": 0}), "chunk_size": chunk_size}
    twins = {
        "torch": lambda x, y: {"out": torch.tanh(x * y["w"]), "first": torch.sum(x)},
        "jax": lambda x, y: {"out": jnp.tanh(x * y["w"]), "first": jnp.sum(x)},
    }
    expected = torch.func.vmap(twins["torch"], in_dims=(1, {"w": None}), out_dims={"out": 1, "first": 0})(x, {"w": w})
    args, kind = ((x, {"w": w}), torch.Tensor) if values == "tensors" else (as_arrays((x, {"w": w})), jax.Array)
    agree(tj_func.vmap(twins[written], **dims)(*args), expected, kind)


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_vmap_with_an_output_that_is_not_mapped_in_jax(chunk_size: int | None) -> None:
    f = tj_func.vmap(lambda x, y: (jnp.sin(x), jnp.cos(y)), (0, None), (0, None), chunk_size=chunk_size)
    x = jnp.arange(3.0)
    agree(f(x, x), (torch.sin(torch.arange(3.0)), torch.cos(torch.arange(3.0))), jax.Array)


@pytest.mark.parametrize("written", ["torch", "jax"])
@pytest.mark.parametrize("values", ["tensors", "arrays"])
def test_keyword_arguments_are_neither_mapped_nor_differentiated(written: str, values: str) -> None:
    functions = {
        "torch": lambda x, *, w, power: (torch.sin(x) * w).sum() ** power,
        "jax": lambda x, *, w, power: (jnp.sin(x) * w).sum() ** power,
    }
    x, w = randn(2, 3), randn(3)
    use = lambda F, f, x, w: F.vmap(F.grad(f))(x, w=w, power=2)  # noqa: E731
    expected = use(torch.func, functions["torch"], x, w)
    args, kind = ((x, w), torch.Tensor) if values == "tensors" else (as_arrays((x, w)), jax.Array)
    agree(use(tj_func, functions[written], *args), expected, kind)


@pytest.mark.parametrize("written", ["torch", "jax"])
@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_complex_gradients_follow_the_side_that_is_called(written: str, shape: tuple[int, ...]) -> None:
    functions = {
        "torch": lambda z: (torch.abs(z) ** 2 + torch.real(z * z * 1j)).sum(),
        "jax": lambda z: (jnp.abs(z) ** 2 + jnp.real(z * z * 1j)).sum(),
    }
    z = torch.complex(randn(*shape), randn(*shape).flip(0))
    agree(tj_func.grad(functions[written])(z), torch.func.grad(functions["torch"])(z), torch.Tensor)
    array = jnp.asarray(z.numpy())
    found, expected = tj_func.grad(functions[written])(array), jax.grad(functions["jax"])(array)
    assert_close(found, expected)


@pytest.mark.parametrize("written", ["torch", "jax"])
def test_the_result_is_an_ordinary_function_of_torch(written: str) -> None:
    gradient = tj_func.grad(getattr(SCALAR, written))
    x = ARGS[0].clone().requires_grad_()
    gradient(x, ARGS[1]).pow(2).sum().backward()
    twin = ARGS[0].clone().requires_grad_()
    torch.func.grad(SCALAR.torch)(twin, ARGS[1]).pow(2).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, twin.grad)
    found = torch.func.vmap(gradient, in_dims=(0, None))(ARGS[0][:, None], ARGS[1])
    torch.testing.assert_close(
        found, torch.func.vmap(torch.func.grad(SCALAR.torch), in_dims=(0, None))(ARGS[0][:, None], ARGS[1])
    )


@pytest.mark.parametrize("written", ["torch", "jax"])
def test_the_result_is_an_ordinary_function_of_jax(written: str) -> None:
    gradient = tj_func.grad(getattr(SCALAR, written))
    args = as_arrays(ARGS)
    expected = jax.jacobian(jax.grad(SCALAR.jax))(*args)
    assert_close(jax.jit(jax.jacobian(gradient))(*args), expected)
    rows = jax.vmap(gradient, in_axes=(0, None))(args[0][:, None], args[1])
    assert_close(rows, jax.vmap(jax.grad(SCALAR.jax), in_axes=(0, None))(args[0][:, None], args[1]))


def test_closure_tensors_are_seen_as_they_are_now() -> None:
    w = torch.ones(3)
    gradient = tj_func.grad(lambda x: (torch.sin(x) * w).sum())
    tensor, array = ARGS[0], as_arrays(ARGS[0])
    for factor in (1.0, 2.0):
        w.fill_(factor)
        torch.testing.assert_close(gradient(tensor), torch.cos(tensor) * factor)
        assert_close(gradient(array), torch.cos(tensor) * factor)


def test_randomness_as_in_torch() -> None:
    draw = lambda x: x + torch.rand(())  # noqa: E731
    x = torch.zeros(64)
    with pytest.raises(RuntimeError, match="random"):
        tj_func.vmap(draw)(x)
    assert len(tj_func.vmap(draw, randomness="same")(x).unique()) == 1
    assert len(tj_func.vmap(draw, randomness="different")(x).unique()) > 1
    # JAX draws nothing without a key.
    with pytest.raises(tj_core.TJError, match="random"):
        tj_func.vmap(draw, randomness="different")(jnp.zeros(64))
    keys = jax.random.split(jax.random.key(0), 4)
    np.testing.assert_array_equal(tj_func.vmap(jax.random.normal)(keys), jax.vmap(jax.random.normal)(keys))
