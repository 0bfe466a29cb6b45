"""What goes in and what comes out: trees, constants, static values, aux, and how often a function is traced."""

import copy
import dataclasses
import pickle
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest import dtypes
from tjtest.subject import subject
from tjtest.tolerances import assert_close, assert_equal
from tjtest.values import sample

tj_core = subject("tj_core")
wrap = subject("tj_autograd").jax_function_to_torch

# torch itself scripts its decompositions for forward mode, and warns about that.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass(frozen=True)
class Point:
    x: Any
    y: Any


def counted(fn: Callable[..., Any]) -> tuple[Any, list[Any]]:
    """``fn`` for torch, and a list that grows with each trace of it."""
    traces: list[Any] = []

    def counting(*args: Any, **kwargs: Any) -> Any:
        traces.append((args, kwargs))
        return fn(*args, **kwargs)

    return wrap(counting), traces


# ---- containers


def a_tree(leaf: Callable[[float], Any]) -> dict[Any, Any]:
    return {
        "list": [leaf(1), leaf(2)],
        "tuple": (leaf(3), None),
        3: OrderedDict(b=leaf(4), a=leaf(5)),
        "named": Pair(leaf(6), "text"),
        "data": Point(leaf(7), {"deep": leaf(8)}),
        "default": defaultdict(list, k=leaf(9)),
    }


def test_a_tree_goes_in_and_comes_out_as_it_was() -> None:
    tree = a_tree(lambda v: torch.tensor(float(v), requires_grad=True))
    leaves = [leaf for leaf in subject("tj_core._tree").tree_flatten(tree)[0] if isinstance(leaf, torch.Tensor)]
    seen = []

    def double(tree: Any) -> Any:
        seen.append(tree)
        flat, treedef = subject("tj_core._tree").tree_flatten(tree)
        return treedef.unflatten([2 * x if isinstance(x, jax.Array) else x for x in flat])

    out = wrap(double)(tree)
    assert subject("tj_core._tree").tree_flatten(out)[1] == subject("tj_core._tree").tree_flatten(tree)[1]
    assert type(seen[0]["data"]) is Point
    assert seen[0]["tuple"][1] is None
    assert list(out) == list(tree)
    assert out["default"].default_factory is list
    assert out["named"].right == "text"
    out["data"].y["deep"].backward()
    graded = [leaf for leaf in leaves if leaf.grad]
    assert [leaf.item() for leaf in graded] == [8]
    assert graded[0].grad == 2


def test_every_float_leaf_in_and_out_has_its_gradient() -> None:
    x = {"a": torch.tensor([1.0, 2.0], requires_grad=True), "b": [torch.tensor(3.0, requires_grad=True)]}
    out = wrap(lambda t: {"p": t["a"] * t["b"][0], "q": [t["b"][0] ** 2]})(x)
    (out["p"].sum() + out["q"][0]).backward()
    assert_close(x["a"].grad, torch.tensor([3.0, 3.0]))
    assert_close(x["b"][0].grad, torch.tensor(9.0))


def test_unused_outputs() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    used, _, _ = wrap(lambda x: (x**2, jnp.exp(x), x.sum()))(x)
    used.sum().backward()
    assert_close(x.grad, torch.tensor([2.0, 4.0]))


def test_keyword_arguments_and_defaults() -> None:
    f = wrap(lambda x, *, scale, shift=1.0: x * scale + shift)
    x, scale = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    out = f(x, scale=scale)
    out.backward()
    assert (out.item(), x.grad.item(), scale.grad.item()) == (7, 3, 2)


@pytest.mark.parametrize("result", [None, "text", (), {"n": None, "k": 3}, [1.5, True]], ids=repr)
def test_results_without_arrays(result: Any) -> None:
    x = torch.ones(2, requires_grad=True)
    out = wrap(lambda x: result)(x)
    assert out == result
    assert type(out) is type(result)


def test_no_tensor_goes_in() -> None:
    out = wrap(lambda n: jnp.arange(3) * n)(2)
    assert_equal(out, torch.tensor([0, 2, 4], dtype=torch.int32))
    assert_equal(torch.func.vmap(lambda x: x * wrap(lambda: jnp.ones(3))())(torch.ones(2, 3)), torch.ones(2, 3))


