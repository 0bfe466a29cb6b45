"""JAX's transforms over torch functions; the oracle is the same function written in JAX, or torch's own autograd."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.test_util import check_grads
from tjtest.tolerances import assert_close

KEY = jax.random.key(7)


def draw(*shape: int, dtype: str = "float32") -> jax.Array:
    return jax.random.uniform(jax.random.fold_in(KEY, sum(shape)), shape, dtype, 0.5, 1.5)


# name: torch function, the same in JAX, operands
PAIRS = {
    "sin": (torch.sin, jnp.sin, lambda: [draw(4)]),
    "product": (lambda x, y: (x * y).prod(), lambda x, y: (x * y).prod(), lambda: [draw(4), draw(4)]),
    "matmul": (torch.matmul, jnp.matmul, lambda: [draw(3, 4), draw(4, 2)]),
    "softmax": (lambda x: torch.softmax(x, -1), lambda x: jax.nn.softmax(x, -1), lambda: [draw(3, 4)]),
    "several": (
        lambda x, y: (x.sum() * y, x.exp()),
        lambda x, y: (x.sum() * y, jnp.exp(x)),
        lambda: [draw(3), draw(2)],
    ),
    "solve": (torch.linalg.solve, jnp.linalg.solve, lambda: [draw(3, 3) + 3 * jnp.eye(3), draw(3, 1)]),
    "logsumexp": (lambda x: torch.logsumexp(x, 0), lambda x: jax.nn.logsumexp(x, 0), lambda: [draw(4, 2)]),
    "where": (
        lambda x: torch.where(x > 1, x**2, x**3),
        lambda x: jnp.where(x > 1, x**2, x**3),
        lambda: [draw(5)],
    ),
}


def scalar(f):
    return lambda *args: sum(jnp.sum(jnp.sin(leaf)) for leaf in jax.tree.leaves(f(*args)))


def vjp_of_ones(f):
    def run(*args):
        out, pullback = jax.vjp(f, *args)
        return pullback(jax.tree.map(jnp.ones_like, out))

    return run


def jvp_of_ones(f):
    return lambda *args: jax.jvp(f, args, tuple(jnp.ones_like(x) for x in args))


def linearized(f):
    def run(*args):
        out, tangent_map = jax.linearize(f, *args)
        return out, tangent_map(*args)

    return run


def stacked(f):
    """vmap over every operand."""
    return lambda *args: jax.vmap(f)(*(jnp.stack([x, x * 1.5, x * 0.5]) for x in args))


def stacked_first(f):
    """vmap over the last axis of the first operand alone, the lanes coming out last."""
    return lambda x, *args: jax.vmap(f, (-1, *[None] * len(args)), -1)(jnp.stack([x, x * 1.5], -1), *args)


TRANSFORMS = {
    "call": lambda f: f,
    "vjp": vjp_of_ones,
    "jvp": jvp_of_ones,
    "linearize": linearized,
    "grad": lambda f: jax.grad(scalar(f)),
    "jacfwd": jax.jacfwd,
    "jacrev": jax.jacrev,
    "hessian": lambda f: jax.hessian(scalar(f)),
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(scalar(f))),
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(scalar(f))),
    "third order": lambda f: jax.jacfwd(jax.jacrev(jax.jacrev(scalar(f)))),
    "hvp": lambda f: lambda *args: jax.jvp(jax.grad(scalar(f)), args, args),
    "vmap": stacked,
    "vmap of one": stacked_first,
    "vmap of vmap": lambda f: stacked(stacked_first(f)),
    "vmap of grad": lambda f: stacked(jax.grad(scalar(f))),
    "vmap of one grad": lambda f: stacked_first(jax.grad(scalar(f))),
    "grad of vmap": lambda f: jax.grad(scalar(stacked_first(f))),
    "vmap of hessian": lambda f: stacked(jax.hessian(scalar(f))),
    "hessian of vmap": lambda f: jax.hessian(scalar(stacked(f))),
    "jvp of vmap of grad": lambda f: jvp_of_ones(stacked(jax.grad(scalar(f)))),
    "checkpoint": lambda f: jax.grad(scalar(jax.checkpoint(f))),
    "vmap of checkpoint": lambda f: stacked(jax.grad(scalar(jax.checkpoint(f)))),
    "grad of jit": lambda f: jax.grad(scalar(jax.jit(f))),
    "hessian of jit": lambda f: jax.hessian(scalar(jax.jit(f))),
}


# Eagerly too, for those that have something of their own there.
CASES = [(name, transform, "jit") for name in PAIRS for transform in TRANSFORMS]
CASES += [(name, transform, "eager") for name in ("product", "several") for transform in TRANSFORMS]


@pytest.mark.parametrize(("name", "transform", "mode"), CASES)
def test_every_transform_agrees_with_jax(jaxify, x64, name, transform, mode):
    """In float64, so that the tolerance says something about the rule and not about rounding."""
    in_torch, in_jax, operands = PAIRS[name]
    args = [x.astype("float64") for x in operands()]
    ours, theirs = (TRANSFORMS[transform](f) for f in (jaxify.torch_function_to_jax(in_torch), in_jax))
    out = (jax.jit(ours) if mode == "jit" else ours)(*args)
    expected = theirs(*args)
    assert jax.tree.structure(out) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(out), jax.tree.leaves(expected), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("transform", ["vjp", "jvp", "hessian", "vmap of grad"])
@pytest.mark.parametrize("name", PAIRS)
def test_without_buffer_callback_too(jaxify, monkeypatch, x64, name, transform, lowering):
    in_torch, in_jax, operands = PAIRS[name]
    args = [x.astype("float64") for x in operands()]
    out = jax.jit(TRANSFORMS[transform](jaxify.torch_function_to_jax(in_torch)))(*args)
    for a, b in zip(jax.tree.leaves(out), jax.tree.leaves(TRANSFORMS[transform](in_jax)(*args)), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("name", PAIRS)
def test_finite_differences(jaxify, x64, name):
    in_torch, _, operands = PAIRS[name]
    args = [x.astype("float64") for x in operands()]
    check_grads(jaxify.torch_function_to_jax(in_torch), args, order=2, modes=("fwd", "rev"), eps=1e-4)


COMPLEX = {
    "holomorphic": (lambda z: torch.exp(z) * z, lambda z: jnp.exp(z) * z),
    "conjugate": (lambda z: z.conj() * z * (1 + 2j), lambda z: z.conj() * z * (1 + 2j)),
    "to real": (lambda z: z.abs() + z.imag, lambda z: jnp.abs(z) + z.imag),
    "from real": (lambda z: torch.complex(z.real, z.real**2), lambda z: z.real + 1j * z.real**2),
    "fft": (lambda z: torch.fft.fft(z).abs(), lambda z: jnp.abs(jnp.fft.fft(z))),
}


@pytest.mark.parametrize("transform", ["vjp", "jvp", "linearize", "vmap of grad", "checkpoint"])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_gradients_are_in_jax_s_convention(jaxify, x64, name, transform):
    z = draw(4) + 1j * draw(4)[::-1]

    def real(f):
        def run(z):
            w = f(z)
            return w.real * 2 + w.imag

        return run

    in_torch, in_jax = COMPLEX[name]
    wrap = real if "grad" in transform or transform == "checkpoint" else (lambda f: f)
    ours, theirs = (TRANSFORMS[transform](wrap(f)) for f in (jaxify.torch_function_to_jax(in_torch), in_jax))
    for mode in (lambda f: f, jax.jit):
        for a, b in zip(jax.tree.leaves(mode(ours)(z)), jax.tree.leaves(theirs(z)), strict=True):
            assert_close(a, b)


def test_complex_cotangents_through_two_calls(jaxify, x64):
    f, g = jaxify.torch_function_to_jax(lambda z: z**2), jaxify.torch_function_to_jax(lambda z: z.abs().sum())
    z = draw(3) - 2j * draw(3)
    assert_close(jax.grad(lambda z: g(f(z)))(z), jax.grad(lambda z: jnp.abs(z**2).sum())(z))


def test_scan_over_steps(jaxify, lowering):
    cell = jaxify.torch_function_to_jax(lambda h, x: torch.tanh(h @ x + h))
    h, xs = draw(3), draw(6, 3, 3) / 4

    def run(cell):
        return lambda h, xs: jax.lax.scan(lambda h, x: (cell(h, x), h), h, xs)[0].sum()

    theirs = run(lambda h, x: jnp.tanh(h @ x + h))
    for transform in (
        lambda f: f,
        jax.grad,
        lambda f: jax.grad(f, 1),
        lambda f: jax.grad(jax.checkpoint(f)),
        jax.hessian,
    ):
        assert_close(jax.jit(transform(run(cell)))(h, xs), transform(theirs)(h, xs))


def test_while_cond_switch_and_map(jaxify):
    double = jaxify.torch_function_to_jax(lambda x: x * 2)
    small = jaxify.torch_function_to_jax(lambda x: x.max() < 100)
    x = draw(3)
    theirs = jax.lax.while_loop(lambda x: x.max() < 100, lambda x: x * 2, x)
    assert_close(jax.lax.while_loop(small, double, x), theirs)
    assert_close(jax.jit(lambda x: jax.lax.while_loop(small, double, x))(x), theirs)
    picked = jax.jit(lambda i, x: jax.grad(lambda x: jax.lax.switch(i, [double, jnp.sin], x).sum())(x))
    assert_close(picked(0, x), jnp.full(3, 2.0))
    assert_close(picked(1, x), jnp.cos(x))
    assert_close(jax.lax.map(double, x), x * 2)
    assert_close(jax.lax.fori_loop(0, 4, lambda i, x: double(x), x), x * 16)
    batched = jax.vmap(lambda x, n: jax.lax.while_loop(lambda s: s[1] < n, lambda s: (double(s[0]), s[1] + 1), (x, 0)))
    assert_close(batched(x, jnp.arange(3))[0], x * jnp.array([1.0, 2, 4]))


def test_integers_beside_floats_take_no_gradient(jaxify):
    def f(x, i, flag):
        return torch.where(flag, x[i], x[i] * 2), i + 1

    g = jaxify.torch_function_to_jax(f)
    x, i, flag = draw(4), jnp.array([2, 0, 2]), jnp.array([True, False, True])
    grad = jax.jit(jax.grad(lambda x: g(x, i, flag)[0].sum()))(x)
    assert_close(grad, jnp.array([2.0, 0, 2, 0]))
    (out, count), (tangent, no_tangent) = jax.jvp(lambda x: g(x, i, flag), (x,), (x,))
    assert_close(tangent, out)
    assert no_tangent.dtype == jax.dtypes.float0
    assert_close(count, jnp.array([3, 1, 3]))
    pulled = jax.vjp(g, x, i, flag)[1]((jnp.ones(3), np.zeros(3, jax.dtypes.float0)))
    assert [p.dtype for p in pulled] == [jnp.float32, jax.dtypes.float0, jax.dtypes.float0]


def test_operands_and_results_that_do_not_depend_on_each_other(jaxify):
    f = jaxify.torch_function_to_jax(lambda x, y: (x * 2, torch.ones(2), y.detach() * x.sum()))
    x, y = draw(3), draw(3)
    jac = jax.jacrev(f, (0, 1))(x, y)
    assert_close(jac[0][0], 2 * jnp.eye(3))
    for zeros, shape in ((jac[0][1], (3, 3)), (jac[1][0], (2, 3)), (jac[1][1], (2, 3)), (jac[2][1], (3, 3))):
        assert_close(zeros, jnp.zeros(shape))
    forward = jax.jacfwd(f, (0, 1))(x, y)
    jax.tree.map(assert_close, forward, jac)
    assert_close(jax.grad(jaxify.torch_function_to_jax(lambda x: torch.tensor(3.0)))(1.0), jnp.float32(0))


def test_gradients_where_torch_chooses(jaxify):
    """At a kink, in a no_grad region, through detach and through torch's own differentiation inside the function."""
    cases = {
        "relu": torch.relu,
        "abs": torch.abs,
        "clamp": lambda x: x.clamp(0, 1),
        "max of a tie": lambda x: torch.stack([x, x]).amax(0),
        "norm": torch.linalg.vector_norm,
        "no_grad": lambda x: x * torch.no_grad()(torch.exp)(x),
        "detach": lambda x: x * x.detach(),
        "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: (y * 2).sin(), x, use_reentrant=False),
    }
    x = np.float32([-1.0, 0.0, 0.0, 1.0, 2.0])
    for name, f in cases.items():
        tensor = torch.from_numpy(x).requires_grad_()
        f(tensor).sum().backward()
        got = jax.jit(jax.grad(lambda x, f=f: jaxify.torch_function_to_jax(f)(x).sum()))(x)
        np.testing.assert_array_equal(got, tensor.grad.numpy(), err_msg=name)


