"""torch_function_to_jax: values, dtypes, trees and errors, with torch eager as the oracle."""

import collections
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest import dtypes
from tjtest.shapes import SHAPES
from tjtest.tolerances import assert_close, assert_equal
from tjtest.values import sample

NARROW = [name for name in dtypes.COMMON if name not in dtypes.NARROWED]


def as_array(tensor: torch.Tensor) -> jax.Array:
    """Without the bridge: through NumPy, bfloat16 through float32, which holds it exactly."""
    wide = tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()
    return jnp.asarray(wide).astype("bfloat16") if tensor.dtype == torch.bfloat16 else jnp.asarray(wide)


def both(function):
    """The function called eagerly and compiled."""
    return {"eager": function, "jit": jax.jit(function)}


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("name", NARROW)
def test_every_dtype_and_shape_passes_unchanged(jaxify, lowering, name, shape, mode):
    tensor = sample(name, shape)
    f = jaxify.torch_function_to_jax(lambda x: (torch.cat([x.reshape(-1), x.reshape(-1)]), x.clone()))
    first, second = both(f)[mode](as_array(tensor))
    assert_equal(first, torch.cat([tensor.reshape(-1), tensor.reshape(-1)]))
    assert_equal(second, tensor)


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_x64_keeps_every_bit(jaxify, x64, mode, lowering):
    f = both(jaxify.torch_function_to_jax(lambda x: x + 1))[mode]
    assert_equal(f(jnp.int64(2**40 + 5)), torch.tensor(2**40 + 6))
    assert_equal(f(jnp.float64(1e-300)), torch.tensor(1e-300, dtype=torch.float64) + 1)
    assert f(jnp.int32(3)).dtype == jnp.int32


def test_int32_stands_for_int64_while_x64_is_off(jaxify):
    seen = []
    f = jaxify.torch_function_to_jax(lambda x: (seen.append(x.dtype), x + 1)[1])
    out = f(jnp.arange(3))
    assert set(seen) == {torch.int64}
    assert_equal(out, torch.tensor([1, 2, 3], dtype=torch.int32))


LABELS = {
    "cross_entropy": lambda x, y: torch.nn.functional.cross_entropy(x, y),
    "gather": lambda x, y: x.gather(1, y[:, None]),
    "scatter": lambda x, y: torch.zeros_like(x).scatter_add(1, y[:, None], x),
    "embedding": lambda x, y: torch.nn.functional.embedding(y, x),
    "index": lambda x, y: x[y],
    "one_hot": lambda x, y: torch.nn.functional.one_hot(y, 5) @ x,
}


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("case", LABELS)
def test_labels_are_accepted_where_torch_demands_int64(jaxify, case, mode):
    x, y = torch.randn(5, 5, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 3, 1, 4, 2])
    if case == "one_hot":
        x = x.long()
    f = both(jaxify.torch_function_to_jax(LABELS[case]))[mode]
    expected = LABELS[case](x, y)
    assert_close(f(as_array(x), as_array(y)), expected.int() if case == "one_hot" else expected)


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_an_integer_result_that_does_not_fit_is_an_error_and_not_another_number(jaxify, mode):
    f = both(jaxify.torch_function_to_jax(lambda x: x * 2**20))[mode]
    assert f(jnp.int32(3)).item() == 3 * 2**20
    with pytest.raises(Exception, match="does not fit torch.int32, which JAX uses while jax_enable_x64 is off"):
        f(jnp.int32(2**20)).block_until_ready()


Point = collections.namedtuple("Point", "x y")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Pair:
    left: object
    right: object


def test_trees_go_in_and_come_out_as_they_are(jaxify):
    def f(tree, *, scale, flag=None):
        assert isinstance(tree["point"], Point)
        assert isinstance(tree["pair"], Pair)
        assert flag is None
        x = tree["point"].x * scale + tree["pair"].left
        return {"out": [x, None, ("text", 3)], 7: Point(x + 1, tree["point"].y), "pair": Pair(x, (x, x))}

    tree = {"point": Point(jnp.ones(2), jnp.zeros(3)), "pair": Pair(jnp.ones(()), "right")}
    out = jaxify.torch_function_to_jax(f)(tree, scale=2.0)
    assert list(out) == ["out", 7, "pair"]
    assert out["out"][1:] == [None, ("text", 3)]
    assert isinstance(out[7], Point)
    assert isinstance(out["pair"], Pair)
    for leaf in (out["out"][0], out["pair"].left, *out["pair"].right):
        assert_equal(leaf, torch.full((2,), 3.0))
    assert_equal(out[7].y, torch.zeros(3))