# ---- kinds of leaves


@pytest.mark.parametrize("name", ["bool", "int8", "int32", "uint8"])
def test_integer_tensors_go_in_and_come_out(name: str) -> None:
    x, i = torch.ones(3, requires_grad=True), sample(name, (3,))
    out, index = wrap(lambda x, i: (x * i, i))(x, i)
    out.sum().backward()
    assert_equal(index, i)
    assert not index.requires_grad
    assert_close(x.grad, i.float())


@pytest.mark.parametrize("name", dtypes.FLOATS[:3])
def test_every_float_dtype_is_kept(name: str) -> None:
    x = sample(name, (4,)).requires_grad_()
    out = wrap(lambda x: x * x)(x)
    out.sum().backward()
    assert out.dtype == x.grad.dtype == x.dtype
    assert_close(x.grad, 2 * x.detach())


def test_labels_of_64_bits_while_jax_has_32() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([0, 2, 1, 1])
    f = wrap(lambda z, y: -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], axis=1).mean())
    f(logits, labels).backward()
    twin = logits.detach().clone().requires_grad_()
    torch.nn.functional.cross_entropy(twin, labels).backward()
    assert_close(logits.grad, twin.grad)
    with pytest.raises(tj_core.ValueRangeError):
        f(logits, torch.tensor([2**40, 0, 0, 0]))


def test_float64_while_jax_has_32_bits_has_a_float64_gradient() -> None:
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    f = wrap(lambda x: x * 2)
    # The warning comes once per process; its own tests are those of tj_core.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tj_core.PrecisionLossWarning)
        out = f(x)
        out.sum().backward()
    assert out.dtype == torch.float32
    assert x.grad.dtype == torch.float64
    assert_close(x.grad, torch.full((2,), 2.0, dtype=torch.float64))


def test_python_numbers_keep_their_weak_type() -> None:
    x = torch.ones(2, dtype=torch.bfloat16)
    assert wrap(lambda x, a, b: x * a + b)(x, 2.0, 1).dtype == torch.bfloat16


def test_python_numbers_are_traced_and_bools_are_static() -> None:
    f, traces = counted(lambda x, a, flag: x * a if flag else x + a)
    x = torch.ones(2)
    assert [f(x, a, True)[0].item() for a in (1.0, 2.0, 3.0)] == [1, 2, 3]
    assert len(traces) == 1
    assert f(x, 2.0, False)[0].item() == 3
    assert len(traces) == 2


def test_static_values_of_different_types_or_signs_are_different() -> None:
    f = wrap(lambda x, n: jnp.full_like(x, str(n) == "True" or str(n) == "-0.0"), static_argnames="n")
    x = torch.ones(1)
    values = [1, True, 1.0, 0.0, -0.0]
    assert [f(x, n).item() for n in values] == [0, 1, 0, 0, 1]


def test_none_strings_and_other_hashables_are_static() -> None:
    seen = []

    def fn(x: Any, *rest: Any) -> Any:
        seen.append(rest)
        return x

    rest = (None, "mode", jnp.tanh, int, frozenset({1}), range(3))
    wrap(fn)(torch.ones(1), *rest)
    assert seen == [rest]


@pytest.mark.parametrize("how", [{"static_argnums": 1}, {"static_argnums": (-1,)}, {"static_argnames": ("axis",)}])
def test_static_arguments_by_place_and_by_name(how: dict[str, Any]) -> None:
    f = wrap(lambda x, axis: jnp.sum(x, axis=axis), **how)
    x = torch.ones(2, 3, requires_grad=True)
    assert f(x, 1).tolist() == [3, 3]
    assert f(x, axis=0).tolist() == [2, 2, 2]
    assert f(x, (0, 1)).item() == 6


@pytest.mark.parametrize(
    "value", [[0, 1], torch.ones(1), np.ones(1), {"a": 1}], ids=["list", "tensor", "numpy", "dict"]
)
def test_a_static_argument_that_cannot_be_one_is_refused_by_name(value: Any) -> None:
    f = wrap(lambda x, axis: x, static_argnames="axis")
    with pytest.raises(tj_core.UnsupportedKindError, match="axis"):
        f(torch.ones(1), axis=value)