class Straight(torch.autograd.Function):
    """Old style, with a gradient of its own and no forward-mode rule."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0]


class Modern(torch.autograd.Function):
    """With setup_context and a generated vmap rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.round()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        return grad * 3 * ctx.saved_tensors[0]

    @staticmethod
    def jvp(ctx, tangent):
        return tangent * 3 * ctx.saved_tensors[0]


@pytest.mark.parametrize("function", [Straight, Modern])
def test_custom_autograd_functions_keep_their_gradient(jaxify, function):
    f = jaxify.torch_function_to_jax(lambda x: function.apply(x) * 2)
    x = draw(4)
    assert_close(f(x), jnp.round(x) * 2)
    assert_close(jax.grad(lambda x: f(x).sum())(x), 6 * x)
    assert_close(jax.jit(jax.grad(lambda x: f(x).sum()))(x), 6 * x)
    assert_close(jax.grad(lambda x: jax.grad(lambda x: f(x).sum())(x).sum())(x), jnp.full(4, 6.0))
    assert_close(jax.vmap(jax.grad(f))(x), 6 * x)
    assert_close(jax.jit(jax.vmap(jax.vmap(f)))(draw(2, 3)), jnp.round(draw(2, 3)) * 2)
    assert_close(jax.jvp(f, (x,), (x,))[1], 6 * x * x)