def test_static_arguments_stay_python_values_and_are_told_apart(jaxify):
    seen = []
    f = jaxify.torch_function_to_jax(lambda x, how: (seen.append(how), x)[1])
    statics = [1, 1.0, True, "1", None, 0.0, -0.0, (1, "a"), torch.float32, object()]
    for how in statics:
        f(jnp.ones(2), how)
        assert type(seen[-1]) is type(how)
        assert repr(seen[-1]) == repr(how)


def test_results_without_tensors(jaxify):
    assert jaxify.torch_function_to_jax(lambda x: None)(jnp.ones(2)) is None
    assert jaxify.torch_function_to_jax(lambda x: (x.shape[0], "a"))(jnp.ones(2)) == (2, "a")
    assert_equal(jaxify.torch_function_to_jax(lambda: torch.arange(3.0))(), torch.arange(3.0))
    assert_equal(jax.jit(jaxify.torch_function_to_jax(lambda: torch.arange(3.0)))(), torch.arange(3.0))


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x[:1].expand(4, -1),
    "strided": lambda x: x[:, ::2],
    "the operand": lambda x: x,
    "a view": lambda x: x[1:],
    "conjugated": lambda x: torch.complex(x, x).conj(),
    "negative": lambda x: torch.complex(x, x).conj().imag,
    "twice": lambda x: (lambda y: (y, y, y.t()))(x * 2),
    "real and imag": lambda x: (lambda y: (y.real, y.imag))(torch.complex(x, -x)),
}


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("case", LAYOUTS)
def test_results_of_every_layout_have_memory_of_their_own(jaxify, lowering, case, mode):
    tensor = sample("float32", (4, 6))
    x = as_array(tensor)
    outs = jax.tree.leaves(both(jaxify.torch_function_to_jax(LAYOUTS[case]))[mode](x))
    expected = LAYOUTS[case](tensor)
    for out, value in zip(outs, expected if isinstance(expected, tuple) else [expected], strict=True):
        assert_equal(out, value.resolve_conj().resolve_neg())
    pointers = {out.unsafe_buffer_pointer() for out in outs}
    assert len(pointers) == len(outs)


def edits(x):
    x.add_(1)
    x[0].mul_(3)
    return x.sum() + x[0, 0]


WRITES = {
    "in place": edits,
    "through a view": lambda x: (x.view(-1)[3:].zero_(), x)[1],
    "through data": lambda x: (x.data.add_(1), x)[1],
    "out=": lambda x: torch.mul(x, 2, out=x),
    "foreach": lambda x: (torch._foreach_add_([x], 1), x)[1],
    "setitem": lambda x: (x.__setitem__((slice(None), 1), 5.0), x)[1],
}


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("case", WRITES)
def test_operands_that_are_edited_in_place_are_copies(jaxify, lowering, case, mode):
    tensor = sample("float32", (3, 4))
    x = as_array(tensor)
    f = both(jaxify.torch_function_to_jax(WRITES[case]))[mode]
    expected = WRITES[case](tensor.clone())
    for _ in range(2):
        assert_equal(f(x), expected)
        assert_equal(x, tensor)


def test_the_caller_s_grad_mode_inference_mode_and_autocast_do_not_leak(jaxify):
    def f(x):
        x = x.detach().requires_grad_()
        assert torch.is_grad_enabled()
        return torch.autograd.grad((x @ x).sum(), x)[0]

    x = jnp.eye(2) + 1
    expected = jax.grad(lambda x: (x @ x).sum())(x)
    g = jaxify.torch_function_to_jax(f)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu")):
        with mode:
            assert_close(g(x), expected)
            assert_close(jax.jit(g)(x), expected)
    with torch.no_grad():
        assert_close(jax.jit(jax.grad(lambda x: jaxify.torch_function_to_jax(torch.sin)(x).sum()))(x), jnp.cos(x))


