"""``torch.compile`` and ``torch.export``; the oracle is the call that is not compiled, held to JAX elsewhere."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close
from torch.fx.experimental.proxy_tensor import make_fx

tj_autograd = subject("tj_autograd")
wrap = tj_autograd.jax_function_to_torch

pytestmark = [
    # What the compiler itself warns about.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.. is deprecated"),
]


# Where the graph breaks at the call, as the README says, there is no full graph to test.
RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
fullgraph = pytest.mark.skipif(RELEASE < (2, 13), reason="not offered before torch 2.13: see the README's limits")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Counter:
    """A backend that lowers as "aot_eager" does, or not at all, and counts the graphs."""

    def __init__(self, lower: bool) -> None:
        self.graphs = 0
        self.lower = torch._dynamo.lookup_backend("aot_eager") if lower else lambda graph, _: graph

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return self.lower(graph, inputs)


def leaf(*shape: int, seed: int = 0) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def value_and_gradients(f: Callable[..., Any], args: Any, kwargs: Any = {}) -> tuple[Any, Any]:  # noqa: B006
    """The result of ``f``, and the gradients of its floating-point tensors in all of ``args``."""
    out = f(*args, **kwargs)
    smooth = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.requires_grad]
    loss = sum((t * (i + 1.0)).sum() for i, t in enumerate(smooth))
    leaves = [t for t in torch.utils._pytree.tree_leaves(args) if isinstance(t, torch.Tensor) and t.requires_grad]
    return out, torch.autograd.grad(loss, leaves, allow_unused=True)


def assert_same(found: Any, expected: Any) -> None:
    """The same tree, values and whether it has gradients."""
    leaves, spec = torch.utils._pytree.tree_flatten(expected)
    ours, our_spec = torch.utils._pytree.tree_flatten(found)
    assert our_spec == spec
    for a, b in zip(ours, leaves, strict=True):
        assert type(a) is type(b)
        if isinstance(b, torch.Tensor):
            assert a.requires_grad == b.requires_grad
            assert_close(a.detach(), b.detach())
        else:
            assert a == b


BACKENDS = {"eager": False, "aot_eager": True}


def dense(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"] + p["b"])


def branch(x: Any, *, flag: bool = True, name: str = "sin") -> Any:
    return getattr(jnp, name)(x) if flag else x * 2


X, Y = leaf(4, 3), leaf(4, 3, seed=1)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "one tensor": (wrap(jnp.sin), (X,), {}),
    "two": (wrap(lambda x, y: x * y + x), (X, Y), {}),
    "one of them constant": (wrap(lambda x, y: x * y), (X, Y.detach()), {}),
    "containers": (wrap(lambda p, x: dense(p, x)), ({"w": leaf(3, 2), "b": leaf(2)}, X), {}),
    "several results": (
        wrap(lambda x: {"a": x * 2, "b": [x.sum(), None, (3, "s", True)], "i": jnp.argmax(x)}),
        (X,),
        {},
    ),
    "auxiliary": (wrap(lambda x: (x * 2, {"aux": x * 3}), has_aux=True), (X,), {}),
    "numbers": (wrap(lambda x, n, s: x * n + s), (X, 3, 0.5), {}),
    "static values": (wrap(branch), (X,), {"flag": False, "name": "cos"}),
    "static arguments": (wrap(lambda x, n: x.reshape(n, -1), static_argnums=1), (X, 2), {}),
    "an input returned": (wrap(lambda x: (x, x)), (X,), {}),
    "integers in": (wrap(lambda x, i: x[i]), (X, torch.tensor([2, 0])), {}),
    "half precision": (wrap(lambda x: x.astype(jnp.bfloat16) * 2), (X,), {}),
    "complex": (wrap(lambda x: jnp.exp(1j * x).real), (X,), {}),
    "transposed": (wrap(jnp.sin), (leaf(3, 4).detach().T.requires_grad_(),), {}),
}


@fullgraph
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("case", CASES)
def test_equals_the_call_that_is_not_compiled(case: str, backend: str) -> None:
    f, args, kwargs = CASES[case]

    def user(*args: Any, **kwargs: Any) -> Any:
        return f(*args, **kwargs)

    compiled = torch.compile(user, backend=backend, fullgraph=True)
    expected, gradients = value_and_gradients(f, args, kwargs)
    for _ in range(2):
        found, ours = value_and_gradients(compiled, args, kwargs)
        assert_same(found, expected)
        assert_same(ours, gradients)


@fullgraph
@pytest.mark.parametrize("lower", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize(
    "f",
    [dense, lambda p, x: jnp.concatenate([dense(p, x), dense(p, x) * 2]).reshape(-1), lambda p, x: dense(p, x)[::2]],
    ids=["kept", "twice and flat", "half"],
)
def test_any_batch_is_one_graph(f: Callable[..., Any], lower: bool) -> None:
    g, p = wrap(f), {"w": leaf(3, 2), "b": leaf(2)}
    counter = Counter(lower)
    compiled = torch.compile(lambda p, x: g(p, x * 2) + 1, backend=counter, fullgraph=True, dynamic=True)
    for size in (4, 7, 5, 9):
        args = (p, leaf(size, 3, seed=size))
        for ours, expected in zip(
            value_and_gradients(compiled, args), value_and_gradients(lambda p, x: g(p, x * 2) + 1, args), strict=True
        ):
            assert_same(ours, expected)
    assert counter.graphs == 1


@fullgraph
@pytest.mark.parametrize("lower", BACKENDS.values(), ids=BACKENDS)
def test_a_function_that_asks_for_the_size_is_compiled_for_each(lower: bool) -> None:
    g = wrap(lambda x: x * 2 if x.shape[0] > 5 else x[:2])
    counter = Counter(lower)
    compiled = torch.compile(lambda x: g(x) + 1, backend=counter, fullgraph=True, dynamic=True)
    for size in (4, 7, 5, 7):
        x = leaf(size, 3, seed=size)
        assert_same(value_and_gradients(compiled, (x,)), value_and_gradients(lambda x: g(x) + 1, (x,)))
    assert counter.graphs == 3


@fullgraph
@pytest.mark.parametrize("lower", BACKENDS.values(), ids=BACKENDS)
def test_what_changes_is_seen(lower: bool) -> None:
    """Python values, the kind of a number, the structure and the function itself are guarded."""
    functions = [wrap(lambda x, v, s=s: x * s if v is None else x * s + len(str(v))) for s in (1.0, 2.0, 3.0)]
    scaled = wrap(lambda x, n: {"o": x * n})
    compiled = torch.compile(lambda f, x, v: f(x, v), backend=Counter(lower), fullgraph=True)
    values: list[Any] = [None, True, False, "a", "abc"]
    with torch._dynamo.config.patch(recompile_limit=64):
        for f in functions:
            for v in values:
                assert_same(
                    value_and_gradients(compiled, (f, X, v)), value_and_gradients(lambda *a: a[0](*a[1:]), (f, X, v))
                )
        for n in (2, 3, 5, 2.0, 3.5, -0.5, 2, 7):
            assert_same(compiled(scaled, X, n), scaled(X, n))
        x16 = X.detach().to(torch.bfloat16)
        for n in (2, 2.0):
            assert_same(compiled(scaled, x16, n), scaled(x16, n))


class Pair(NamedTuple):
    a: Any
    b: Any


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: (x * 2, jax.random.key(1)), ()),
        (lambda x: Pair(x, x * 2), ()),
        (lambda x, y: x * y, (jnp.ones(3),)),
        (lambda x, y: x * y, (np.ones(3, np.float32),)),
    ],
    ids=["key out", "named tuple out", "array in", "numpy in"],
)
def test_what_the_compiler_cannot_be_told_breaks_the_graph(f: Callable[..., Any], args: Any) -> None:
    g = wrap(f)
    compiled = torch.compile(lambda x, *args: g(x * 2, *args), backend="aot_eager")
    for _ in range(2):
        found, expected = compiled(X, *args), g(X * 2, *args)
        assert type(found) is type(expected)
        for a, b in zip(*[v if isinstance(v, tuple) else (v,) for v in (found, expected)], strict=True):
            if isinstance(b, torch.Tensor):
                assert_close(a.detach(), b.detach())
            else:
                assert (jax.random.key_data(a) == jax.random.key_data(b)).all()


PARAMS = {"b": jnp.arange(2.0), "key": jax.random.key(3), "w": jnp.ones((3, 2)), "n": 2, "steps": jnp.arange(2)}


def keyed(p: Any, x: Any) -> Any:
    noise = jax.random.normal(p["key"], (3,))
    return {"y": jnp.tanh((x + noise) @ p["w"] * p["n"] + p["b"]), "steps": p["steps"] + 1}


@fullgraph
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "copied",
    [lambda module: module, copy.deepcopy],
    ids=["itself", "copied"],
)
def test_module(copied: Callable[[Any], Any], backend: str) -> None:
    module = copied(tj_autograd.WrappedJaxFunction(keyed, PARAMS))
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), module)
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for step in range(3):
        x = leaf(4, 3, seed=step)
        grads = []
        for m in (model, compiled):
            model.zero_grad()
            out = m(x)
            out["y"].square().sum().backward()
            grads.append([out["y"].detach(), out["steps"], *[p.grad.clone() for p in model.parameters()]])
        assert_same(grads[1], grads[0])
        with torch.no_grad():  # what the optimizer does is seen
            for p in model.parameters():
                p -= 0.1 * p.grad


@fullgraph
def test_module_from_a_pickle() -> None:
    params = {k: v for k, v in PARAMS.items() if k in "bw"}
    module = pickle.loads(pickle.dumps(tj_autograd.WrappedJaxFunction(dense, params)))
    assert_same(torch.compile(module, backend="aot_eager", fullgraph=True)(X), module(X))


@fullgraph
def test_scalar_module() -> None:
    module = tj_autograd.WrappedJaxScalarFunction(lambda p, x: jnp.sum(jnp.sin(x * p)), jnp.arange(3.0))
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    x = leaf(4, 3)
    inputs = (x, *module.parameters())
    found = torch.autograd.grad(compiled(x), inputs)
    assert_same(found, torch.autograd.grad(module(x), inputs))


@fullgraph
def test_two_modules_of_one_function() -> None:
    """One compiled function must not take one module for the other, whose fixed leaves differ."""
    modules = [tj_autograd.WrappedJaxFunction(keyed, {**PARAMS, "key": jax.random.key(k), "n": k}) for k in (1, 2)]
    compiled = torch.compile(lambda m, x: m(x), backend="aot_eager", fullgraph=True)
    for module in modules * 2:
        assert_same(compiled(module, X), module(X))


@fullgraph
@pytest.mark.parametrize("dynamic", [False, True])
def test_inductor(dynamic: bool) -> None:
    module = tj_autograd.WrappedJaxFunction(dense, {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)})
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), module, torch.nn.Linear(2, 1))
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for size in (4, 6):
        x = leaf(size, 3)
        inputs = (x, *model.parameters())
        out, expected = compiled(x), model(x)
        assert_same(out, expected)
        assert_same(
            torch.autograd.grad(out.square().sum(), inputs), torch.autograd.grad(expected.square().sum(), inputs)
        )


@fullgraph
def test_without_gradients() -> None:
    g = wrap(jnp.sin)
    compiled = torch.compile(lambda x: g(x) * 2, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        assert_same(compiled(X), g(X) * 2)
    with torch.inference_mode():
        assert_close(compiled(X), g(X) * 2)
    assert_same(compiled(X), g(X) * 2)


@fullgraph
def test_results_share_no_memory() -> None:
    g = wrap(lambda x: (x, x, x.T))
    out = torch.compile(lambda x: g(x), backend="aot_eager", fullgraph=True)(X)
    assert len({t.untyped_storage().data_ptr() for t in (*out, X)}) == 4


@fullgraph
def test_second_derivative_where_the_compiler_supports_it() -> None:
    g = wrap(jnp.sin)
    compiled = torch.compile(lambda x: g(x) * 2, backend="eager", fullgraph=True)
    (first,) = torch.autograd.grad(compiled(X).sum(), X, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), X)
    assert_close(second, -2 * torch.sin(X.detach()))


TRANSFORMS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "grad": lambda g: torch.func.grad(lambda x: (g(x) * 2).sum()),
    "jvp": lambda g: lambda x: torch.func.jvp(g, (x,), (torch.cos(x),))[1],
    "vmap": lambda g: torch.func.vmap(g),
    "vmap of grad": lambda g: torch.func.vmap(torch.func.grad(lambda x: g(x).sum())),
}


@fullgraph
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_inside(name: str, backend: str) -> None:
    f = TRANSFORMS[name](wrap(lambda x: jnp.sin(x) * x))
    x = X.detach()
    assert_close(torch.compile(f, backend=backend, fullgraph=True)(x), f(x))


@fullgraph
def test_an_error_of_the_function_names_itself() -> None:
    def broken(x: Any) -> Any:
        raise ZeroDivisionError("of the function")

    g = wrap(broken)
    with pytest.raises(Exception, match="of the function"):
        torch.compile(lambda x: g(x), backend="aot_eager", fullgraph=True)(X)


@fullgraph
@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool) -> None:
    """One operator, any batch, and gradients of the second order too."""
    module = tj_autograd.WrappedJaxFunction(keyed, PARAMS)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), module)
    program = torch.export.export(model, (X.detach(),), dynamic_shapes=({0: torch.export.Dim("b")},), strict=strict)
    operators = [n for n in program.graph.nodes if "tj_autograd" in str(n.target)]
    assert len(operators) == 1
    exported, lowered = program.module(), program.run_decompositions({}).module()
    for size in (4, 7):
        x = leaf(size, 3)
        assert_same(lowered(x), model(x))
        results = []
        for m in (exported, model):
            out = m(x)
            inputs = (x, *[dict(m.named_parameters())[name] for name, _ in model.named_parameters()])
            first = torch.autograd.grad(out["y"].sum(), inputs, create_graph=True)
            second = torch.autograd.grad(sum(g.square().sum() for g in first), inputs)
            results.append([out["y"].detach(), out["steps"], *[g.detach() for g in first], *second])
        assert_same(*results)


def test_gradients_of_a_recorded_program_leave_out_what_is_auxiliary() -> None:
    g = wrap(lambda x, y: (x * y, x * 3), has_aux=True)
    program = torch.export.export(_Calls(g), (X.detach(), Y.detach()), strict=False).module()
    out, aux = program(X, Y)
    found = torch.autograd.grad(out.sum() + (aux.sum() if aux.requires_grad else 0), (X, Y))
    assert_same(found, torch.autograd.grad(g(X, Y)[0].sum(), (X, Y)))
    (x,) = torch.autograd.grad(program(X, Y.detach())[0].sum(), (X,))
    assert_close(x, Y.detach())


class _Calls(torch.nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


def test_a_handle_of_another_process_is_refused() -> None:
    make_fx(wrap(jnp.sin))(X.detach())  # the operator is registered when it is first needed
    operator = getattr(torch.ops, tj_autograd.__name__.replace(".", "_")).call
    with pytest.raises(subject("tj_core").UnsupportedKindError, match="record it again"):
        operator(1, [X.detach()])
