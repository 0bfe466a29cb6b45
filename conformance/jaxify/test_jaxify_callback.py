"""Torch running under XLA: threads, deadlock, memory and modes."""

import gc
import threading
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.process import run_python
from tjtest.subject import PREFIX
from tjtest.tolerances import assert_close

N = 600  # from about 300 x 300 on XLA hands a matrix product to the threads that a callback may be holding


def big(seed: int = 0) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (N, N)) / N**0.5


def test_no_deadlock_with_large_products_around_many_calls(jaxify, lowering):
    f = jaxify.torch_function_to_jax(torch.matmul)

    @jax.jit
    def run(x, y):
        a, b, c = f(x, y), f(y, x), f(x, x)
        return (a @ b + jnp.tanh(f(c @ y, a)) @ c).sum()

    x, y = big(0), big(1)
    a, b, c = x @ y, y @ x, x @ x
    expected = (a @ b + jnp.tanh((c @ y) @ a) @ c).sum()
    for _ in range(5):
        np.testing.assert_allclose(run(x, y), expected, rtol=1e-3)
    grads = jax.jit(jax.grad(run, (0, 1)))(x, y)
    assert all(np.isfinite(g).all() for g in grads)


def test_no_deadlock_inside_scan(jaxify, lowering):
    f = jaxify.torch_function_to_jax(lambda h, x: torch.tanh(h @ x))
    x = big()

    def run(f):
        return lambda x: jax.lax.scan(lambda h, _: (f(h, x) @ x, None), x, None, length=8)[0].sum()

    ours, theirs = jax.jit(jax.value_and_grad(run(f))), jax.value_and_grad(run(lambda h, x: jnp.tanh(h @ x)))
    for a, b in zip(ours(x), theirs(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_no_deadlock_in_eight_threads(jaxify, lowering):
    f = jaxify.torch_function_to_jax(lambda x: torch.relu(x @ x))
    step = jax.jit(jax.grad(lambda x: (f(x) @ x).sum()))
    x = big()
    expected = jax.grad(lambda x: (jax.nn.relu(x @ x) @ x).sum())(x)
    errors = []

    def work():
        for _ in range(4):
            errors.append(float(jnp.abs(step(x) - expected).max()))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert not any(thread.is_alive() for thread in threads)
    assert len(errors) == 32
    assert max(errors) < 1e-3


def test_ten_thousand_calls_in_one_scan(jaxify):
    f = jaxify.torch_function_to_jax(lambda x: x + 1)
    run = jax.jit(lambda x: jax.lax.scan(lambda x, _: (f(x), None), x, None, length=10_000)[0])
    assert_close(run(jnp.zeros(3)), jnp.full(3, 10_000.0))


def test_torch_s_threads_work_inside(jaxify):
    seen = []
    f = jaxify.torch_function_to_jax(lambda x: (seen.append(torch.get_num_threads()), x @ x)[1])
    before = torch.get_num_threads()
    thread = threading.Thread(target=lambda: jax.jit(lambda x: f(jnp.sin(x) @ x))(big()).block_until_ready())
    thread.start()
    thread.join()
    assert set(seen) == {before}


def test_the_callback_sees_the_modes_that_we_set(jaxify):
    seen = []

    def f(x):
        modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
        seen.append(modes)
        return x + 1

    g = jaxify.torch_function_to_jax(f)
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu"), torch.enable_grad()):
        with mode:
            g(jnp.ones(2))
            jax.jit(g)(jnp.ones(2)).block_until_ready()
    assert set(seen) == {(True, False, False)}


def test_operands_are_never_written_and_results_never_shared(jaxify, lowering):
    f = jax.jit(jaxify.torch_function_to_jax(lambda x, y: (x, x.add_(y), y[:2])))
    x, y = jnp.arange(4.0), jnp.ones(4)
    first = f(x, y)
    second = f(first[0], y)
    assert_close(x, jnp.arange(4.0))
    assert_close(first[0], jnp.arange(4.0) + 1)
    assert_close(second[1], jnp.arange(4.0) + 2)


def test_a_result_outlives_the_call(jaxify):
    kept = []
    f = jaxify.torch_function_to_jax(lambda x: (kept.append(x.detach().clone()), x * 2)[1])
    outs = [jax.jit(f)(jnp.full(1000, float(k))) for k in range(20)]
    gc.collect()
    for k, out in enumerate(outs):
        assert_close(out, jnp.full(1000, 2.0 * k))


def test_donated_operands(jaxify):
    f = jax.jit(jaxify.torch_function_to_jax(lambda x: x * 2), donate_argnums=0)
    x = jnp.ones(100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions say that the donation was of no use
        assert_close(f(x), jnp.full(100, 2.0))


def test_no_program_is_kept_for_ever(jaxify):
    import weakref

    def make():
        f = jaxify.torch_function_to_jax(lambda x: x * 2)
        f(jnp.ones(3))
        return weakref.ref(f)

    ref = make()
    gc.collect()
    assert ref() is None


DEVICES = """
import jax, jax.numpy as jnp, numpy as np, torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import importlib
jaxify = importlib.import_module("{prefix}tj_jaxify")
assert jax.device_count() == 8
f = jaxify.torch_function_to_jax(lambda x, w: torch.tanh(x @ w))
x, w = jnp.arange(32.0).reshape(8, 4) / 32, jnp.ones((4, 4)) / 4
g = lambda x, w: jnp.tanh(x @ w).sum()
grad = jax.grad(lambda x, w: f(x, w).sum(), 1)
mesh = Mesh(np.array(jax.devices()), "d")
xs = jax.device_put(x, NamedSharding(mesh, P("d")))
for run in (grad, jax.jit(grad)):
    np.testing.assert_allclose(run(x, w), jax.grad(g, 1)(x, w), rtol=1e-5)
np.testing.assert_allclose(jax.jit(grad)(xs, w), jax.grad(g, 1)(x, w), rtol=1e-5)
other = jax.device_put(x, jax.devices()[3])
assert f(other, jax.device_put(w, jax.devices()[3])).devices() == {{jax.devices()[3]}}
print("right")
"""


def test_eight_devices():
    result = run_python(
        DEVICES.format(prefix=PREFIX),
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"},
    )
    assert result.stdout.split()[-1:] == ["right"], result.stderr


def test_both_lowerings_are_there(jaxify, lowering):
    f = jaxify.torch_function_to_jax(torch.sin)
    text = jax.jit(f).lower(jnp.ones(3)).as_text()
    assert ("xla_buffer_python_cpu_callback" in text) == (lowering == "buffers")


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "complex64", "int8", "float8_e4m3fn"])
def test_dtypes_without_dlpack_names_pass_both_lowerings(jaxify, lowering, dtype):
    x = jnp.ones((2, 3), dtype)
    out = jax.jit(jaxify.torch_function_to_jax(lambda x: x.t().clone()))(x)
    assert out.dtype == x.dtype
    np.testing.assert_array_equal(np.asarray(out).astype("complex64"), np.ones((3, 2), "complex64"))