# -- errors ------------------------------------------------------------------------------------------------------------


def test_shape_errors_are_torch_s_own_and_come_at_trace_time(jaxify):
    def f(x, w):
        return x @ w

    g = jaxify.torch_function_to_jax(f)
    with pytest.raises(RuntimeError, match=r"reduction dim|cannot be multiplied|same reduction") as caught:
        jax.jit(g).lower(jnp.ones((2, 3)), jnp.ones((4, 5)))
    assert any(
        "shapes of f were inferred for the operands float32[2, 3], float32[4, 5]" in note
        for note in caught.value.__notes__
    )
    assert any(entry.name == "f" for entry in caught.traceback)


def test_a_python_error_in_the_function_is_raised_as_it_is(jaxify):
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        jax.jit(jaxify.torch_function_to_jax(f))(jnp.ones(2))


def test_an_error_that_only_values_cause_carries_torch_s_message(jaxify, lowering):
    f = jaxify.torch_function_to_jax(torch.linalg.cholesky)
    with pytest.raises(torch.linalg.LinAlgError, match="not positive-definite"):
        f(-jnp.eye(2))
    with pytest.raises(Exception, match="not positive-definite"):
        jax.jit(f)(-jnp.eye(2)).block_until_ready()


def test_shape_errors_print_nothing(jaxify, capfd):
    with pytest.raises(RuntimeError):
        jaxify.torch_function_to_jax(torch.matmul)(jnp.ones((2, 3)), jnp.ones((4, 5)))
    assert capfd.readouterr() == ("", "")


def test_backends(jaxify):
    core_error = jaxify.BackendError.__mro__
    assert NotImplementedError in core_error
    with pytest.raises(jaxify.BackendError, match='backend: "xla".*not there yet; use "torch"'):
        jaxify.torch_function_to_jax(torch.sin, backend="xla")
    with pytest.raises(jaxify.BackendError, match='expected "auto", "torch" or "xla", got \'tpu\''):
        jaxify.torch_function_to_jax(torch.sin, backend="tpu")
    assert_close(jaxify.torch_function_to_jax(torch.sin, backend="torch")(jnp.ones(2)), jnp.sin(jnp.ones(2)))


REFUSED = {
    "a tensor": (lambda: (torch.sin, torch.ones(2)), TypeError, "argument leaf 0 is a torch.Tensor.*torch_to_jax"),
    "a typed key": (lambda: (torch.sin, jax.random.key(0)), TypeError, "typed PRNG key.*rng="),
    "a dtype torch lacks": (lambda: (torch.sin, jnp.ones(2, "float8_e4m3b11fnuz")), TypeError, "no dtype for float8"),
    "a sparse result": (lambda: (lambda x: x.to_sparse(), jnp.ones(2)), TypeError, "dense.*to_dense"),
    "a dtype JAX lacks": (lambda: (lambda x: x.to(torch.complex32), jnp.ones(2)), TypeError, "complex32"),
    "a captured write": (
        lambda: (partial(torch.add, out=torch.ones(2)), jnp.ones(2), 1.0),
        RuntimeError,
        "closed over",
    ),
    "random numbers": (lambda: (torch.rand_like, jnp.ones(2)), RuntimeError, "rand_like.*rng="),
    "its own generator": (
        lambda: (partial(torch.normal, generator=torch.Generator()), jnp.ones(2), 1.0),
        RuntimeError,
        "normal",
    ),
    "a shape of values": (lambda: (torch.nonzero, jnp.ones(2)), RuntimeError, "nonzero.*torch.where"),
}


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_by_name_and_with_a_remedy(jaxify, case):
    make, kind, message = REFUSED[case]
    function, *args = make()
    f = jaxify.torch_function_to_jax(function)
    with pytest.raises(kind, match=message) as caught:
        f(*args)
    assert any(base.__name__ == "TJError" for base in type(caught.value).__mro__)


def test_wrong_objects_are_refused_at_once(jaxify):
    with pytest.raises(TypeError, match="torch_module_to_jax"):
        jaxify.torch_function_to_jax(torch.nn.Linear(2, 2))
    with pytest.raises(TypeError, match="expected a function of tensors, got int"):
        jaxify.torch_function_to_jax(3)


# -- branches on values ------------------------------------------------------------------------------------------------