def test_functions_that_differentiate_inside(jaxify, x64):
    def forces(x):
        x = x if x.requires_grad else x.requires_grad_()
        energy = (x.sin() * x).sum()
        return torch.autograd.grad(energy, x, create_graph=True)[0]

    def with_func(x):
        return torch.func.grad(lambda x: (x.sin() * x).sum())(x)

    x = draw(3).astype("float64")
    theirs = jax.grad(lambda x: (jnp.sin(x) * x).sum())
    for f in (forces, with_func):
        g = jaxify.torch_function_to_jax(f)
        assert_close(g(x), theirs(x))
        assert_close(jax.jit(jax.jacrev(g))(x), jax.jacrev(theirs)(x))
        assert_close(jax.jit(jax.vmap(g))(x[None]), theirs(x)[None])
        assert_close(jax.grad(lambda x, g=g: g(x).sum())(x), jax.grad(lambda x: theirs(x).sum())(x))


def test_what_torch_cannot_batch_runs_lane_after_lane(jaxify):
    g = jaxify.torch_function_to_jax(lambda x, y: y.mul_(x.mean()))
    xs, y = draw(4, 3), draw(3)
    expected = jax.vmap(lambda x: y * x.mean())(xs)
    assert_close(jax.vmap(g, (0, None))(xs, y), expected)
    assert_close(jax.jit(jax.vmap(g, (0, None)))(xs, y), expected)
    jac = jax.vmap(jax.jacrev(g, 1), (0, None))(xs, y)
    assert_close(jac, jax.vmap(lambda x: jnp.eye(3) * x.mean())(xs))


