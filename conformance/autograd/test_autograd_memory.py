"""Who owns which memory, and who may write to it when."""

import gc
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close, assert_equal

tj_autograd = subject("tj_autograd")
wrap = tj_autograd.jax_function_to_torch


def addresses(*tensors: torch.Tensor) -> set[int]:
    return {t.data_ptr() for t in tensors}


# ---- aliases

ALIASING: dict[str, Callable[..., Any]] = {
    "identity": lambda x, y: x,
    "both": lambda x, y: (x, y),
    "twice": lambda x, y: (x, x),
    "one result twice": lambda x, y: (lambda z: (z, z))(x + y),
    "reshaped": lambda x, y: (x.reshape(-1), x.T, y),
    "jitted identity": lambda x, y: jax.jit(lambda a: (a, a))(x),
    "residual": lambda x, y: (lambda z: (z, z * x))(jnp.tanh(x)),
    "constant": lambda x, y: (jnp.zeros_like(x), jnp.zeros_like(x)),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", ALIASING)
def test_results_alias_nothing(name: str, grad: bool) -> None:
    x, y = torch.ones(64, 64, requires_grad=grad), torch.ones(64, 64, requires_grad=grad)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        out = wrap(ALIASING[name])(x, y)
    out = out if isinstance(out, tuple) else (out,)
    saved = next((t.grad_fn.saved_tensors for t in out if t.grad_fn is not None), ())
    own = [t for t in saved if not any(t is s or t.data_ptr() == s.data_ptr() for s in (x, y, *out))]
    assert len(addresses(x, y, *out, *own)) == 2 + len(out) + len(own)


GRADIENTS: dict[str, Callable[..., Any]] = {
    "sum": lambda x, y: x + y,
    "identity": lambda x, y: (x, y),
    "twice": lambda x, y: (x, x),
    "product": lambda x, y: x * y,
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_alias_nothing(name: str) -> None:
    x, y = torch.ones(64, 64, requires_grad=True), torch.ones(64, 64, requires_grad=True)
    out = wrap(GRADIENTS[name])(x, y)
    out = out if isinstance(out, tuple) else (out,)
    cotangents = [torch.ones(64, 64) for _ in out]
    gradients = torch.autograd.grad(out, (x, y), cotangents, allow_unused=True)
    found = [g for g in gradients if g is not None]
    assert len(addresses(x, y, *out, *cotangents, *found)) == 2 + 2 * len(out) + len(found)


def test_a_second_backward_accumulates_once_into_each_gradient() -> None:
    x, y = torch.ones(64, requires_grad=True), torch.ones(64, requires_grad=True)
    for _ in range(3):
        wrap(lambda x, y: x + y)(x, y).backward(torch.ones(64))
    assert_equal(x.grad, torch.full((64,), 3.0))
    assert_equal(y.grad, torch.full((64,), 3.0))


# ---- changes in place


def test_an_input_changed_before_the_backward_raises_torchs_error() -> None:
    x = torch.ones(3, requires_grad=True) * 1
    out = wrap(lambda x: x * x)(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_parameter_changed_by_an_optimizer_before_the_backward_raises_torchs_error() -> None:
    module = tj_autograd.WrappedJaxFunction(lambda w, x: jnp.tanh(x @ w), jnp.ones((3, 2)))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.ones(1, 3, requires_grad=True)
    first, second = module(x).sum(), module(x).sum()
    first.backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.backward()


def test_an_output_that_the_backward_reads_is_watched_or_not_read() -> None:
    """exp saves its result: writing to it must raise or not matter."""
    x = torch.zeros(3, requires_grad=True)
    out = wrap(jnp.exp)(x)
    out.mul_(5)
    try:
        out.sum().backward()
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)  # noqa: PT017
    else:
        assert_close(x.grad, torch.full((3,), 5.0))


def test_an_output_that_the_backward_does_not_read_may_be_changed() -> None:
    x = torch.ones(3, requires_grad=True)
    out = wrap(lambda x: x * 3)(x)
    out.mul_(2)
    out.sum().backward()
    assert_equal(x.grad, torch.full((3,), 6.0))


def test_an_input_that_the_backward_does_not_read_may_be_changed() -> None:
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    out = wrap(lambda x, y: jnp.sin(x) + y)(x, y)
    y.add_(1)
    out.sum().backward()
    assert_close(x.grad, torch.cos(torch.ones(3)))


def test_a_second_derivative_of_a_changed_input_raises() -> None:
    x, y = torch.ones(3, requires_grad=True), torch.ones(3)
    out = wrap(lambda x, y: jnp.sin(x) + y)(x, y)
    y.add_(1)
    with pytest.raises(subject("tj_core").GradientError, match="inplace"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_running_statistics_may_be_updated_before_the_backward() -> None:
    """As a stateful module does: the new state is computed, and written to the buffer in place."""
    mean = torch.zeros(2)

    def normalise(x: Any, mean: Any) -> Any:
        batch = x.mean(0)
        return jnp.tanh(x - batch), 0.9 * mean + 0.1 * batch

    x = torch.randn(4, 2, requires_grad=True)
    out, new = wrap(normalise, has_aux=True)(x, mean)
    mean.copy_(new)
    out.sum().backward()
    expected = jax.grad(lambda x: jnp.tanh(x - x.mean(0)).sum())(jnp.array(x.detach().numpy()))
    assert_close(x.grad, expected)


# ---- asynchronous dispatch


def heavy(x: Any) -> Any:
    for _ in range(3):
        x = jnp.tanh(x @ x) / 8
    return x


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("offset", [0, 1], ids=["shared", "misaligned"])
def test_inputs_may_be_written_right_after_the_call(grad: bool, offset: int) -> None:
    storage = torch.rand(512 * 512 + 1) / 512
    x = storage[offset : offset + 512 * 512].view(512, 512)
    w = torch.ones((), requires_grad=grad)
    f = wrap(lambda x, w: (heavy(x) * w, x[0, 0]))
    expected = f(x, w)[0].detach().clone()
    for _ in range(10):
        before = x.clone()
        out, _ = f(x, w)
        x.zero_()
        assert_close(out.detach(), expected)
        x.copy_(before)


def test_parameters_may_be_written_right_after_the_backward() -> None:
    """An optimizer in a thread-free loop writes as soon as backward returns; the gradients must be finished."""
    w = (torch.rand(512, 512) / 512).requires_grad_()
    x = torch.rand(512, 512) / 512
    f = wrap(lambda w, x: (heavy(w) + x @ w).sum())
    f(w, x).backward()
    expected, start = w.grad.clone(), w.detach().clone()
    for _ in range(10):
        w.grad = None
        loss = f(w, x)
        loss.backward()
        gradient = w.grad
        with torch.no_grad():
            w.fill_(float("nan"))
        x_before = x.clone()
        x.fill_(float("nan"))
        assert_close(gradient, expected)
        with torch.no_grad():
            w.copy_(start)
        x.copy_(x_before)


def test_cotangents_may_be_written_right_after_the_backward() -> None:
    x = torch.rand(512, 512) / 512
    x.requires_grad_()
    cotangent = torch.ones(512, 512)
    f = wrap(heavy)
    (expected,) = torch.autograd.grad(f(x), x, torch.ones(512, 512))
    for _ in range(10):
        out = f(x)
        (gradient,) = torch.autograd.grad(out, x, cotangent)
        cotangent.fill_(float("nan"))
        assert_close(gradient, expected)
        cotangent.fill_(1)


def test_training_is_the_same_as_with_a_pause_after_each_step() -> None:
    def run(pause: bool) -> torch.Tensor:
        module = tj_autograd.WrappedJaxFunction(
            lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"],
            {"a": jnp.full((256, 256), 0.01), "b": jnp.full((256, 256), -0.01)},
        )
        optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, foreach=True)
        x = torch.linspace(-1, 1, 256 * 256).view(256, 256)
        for _ in range(20):
            optimizer.zero_grad(set_to_none=False)
            module(x).square().mean().backward()
            if pause:
                jax.effects_barrier()
                torch.zeros(1024, 1024).exp_()
            optimizer.step()
        return torch.cat([p.detach().flatten() for p in module.parameters()])

    assert_equal(run(False), run(True))


# ---- lifetimes


def test_a_second_backward_needs_retain_graph() -> None:
    x = torch.ones(3, requires_grad=True)
    out = wrap(lambda x: jnp.sin(x) * x)(x).sum()
    out.backward(retain_graph=True)
    out.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()
    expected = torch.cos(torch.ones(3)) + torch.sin(torch.ones(3))
    assert_close(x.grad, 2 * expected)


def test_saved_tensors_are_freed_by_the_backward() -> None:
    x = torch.ones(3, requires_grad=True)
    hidden = x * 1
    y = torch.ones(3)
    alive = weakref.ref(hidden), weakref.ref(y)
    out = wrap(lambda x, y: jnp.sin(x) + y)(hidden, y).sum()
    del hidden, y
    gc.collect()
    out.backward()
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    assert out.item() == pytest.approx(3 * (torch.sin(torch.tensor(1.0)).item() + 1))


def test_residuals_are_freed_by_the_backward() -> None:
    gc.collect()
    alive = len(jax.live_arrays())
    x = torch.ones(3, requires_grad=True)
    loss = wrap(lambda x: jnp.sin(jnp.sin(x)))(x).sum()
    assert len(jax.live_arrays()) > alive
    loss.backward(retain_graph=True)
    loss.backward()
    x.grad = None  # its memory is JAX's too
    gc.collect()
    assert len(jax.live_arrays()) == alive
    assert loss.grad_fn is not None


def test_a_module_does_not_keep_its_inputs_nor_parameters_that_it_left() -> None:
    module = tj_autograd.WrappedJaxFunction(lambda w, x: x @ w, jnp.ones((64, 64)))
    x = torch.ones(64, 64)
    old = weakref.ref(module.get_parameter("params.0").data.untyped_storage())
    alive = len(jax.live_arrays())
    module(x)
    assert len(jax.live_arrays()) == alive + 1  # the array over the parameter
    module.double().float()
    assert len(jax.live_arrays()) == alive
    for _ in range(100):  # a thread of JAX may let go of the memory a little later
        if old() is None:
            break
        time.sleep(0.05)
    assert old() is None


def test_64_bits_switched_between_two_calls_of_a_module() -> None:
    before = jax.config.jax_enable_x64
    module = tj_autograd.WrappedJaxFunction(lambda w, x: x @ w, jnp.ones((64, 64))).double()
    x = torch.ones(64, 64, dtype=torch.float64)
    try:
        for enabled in (True, False, True):
            jax.config.update("jax_enable_x64", enabled)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", subject("tj_core").PrecisionLossWarning)
                out = module(x)
                out.sum().backward()
            assert out.dtype == (torch.float64 if enabled else torch.float32)
            assert_close(out.detach(), torch.full((64, 64), 64.0), check_dtype=False)
    finally:
        jax.config.update("jax_enable_x64", before)


# ---- the public ways, where the private functions of torch are missing

MISSING: dict[str, dict[str, Callable[[], bool]]] = {
    "transforms": {"is_plain": lambda: False},
    "saved-tensor hooks": {"saves_unwatched": lambda: False},
    "retain_graph": {"keeps_graph": lambda: True, "saves_unwatched": lambda: False},
    "all": {"is_plain": lambda: False, "keeps_graph": lambda: True, "saves_unwatched": lambda: False},
}


@pytest.mark.parametrize("missing", MISSING)
def test_without_private_functions(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, fallback in MISSING[missing].items():
        monkeypatch.setattr(subject("tj_autograd._engine"), name, fallback)
    x = torch.linspace(0, 1, 4).requires_grad_()
    out = wrap(lambda x: jnp.sin(x) * x)(x).sum()
    (gradient,) = torch.autograd.grad(out, x, create_graph=True)
    gradient.sum().backward()
    first, second = (
        jax.vmap(g) for g in (jax.grad(lambda x: jnp.sin(x) * x), jax.grad(jax.grad(lambda x: jnp.sin(x) * x)))
    )
    assert_close(gradient.detach(), first(jnp.linspace(0, 1, 4)))
    assert_close(x.grad, second(jnp.linspace(0, 1, 4)))
    hidden = x * 1
    out = wrap(lambda x: jnp.sin(x) * x)(hidden).sum()
    hidden.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_a_graph_that_is_dropped_frees_its_tensors_at_once() -> None:
    gc.disable()
    try:
        hidden = torch.ones(3, requires_grad=True) * 1
        alive = weakref.ref(hidden)
        out = wrap(lambda x: (jnp.sin(x), jnp.exp(x)))(hidden)
        del hidden, out
        assert alive() is None
    finally:
        gc.enable()


def test_saved_tensor_hooks_see_what_is_saved() -> None:
    packed: list[torch.Tensor] = []

    def pack(t: torch.Tensor) -> int:
        packed.append(t.clone())
        return len(packed) - 1

    x = torch.linspace(0, 1, 4).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda i: packed[i]):
        out = wrap(lambda x: jnp.sin(x) * x)(x)
    assert packed
    out.sum().backward()
    expected = jax.grad(lambda x: (jnp.sin(x) * x).sum())(jnp.linspace(0, 1, 4))
    assert_close(x.grad, expected)


def test_save_on_cpu() -> None:
    x = torch.linspace(0, 1, 4).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        out = wrap(lambda x: jnp.exp(x) * x)(x)
    out.sum().backward()
    assert_close(x.grad, jax.grad(lambda x: (jnp.exp(x) * x).sum())(jnp.linspace(0, 1, 4)))


# ---- layouts of what torch hands in


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 4).T,
        lambda: torch.randn(4, 6)[:, ::2],
        lambda: torch.randn(1, 3).expand(4, 3),
        lambda: torch.randn(13)[1:].view(4, 3),
        lambda: torch.randn(4, 3, 1, 2).to(memory_format=torch.channels_last)[..., 0, 0],
    ],
    ids=["transposed", "strided", "expanded", "misaligned", "channels last"],
)
def test_inputs_and_cotangents_of_any_layout(make: Callable[[], torch.Tensor]) -> None:
    x, cotangent = make().requires_grad_(), make()
    wrap(lambda x: jnp.sin(x))(x).backward(cotangent)
    assert_close(x.grad, torch.cos(x.detach()) * cotangent)


def test_conjugate_and_negative_views() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert_close(wrap(lambda z: z)(z.conj()), z.conj().resolve_conj())
    assert_close(wrap(lambda x: x)(z.conj().imag), torch.tensor([-2.0, 1.0]))


@pytest.mark.parametrize("leave", [True, False])
def test_64_bits_switched_between_forward_and_backward(leave: bool) -> None:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", leave)
    try:
        x = torch.ones(2, dtype=torch.float64 if leave else torch.float32, requires_grad=True)
        out = wrap(lambda x: jnp.sin(x) * x)(x)
        jax.config.update("jax_enable_x64", not leave)
        out.sum().backward()
        assert x.grad.dtype == x.dtype
        assert_close(x.grad, torch.sin(x.detach()) + torch.cos(x.detach()))
    finally:
        jax.config.update("jax_enable_x64", before)