def test_static_argnums_out_of_range() -> None:
    with pytest.raises(ValueError, match="static_argnums"):
        wrap(lambda x: x, static_argnums=-2)


def test_an_argument_of_an_unknown_kind_is_refused_by_name() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(tj_core.UnsupportedKindError, match="positional argument 1.*Unhashable"):
        wrap(lambda x, y: x)(torch.ones(1), [1, Unhashable()])
    with pytest.raises(tj_core.UnsupportedKindError, match="option.*Unhashable"):
        wrap(lambda x, option: x)(torch.ones(1), option=Unhashable())


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_a_tensor_that_cannot_cross_is_refused(kind: str) -> None:
    x = torch.eye(2).to_sparse() if kind == "sparse" else torch.ones(2, device="meta")
    with pytest.raises(tj_core.UnsupportedKindError, match=kind):
        wrap(lambda x: x)(x)


@pytest.mark.parametrize("typed", [True, False])
def test_prng_keys_pass_straight_through(typed: bool) -> None:
    key = jax.random.key(7) if typed else jax.random.PRNGKey(7)
    x = torch.zeros(3, requires_grad=True)

    def fn(key: Any, x: Any) -> Any:
        key, sub = jax.random.split(key)
        return x * jax.random.normal(sub, x.shape), key

    out, new = wrap(fn)(key, x)
    out.sum().backward()
    expected, expected_new = jax.jit(fn)(key, jnp.ones(3))
    assert_close(x.grad, expected)
    if typed:
        assert isinstance(new, jax.Array)
        assert new == expected_new
        wrap(fn)(new, x)
    else:
        assert isinstance(new, torch.Tensor)


def test_jax_and_numpy_arrays_are_constants() -> None:
    x = torch.ones(3, requires_grad=True)
    numpy = np.arange(3.0, dtype=np.float32)
    out = wrap(lambda x, a, b: x * a * b)(x, jnp.arange(3.0), numpy)
    numpy[:] = 100  # changed between forward and backward
    out.sum().backward()
    assert_close(x.grad, torch.tensor([0.0, 1.0, 4.0]))


def test_closed_over_arrays_are_not_returned_by_each_forward() -> None:
    big = jnp.ones((3, 3))
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        out = wrap(lambda x: jnp.tanh(x @ big))(x)
    assert torch.Size([3, 3]) not in [t.shape for t in out.grad_fn.saved_tensors]
    out.sum().backward()
    assert_close(x.grad, jax.grad(lambda x: jnp.tanh(x @ big).sum())(jnp.ones(3)))


# ---- aux


def test_aux_of_any_kind_has_no_gradient() -> None:
    x = torch.ones(3, requires_grad=True)
    f = wrap(lambda x: (x.sum(), {"x": x * 2, "n": None, "s": "text", "i": jnp.arange(2)}), has_aux=True)
    out, aux = f(x)
    assert out.requires_grad
    assert not aux["x"].requires_grad
    assert (aux["n"], aux["s"], aux["i"].tolist()) == (None, "text", [0, 1])
    out.backward()
    assert_close(x.grad, torch.ones(3))


def test_aux_that_is_no_pair_is_refused() -> None:
    with pytest.raises(tj_core.UnsupportedKindError, match="has_aux"):
        wrap(lambda x: x, has_aux=True)(torch.ones(1))


# ---- how often


def test_no_retrace_over_repeated_calls() -> None:
    f, traces = counted(lambda x, y: jnp.tanh(x @ y))
    x, y = torch.randn(4, 3, requires_grad=True), torch.randn(3, 2, requires_grad=True)
    for _ in range(1000):
        f(x, y).sum().backward()
    assert len(traces) == 1


def test_one_trace_for_each_shape_and_mode() -> None:
    f, traces = counted(lambda x: x * 2)
    for size in (1, 2, 1, 2):
        f(torch.ones(size))
    assert len(traces) == 2
    for size in (1, 2, 1, 2):
        f(torch.ones(size, requires_grad=True)).sum().backward()
    assert len(traces) == 4