def test_vmap_batches_and_does_not_loop(jaxify):
    calls = []
    f = jaxify.torch_function_to_jax(lambda x, w: (calls.append(tuple(x.shape)), x @ w)[1])
    xs, w = draw(64, 5), draw(5, 2)
    f(xs[0], w)
    jax.vmap(f, (0, None))(xs, w)
    before = len(calls)
    out = jax.jit(jax.vmap(f, (0, None)))(xs, w)
    out.block_until_ready()
    assert len(calls) == before + 1
    assert_close(out, xs @ w)


def test_vmap_of_no_lanes(jaxify):
    f = jaxify.torch_function_to_jax(lambda x: (x * 2).sum())
    assert jax.vmap(f)(jnp.ones((0, 3))).shape == (0,)
    assert jax.jit(jax.vmap(jax.grad(f)))(jnp.ones((0, 3))).shape == (0, 3)


def test_reverse_mode_never_runs_forward_mode(jaxify, monkeypatch):
    monkeypatch.setattr(torch.func, "jvp", lambda *_, **__: pytest.fail("forward mode was run"))
    f = jaxify.torch_function_to_jax(torch.sin)
    assert_close(jax.jit(jax.grad(lambda x: f(x).sum()))(draw(3)), jnp.cos(draw(3)))


def test_linear_transpose(jaxify):
    w = draw(3, 2)
    f = jaxify.torch_function_to_jax(lambda x, w: x @ w)
    pushed = lambda t: jax.jvp(lambda x: f(x, w), (draw(3),), (t,))[1]  # noqa: E731
    transposed = jax.linear_transpose(pushed, draw(3))
    assert_close(transposed(jnp.ones(2))[0], w.sum(1))
    again = jax.linear_transpose(lambda ct: transposed(ct)[0], jnp.ones(2))
    assert_close(again(draw(3))[0], draw(3) @ w)
