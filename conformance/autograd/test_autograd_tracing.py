"""Where torch records or simulates: the call is one operator of the program, never a constant in it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

tj_autograd = subject("tj_autograd")
wrap = tj_autograd.jax_function_to_torch

pytestmark = [
    # What torch's own tracing warns about.
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.. is deprecated"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
]


def f(x: Any) -> Any:
    return jnp.sin(x) * x


X = torch.linspace(0.1, 1, 3)


def test_linearize() -> None:
    out, linear = torch.func.linearize(wrap(f), X)
    assert_close(out, f(jnp.array(X.numpy())))
    for tangent in (torch.ones(3), torch.tensor([1.0, -2.0, 3.0])):
        assert_close(linear(tangent), torch.func.jvp(wrap(f), (X,), (tangent,))[1])


TRACED: dict[str, Callable[[Any], Any]] = {
    "forward": wrap(f),
    "gradient": torch.func.grad(lambda x: wrap(f)(x).sum()),
    "tangent": lambda x: torch.func.jvp(wrap(f), (x,), (torch.cos(x),))[1],
    "batched": lambda x: torch.func.vmap(wrap(f))(torch.stack([x, 2 * x])),
    "several outputs": lambda x: wrap(lambda x: {"a": x * 2, "n": None, "i": jnp.arange(3)})(x)["a"],
    "with a constant": lambda x: wrap(lambda x, y, s: x * y * s)(x, jnp.arange(3.0), 2.0),
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", TRACED)
def test_make_fx(name: str, mode: str) -> None:
    program = make_fx(TRACED[name], tracing_mode=mode)(X)
    other = torch.tensor([3.0, -1.0, 0.5])
    assert_close(program(other), TRACED[name](other))


def test_fake_tensors_have_the_right_shapes_and_dtypes() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 3, requires_grad=True)
        out, index = wrap(lambda x: (x.sum(0).astype(jnp.bfloat16), jnp.argmax(x, axis=1)))(x)
        assert (out.shape, out.dtype, index.shape, index.dtype) == ((3,), torch.bfloat16, (4,), torch.int32)
        out.sum().backward()
        assert (x.grad.shape, x.grad.dtype) == ((4, 3), torch.float32)


def test_under_a_mode_that_only_watches() -> None:
    x, twin = X.clone().requires_grad_(), X.clone().requires_grad_()
    with FlopCounterMode(display=False):
        (wrap(f)(x) @ torch.ones(3)).backward()
    wrap(f)(twin).sum().backward()
    assert_close(x.grad, twin.grad)


def test_a_key_cannot_be_recorded() -> None:
    with pytest.raises(subject("tj_core").UnsupportedKindError, match="key_data"):
        make_fx(wrap(lambda x: (x, jax.random.key(0))))(X)


def test_one_function_is_one_operator_handle() -> None:
    g = wrap(f)
    codes = {make_fx(g)(X).code for _ in range(3)}
    assert len(codes) == 1


@pytest.mark.filterwarnings("default")
def test_compiled_code_computes_the_same() -> None:
    module = tj_autograd.WrappedJaxFunction(lambda p, x: jnp.tanh(x @ p), jnp.ones((3, 2)))
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), module)
    compiled = torch.compile(model, backend="aot_eager")
    for scale in (1.0, 2.0):
        x = torch.full((4, 3), scale)
        model.zero_grad()
        out = compiled(x)
        out.sum().backward()
        gradient = module.get_parameter("params.0").grad.clone()
        model.zero_grad()
        expected = model(x)
        expected.sum().backward()
        assert_close(out.detach(), expected.detach())
        assert_close(gradient, module.get_parameter("params.0").grad)
