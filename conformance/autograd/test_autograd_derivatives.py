"""Derivatives of every kind: torch's own checkers against finite differences, and pure JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close
from torch.autograd import forward_ad, gradcheck, gradgradcheck

wrap = subject("tj_autograd").jax_function_to_torch

pytestmark = [
    pytest.mark.usefixtures("x64"),
    # torch itself scripts its decompositions for forward mode, and warns about that.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated"),
]


def real(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def cplx(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def to_array(t: torch.Tensor) -> jax.Array:
    return jnp.asarray(t.detach().numpy().copy())


def mlp(w: Any, b: Any, x: Any) -> Any:
    return jnp.tanh(x @ w + b)


#: function, inputs. Each has a float64 or complex128 output for every float64 or complex128 input.
CHECKED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[torch.Tensor, ...]]]] = {
    "mlp": (mlp, lambda: (real(0, 3, 4), real(1, 4), real(2, 5, 3))),
    "jitted": (jax.jit(mlp), lambda: (real(0, 3, 4), real(1, 4), real(2, 5, 3))),
    "identity": (lambda x: x, lambda: (real(0, 3),)),
    "sum of two": (lambda x, y: x + y, lambda: (real(0, 3), real(1, 3))),
    "linear, nothing saved": (lambda x: 2 * x.T, lambda: (real(0, 2, 3),)),
    "product": (lambda x, y: x * y, lambda: (real(0, 3), real(1, 3))),
    "output is the residual": (jnp.exp, lambda: (real(0, 3),)),
    "several outputs": (lambda x: (x**2, jnp.sin(x), x), lambda: (real(0, 3),)),
    "dict output": (lambda x, y: tuple({"a": x * y, "b": x.sum()}.values()), lambda: (real(0, 3), real(1, 3))),
    "scan": (
        lambda x: jax.lax.scan(lambda c, v: (jnp.sin(c) * v, c * v), jnp.ones((), x.dtype), x),
        lambda: (real(0, 4),),
    ),
    "cond": (lambda x: jax.lax.cond(x[0] > 0, jnp.sin, lambda v: v**2, x), lambda: (real(0, 3),)),
    "broadcast": (lambda x, y: x[:, None] * y, lambda: (real(0, 3), real(1, 1, 2))),
    "zero-dimensional": (lambda x: jnp.exp(x) * x, lambda: (real(0),)),
    "empty": (lambda x: jnp.concatenate([x * 2, x]), lambda: (real(0, 0, 2),)),
    "linalg": (lambda x: jnp.linalg.inv(x @ x.T + 2 * jnp.eye(3)), lambda: (real(0, 3, 3),)),
    "complex": (lambda z: z**2 * jnp.exp(z), lambda: (cplx(0, 3),)),
    "complex to real": (lambda z: jnp.abs(z) ** 2 + z.imag, lambda: (cplx(0, 3),)),
    "real to complex": (lambda x: jnp.exp(1j * x), lambda: (real(0, 3),)),
    "conjugate": (lambda z, w: jnp.conj(z) * w, lambda: (cplx(0, 3), cplx(1, 3))),
    "complex matmul": (lambda z, w: z @ w, lambda: (cplx(0, 2, 3), cplx(1, 3, 2))),
    "fft": (lambda x: jnp.fft.rfft(x), lambda: (real(0, 6),)),
    "real and complex": (lambda x, z: (x * z, x + z.real), lambda: (real(0, 3), cplx(1, 3))),
}


@pytest.mark.parametrize("name", CHECKED)
def test_first_derivatives(name: str) -> None:
    fn, inputs = CHECKED[name]
    assert gradcheck(
        wrap(fn), inputs(), check_forward_ad=True, check_batched_grad=True, check_batched_forward_grad=True
    )


@pytest.mark.parametrize("name", CHECKED)
def test_second_derivatives(name: str) -> None:
    fn, inputs = CHECKED[name]
    assert gradgradcheck(wrap(fn), inputs(), check_fwd_over_rev=True, check_rev_over_rev=True)


def test_third_derivative() -> None:
    x = real(0, 3)
    y = wrap(jnp.sin)(x).sum()
    for _ in range(3):
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        y = g.sum()
    assert_close(g.detach(), -jnp.cos(to_array(x)))


def test_a_gradient_penalty() -> None:
    w, x = real(0, 3, 1), real(1, 5, 3)

    def penalty_of(w: Any, x: Any) -> Any:
        return jnp.mean((jnp.linalg.norm(jax.grad(lambda x: jnp.tanh(x @ w).sum())(x), axis=1) - 1) ** 2)

    out = wrap(lambda w, x: jnp.tanh(x @ w))(w, x)
    (gradient,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    penalty = ((gradient.norm(dim=1) - 1) ** 2).mean()
    penalty.backward()
    value, expected = jax.value_and_grad(penalty_of)(to_array(w), to_array(x))
    assert_close(penalty.detach(), value)
    assert_close(w.grad, expected)


def test_mixed_with_torch_on_both_sides() -> None:
    x = real(0, 4)
    f = wrap(lambda v: jnp.cumsum(v) ** 2)
    y = torch.sin(f(torch.exp(x)) * 0.1).sum()
    y.backward()
    expected = jax.grad(lambda x: jnp.sin(0.1 * jnp.cumsum(jnp.exp(x)) ** 2).sum())(to_array(x))
    assert_close(x.grad, expected)


# ---- rules of the function itself


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 1.0


clipped.defvjp(lambda x: (x * 1.0, None), lambda _, g: (jnp.clip(g, -0.5, 0.5),))


@jax.custom_jvp
def doubled_tangent(x: Any) -> Any:
    return jnp.sin(x)


doubled_tangent.defjvp(lambda p, t: (jnp.sin(*p), 2 * jnp.cos(*p) * t[0]))


def test_a_custom_vjp_is_honoured() -> None:
    x = real(0, 3)
    (wrap(clipped)(x) * torch.tensor([-3.0, 0.1, 3.0])).sum().backward()
    assert_close(x.grad, torch.tensor([-0.5, 0.1, 0.5], dtype=torch.float64))


def test_a_custom_jvp_is_honoured_in_both_modes() -> None:
    x = real(0, 3)
    wrap(doubled_tangent)(x).sum().backward()
    expected = 2 * torch.cos(x.detach())
    assert_close(x.grad, expected)
    assert_close(torch.func.jvp(wrap(doubled_tangent), (x.detach(),), (torch.ones_like(x),))[1], expected)


# ---- torch.func


def f(x: Any) -> Any:
    return jnp.sin(x) * jnp.cumsum(x**2)


def g(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "grad": (lambda f: torch.func.grad(lambda x: f(x).sum()), lambda f: jax.grad(lambda x: f(x).sum())),
    "vjp": (
        lambda f: lambda x: torch.func.vjp(f, x)[1](torch.ones_like(x))[0],
        lambda f: lambda x: jax.vjp(f, x)[1](jnp.ones_like(x))[0],
    ),
    "jvp": (
        lambda f: lambda x: torch.func.jvp(f, (x,), (torch.cos(x),))[1],
        lambda f: lambda x: jax.jvp(f, (x,), (jnp.cos(x),))[1],
    ),
    "vmap": (
        lambda f: lambda x: torch.func.vmap(f)(torch.stack([x, 2 * x])).sum(0),
        lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2 * x])).sum(0),
    ),
    "vmap of dim 1": (
        lambda f: lambda x: torch.func.vmap(f, in_dims=1, out_dims=1)(torch.stack([x, 2 * x], 1)).sum(1),
        lambda f: lambda x: jax.vmap(f, in_axes=1, out_axes=1)(jnp.stack([x, 2 * x], 1)).sum(1),
    ),
    "jacrev": (lambda f: lambda x: torch.func.jacrev(f)(x).sum(0), lambda f: lambda x: jax.jacrev(f)(x).sum(0)),
    "jacfwd": (lambda f: lambda x: torch.func.jacfwd(f)(x).sum(0), lambda f: lambda x: jax.jacfwd(f)(x).sum(0)),
    "hessian": (
        lambda f: lambda x: torch.func.hessian(lambda x: f(x).sum())(x).sum(0),
        lambda f: lambda x: jax.hessian(lambda x: f(x).sum())(x).sum(0),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_one_transform(name: str) -> None:
    x = real(0, 3).detach()
    torch_transform, jax_transform = TRANSFORMS[name]
    assert_close(torch_transform(wrap(f))(x), jax_transform(f)(to_array(x)))


@pytest.mark.parametrize("inner", TRANSFORMS)
@pytest.mark.parametrize("outer", TRANSFORMS)
def test_two_transforms(outer: str, inner: str) -> None:
    x = real(0, 3).detach()
    (torch_outer, jax_outer), (torch_inner, jax_inner) = TRANSFORMS[outer], TRANSFORMS[inner]
    assert_close(torch_outer(torch_inner(wrap(f)))(x), jax_outer(jax_inner(f))(to_array(x)))


DEEP = ("grad", "jvp", "vmap")


@pytest.mark.parametrize("inner", DEEP)
@pytest.mark.parametrize("middle", DEEP)
@pytest.mark.parametrize("outer", DEEP)
def test_three_transforms(outer: str, middle: str, inner: str) -> None:
    x = real(0, 3).detach()
    by_torch, by_jax = wrap(f), f
    for name in (inner, middle, outer):
        by_torch, by_jax = TRANSFORMS[name][0](by_torch), TRANSFORMS[name][1](by_jax)
    assert_close(by_torch(x), by_jax(to_array(x)))


def test_per_sample_gradients() -> None:
    w, x = real(0, 3, 2).detach(), real(1, 7, 3).detach()
    out = torch.func.vmap(torch.func.grad(wrap(g)), in_dims=(None, 0))(w, x)
    assert_close(out, jax.vmap(jax.grad(g), in_axes=(None, 0))(to_array(w), to_array(x)))


def test_vmap_in_chunks() -> None:
    x = real(0, 7, 3).detach()
    assert_close(torch.func.vmap(wrap(f), chunk_size=3)(x), jax.vmap(f)(to_array(x)))


def test_backward_through_vmap() -> None:
    w, x = real(0, 3, 2), real(1, 7, 3)
    torch.func.vmap(wrap(g), in_dims=(None, 0))(w, x).sum().backward()
    expected = jax.grad(lambda w, x: jax.vmap(g, in_axes=(None, 0))(w, x).sum(), (0, 1))(to_array(w), to_array(x))
    assert_close(w.grad, expected[0])
    assert_close(x.grad, expected[1])


def test_vmap_of_several_outputs_one_of_them_without_a_batch() -> None:
    x = real(0, 4, 3).detach()
    out, count, nothing = torch.func.vmap(
        lambda v: wrap(lambda v: (v.sum(), jnp.arange(2), None))(v), out_dims=(0, 0, None)
    )(x)
    assert_close(out, to_array(x).sum(1))
    assert count.tolist() == [[0, 1]] * 4
    assert nothing is None


def test_vmap_with_random_functions_gives_each_lane_the_draw_of_its_key() -> None:
    x = real(0, 4, 3).detach()
    key = jax.random.key(3)
    noisy = wrap(lambda key, v: v + jax.random.normal(key, v.shape, v.dtype))
    out = torch.func.vmap(lambda v: noisy(key, v))(x)
    assert_close(out, to_array(x) + jax.random.normal(key, (3,), jnp.float64))


def test_functional_call_and_stacked_modules() -> None:
    wrapped = subject("tj_autograd").WrappedJaxFunction
    models = [wrapped(lambda w, x: jnp.tanh(x @ w), to_array(real(i, 3, 2))) for i in range(4)]
    params, buffers = torch.func.stack_module_state(models)
    x = real(9, 5, 3).detach()

    def call(params: Any, buffers: Any, x: Any) -> Any:
        return torch.func.functional_call(models[0], (params, buffers), (x,))

    out = torch.func.vmap(call, in_dims=(0, 0, None))(params, buffers, x)
    expected = jnp.stack([jnp.tanh(to_array(x) @ to_array(real(i, 3, 2))) for i in range(4)])
    assert_close(out.detach(), expected)
    out.sum().backward()
    gradient = jax.grad(lambda w: jnp.tanh(to_array(x) @ w).sum())(to_array(real(2, 3, 2)))
    assert_close(params["params.0"].grad[2], gradient)


# ---- torch.autograd


def test_autograd_functional() -> None:
    x, v = real(0, 3), real(1, 3).detach()
    jacobian, hessian = jax.jacobian(f)(to_array(x)), jax.hessian(lambda x: f(x).sum())(to_array(x))
    functional = torch.autograd.functional
    scalar = lambda x: wrap(f)(x).sum()  # noqa: E731
    assert_close(functional.jacobian(wrap(f), x), jacobian)
    assert_close(functional.jacobian(wrap(f), x, vectorize=True), jacobian)
    assert_close(functional.jacobian(wrap(f), x, vectorize=True, strategy="forward-mode"), jacobian)
    assert_close(functional.hessian(scalar, x), hessian)
    assert_close(functional.hessian(scalar, x, vectorize=True), hessian)
    assert_close(functional.vjp(wrap(f), x, v)[1], to_array(v) @ jacobian)
    assert_close(functional.jvp(wrap(f), x, v)[1], jacobian @ to_array(v))
    assert_close(functional.vhp(scalar, x, v)[1], to_array(v) @ hessian)
    assert_close(functional.hvp(scalar, x, v)[1], hessian @ to_array(v))


def test_forward_mode() -> None:
    x, t = real(0, 3).detach(), real(1, 3).detach()
    with forward_ad.dual_level():
        out = wrap(lambda x: (f(x), jnp.arange(3)))(forward_ad.make_dual(x, t))
        primal, tangent = forward_ad.unpack_dual(out[0])
        assert forward_ad.unpack_dual(out[1]).tangent is None
    expected = jax.jvp(f, (to_array(x),), (to_array(t),))
    assert_close(primal, expected[0])
    assert_close(tangent, expected[1])


@pytest.mark.parametrize("inside", [False, True])
def test_forward_over_reverse(inside: bool) -> None:
    """The dual level may open before the forward, or between it and the backward."""
    x, t = real(0, 3), real(1, 3).detach()
    expected = jax.jvp(jax.grad(lambda x: f(x).sum()), (to_array(x),), (to_array(t),))[1]
    if inside:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, t)
            (gradient,) = torch.autograd.grad(wrap(f)(dual).sum(), x)
            assert_close(forward_ad.unpack_dual(gradient).tangent, expected)
        return
    out = wrap(f)(x)
    with forward_ad.dual_level():
        cotangent = forward_ad.make_dual(torch.ones_like(x), t)
        (gradient,) = torch.autograd.grad(out, x, cotangent)
        tangent = forward_ad.unpack_dual(gradient).tangent
    assert_close(tangent, jax.vjp(f, to_array(x))[1](to_array(t))[0])


def test_only_what_is_asked_for() -> None:
    w, x = real(0, 3), real(1, 3)
    out = wrap(lambda w, x: w * jnp.sin(x))(w, x).sum()
    (gradient,) = torch.autograd.grad(out, x)
    assert_close(gradient, w.detach() * torch.cos(x.detach()))
    assert w.grad is None


def test_the_gradient_of_an_input_used_twice() -> None:
    x = real(0, 3)
    wrap(lambda a, b: a * b)(x, x).sum().backward()
    assert_close(x.grad, 2 * x.detach())


def test_numpy_agrees_where_both_frameworks_could_err() -> None:
    z = cplx(0, 3)
    wrap(lambda z: jnp.sum(jnp.abs(z) ** 2))(z).backward()
    np.testing.assert_allclose(z.grad.numpy(), 2 * z.detach().numpy())