def test_transforms_are_not_traced_again() -> None:
    f, traces = counted(lambda x: (jnp.sin(x) ** 2).sum())
    x = torch.ones(3)
    torch.func.hessian(f)(x)
    before = len(traces)
    for _ in range(3):
        torch.func.hessian(f)(x)
    assert len(traces) == before


def test_structures_are_remembered_within_bounds() -> None:
    f = wrap(lambda x, name: x * len(name))
    x = torch.ones(1)
    for i in range(300):
        assert f(x, "n" * i).item() == i
    assert f._flat.cache_info().currsize <= f._flat.cache_info().maxsize


# ---- the wrapper itself


def module_level(x: Any, y: Any) -> Any:
    """Adds sines."""
    return jnp.sin(x) + y


@jax.jit
def jitted_at_module_level(x: Any, y: Any) -> Any:
    return module_level(x, y)


@wrap
def by_decorator(x: Any) -> Any:
    return x * 2


def test_the_wrapper_looks_like_the_function() -> None:
    f = wrap(module_level)
    assert (f.__name__, f.__doc__, f.__wrapped__) == ("module_level", "Adds sines.", module_level)
    assert "module_level" in repr(f)


COPIED = {
    "plain": module_level,
    "jitted": jax.jit(module_level),
    "jitted by decorator": jitted_at_module_level,
    "partial": partial(module_level),
}
COPIES = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda f: pickle.loads(pickle.dumps(f))}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("fn", COPIED)
def test_copies_and_pickles(fn: str, how: str) -> None:
    twin = COPIES[how](wrap(COPIED[fn]))
    assert_close(twin(torch.zeros(2), torch.ones(2)), torch.ones(2))


def test_a_decorated_function_pickles_by_its_name() -> None:
    assert by_decorator(torch.ones(1)).item() == 2
    assert pickle.loads(pickle.dumps(by_decorator)) is by_decorator


def test_a_lambda_does_not_pickle_and_says_so() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(wrap(lambda x: x))


def test_a_round_trip_gives_the_function_back() -> None:
    assert tj_core.torch_to_jax(wrap(module_level)) is module_level
    assert tj_core.jax_to_torch(wrap(module_level))(torch.zeros(1), torch.ones(1)).item() == 1


def test_as_a_method() -> None:
    class Model:
        scale = 3.0

        @wrap
        def __call__(self, x: Any) -> Any:
            return x * self.scale

    assert Model()(torch.ones(1)).item() == 3


def test_errors_of_the_function_arrive_as_they_are() -> None:
    def fails(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        wrap(fails)(torch.ones(1))
    with pytest.raises(TypeError, match="dot_general|matmul"):
        wrap(jnp.matmul)(torch.ones(2, 3), torch.ones(2, 3))


def test_inside_no_grad_and_inference_mode() -> None:
    x = torch.ones(2, requires_grad=True)
    f = wrap(lambda x: x * 2)
    with torch.no_grad():
        assert not f(x).requires_grad
    with torch.inference_mode():
        assert f(torch.ones(2)).tolist() == [2, 2]
        assert not f(x).requires_grad
    assert f(x).requires_grad


def test_under_autocast_dtypes_are_those_of_the_arguments() -> None:
    linear = torch.nn.Linear(3, 3)
    x = torch.ones(2, 3, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = linear(x)
        out = wrap(lambda h, w: h @ w)(hidden, torch.ones(3, 2))
    assert (hidden.dtype, out.dtype) == (torch.bfloat16, torch.float32)
    out.sum().backward()
    assert x.grad.dtype == torch.float32


def test_under_checkpoint() -> None:
    f = wrap(lambda x: jnp.sin(x) * x)
    x, twin = (torch.linspace(0, 1, 4).requires_grad_() for _ in range(2))
    for reentrant in (True, False):
        torch.utils.checkpoint.checkpoint(f, x, use_reentrant=reentrant).sum().backward()
        f(twin).sum().backward()
    assert_close(x.grad, twin.grad)


def test_threads_share_one_wrapper() -> None:
    f = wrap(lambda x: (x**2).sum())

    def step(n: int) -> float:
        x = torch.full((n,), float(n), requires_grad=True)
        f(x).backward()
        return float(x.grad.sum())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(step, [1, 2, 3, 4] * 10)) == [2 * n * n for n in (1, 2, 3, 4)] * 10