def branching(x):
    if x.sum() > 0:
        return x * 2
    while x.abs().max().item() > 1:
        x = x / 2
    return x


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_python_branches_on_values_are_taken_at_run_time(jaxify, lowering, mode):
    f = jaxify.torch_function_to_jax(branching)
    for x in (np.float32([1, 2]), np.float32([-1, -9]), np.float32([-0.25, 0.125])):
        assert_equal(both(f)[mode](jnp.asarray(x)), branching(torch.from_numpy(x)))
        grad = both(jax.grad(lambda x: f(x).sum()))[mode](jnp.asarray(x))
        tensor = torch.from_numpy(x).requires_grad_()
        branching(tensor).sum().backward()
        assert_equal(grad, tensor.grad)
    xs = np.float32([[1, 2], [-1, -9], [-0.25, 0.125]])
    expected = torch.stack([branching(torch.from_numpy(x)) for x in xs])
    assert_equal(both(jax.vmap(f))[mode](jnp.asarray(xs)), expected)


def test_values_of_constants_are_known_while_shapes_are_inferred(jaxify):
    size, flag = torch.tensor(3), torch.tensor(True)
    f = jaxify.torch_function_to_jax(lambda x: x.expand(int(size), -1) if flag else x)
    assert f(jnp.ones(2)).shape == (3, 2)


def test_a_branch_that_changes_the_shape_is_an_error(jaxify):
    f = jaxify.torch_function_to_jax(lambda x: x[:1] if x.sum() > 0 else x)
    signs = []
    for x in (jnp.ones(2), -jnp.ones(2)):
        try:
            signs.append(f(x).shape)
        except jaxify.DataDependenceError as error:
            assert "shape and structure must not depend" in str(error)  # noqa: PT017
            signs.append("refused")
    assert "refused" in signs


def test_a_number_that_depends_on_values_is_refused(jaxify):
    with pytest.raises(jaxify.DataDependenceError, match="Python number.*without .item"):
        jaxify.torch_function_to_jax(lambda x: x.sum().item())(jnp.ones(2))


def test_waiting_for_a_value_ends(jaxify):
    def f(x):
        for _ in range(10_000):
            x = x * x.sum().item()
        return x

    with pytest.raises(jaxify.DataDependenceError, match="Python loop that waits"):
        jaxify.torch_function_to_jax(f)(jnp.ones(2))


# -- caching -----------------------------------------------------------------------------------------------------------


def test_one_trace_for_one_shape(jaxify):
    calls = []

    def f(x):
        calls.append(type(x).__name__)
        return x * 2

    g = jax.jit(jaxify.torch_function_to_jax(f))
    for _ in range(3):
        g(jnp.ones(3)).block_until_ready()
    assert calls == ["FakeTensor", *["Tensor"] * 3]
    g(jnp.ones(4)).block_until_ready()
    assert calls[4:] == ["FakeTensor", "Tensor"]
    assert g._cache_size() == 2


def test_a_wrapper_built_for_each_call_compiles_again_and_one_kept_does_not(jaxify):
    count = []
    f = jaxify.torch_function_to_jax(torch.sin)

    def loss(x):
        count.append(1)
        return f(x).sum()

    step = jax.jit(jax.value_and_grad(loss))
    for _ in range(4):
        step(jnp.ones(3))
    assert len(count) == 1


def test_the_cache_of_traces_is_bounded(jaxify):
    f = jaxify.torch_function_to_jax(lambda x: x * 2)
    engine = next(c.cell_contents for c in f.__closure__ if hasattr(c.cell_contents, "CACHE"))
    for n in range(1, engine.CACHE + 20):
        assert f(jnp.ones(n)).shape == (n,)
    assert len(engine._traces) == engine.CACHE


def test_a_result_that_the_function_has_closed_over_is_not_changed_by_later_writes(jaxify):
    state, base = torch.zeros(16), torch.zeros(16)
    f = jaxify.torch_function_to_jax(lambda x: (x + 1, state, base.view(4, 4)))
    _, first, second = f(jnp.ones(16))
    state.fill_(7.0)
    base.fill_(7.0)
    assert first.tolist() == [0.0] * 16
    assert second.tolist() == [[0.0] * 4] * 4
