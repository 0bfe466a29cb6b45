"""Modules in JAX: parameters, buffers, modes, randomness; the oracle is the same module in torch."""

import copy
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.process import run_python
from tjtest.subject import PREFIX
from tjtest.tolerances import assert_close, assert_equal
from torch import nn


def as_tensor(array: jax.Array) -> torch.Tensor:
    return torch.from_numpy(np.array(array))


def draw(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(sum(shape)), shape)


class KeywordsAndTrees(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x, *, mask=None, power=1):
        y = self.first(x["input"]) ** power * self.scale
        return {"out": y if mask is None else y * mask, "none": None, "pair": (y.sum(), [y.mean()])}


class Lists(nn.Module):
    """Parameters and modules reached through plain lists, bound methods and attributes of other modules."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.plain = [self.a, {"b": self.b}]
        self.weights = [self.a.weight]
        self.run = self._run
        self.a.partner = [self.b]

    def _run(self, x):
        return self.plain[1]["b"](self.plain[0](x)) + x @ self.weights[0] + self.a.partner[0](x)

    def forward(self, x):
        return {"out": self.run(x)}


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return {"out": self.head(self.embed(tokens).mean(1))}


class Wrapped(nn.Module):
    """Gives the result of ``inner`` as every other module here does."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args):
        out = self.inner(*args)
        return {"out": out[0] if isinstance(out, tuple) else out}


def small_cnn():
    layers = nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(24, 5))


MODULES = {
    "keywords and trees": (KeywordsAndTrees, lambda: [{"input": draw(5, 4)}], {"mask": draw(3), "power": 2}),
    "lists": (Lists, lambda: [draw(5, 4)], {}),
    "tied": (Tied, lambda: [jnp.array([[1, 2], [6, 0], [1, 1]])], {}),
    "cnn": (lambda: Wrapped(small_cnn()), lambda: [draw(3, 1, 8, 8)], {}),
    "lstm": (lambda: Wrapped(nn.LSTM(3, 4, 2, batch_first=True)), lambda: [draw(2, 5, 3)], {}),
    "gru": (lambda: Wrapped(nn.GRU(3, 4, bidirectional=True)), lambda: [draw(5, 2, 3)], {}),
    "attention": (lambda: Wrapped(nn.MultiheadAttention(8, 2)), lambda: [draw(4, 2, 8)] * 3, {}),
    "transformer": (
        lambda: Wrapped(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0)),
        lambda: [draw(4, 2, 8)],
        {},
    ),
    "eval batch norm": (lambda: Wrapped(nn.BatchNorm2d(3)).eval(), lambda: [draw(2, 3, 4, 4)], {}),
    "weight norm": (
        lambda: Wrapped(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))),
        lambda: [draw(5, 4)],
        {},
    ),
    "parameter list": (lambda: Wrapped(nn.ModuleList([nn.Linear(4, 4)])[0]), lambda: [draw(5, 4)], {}),
}


@pytest.mark.filterwarnings("ignore:.*enable_nested_tensor")
@pytest.mark.parametrize("example", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_values_and_gradients_are_torch_s(jaxify, name, example, lowering):
    make, operands, kwargs = MODULES[name]
    torch.manual_seed(0)
    model, args = make(), operands()
    tensors = jax.tree.map(as_tensor, (args, kwargs))
    out = model(*tensors[0], **tensors[1])
    loss = out["out"].sin().sum()
    loss.backward()

    more = (jax.tree.map(lambda t: t.detach().numpy(), out),) if example else ()
    apply, params = jaxify.torch_module_to_jax(model, *more)
    assert isinstance(params, tuple)
    assert [p.shape for p in params] == [tuple(p.shape) for p in model.parameters()]

    def value(params):
        return jnp.sin(apply(params, *args, **kwargs)["out"]).sum()

    for function in (jax.value_and_grad(value), jax.jit(jax.value_and_grad(value))):
        got, grads = function(params)
        np.testing.assert_allclose(got, loss.item(), rtol=1e-5, atol=1e-5)
        for grad, parameter in zip(grads, model.parameters(), strict=True):
            np.testing.assert_allclose(grad, parameter.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert jax.tree.structure(apply(params, *args, **kwargs)) == jax.tree.structure(
        jax.tree.map(lambda t: t.detach().numpy(), out)
    )


def test_parameters_share_memory_and_are_never_written(jaxify):
    model = nn.Linear(64, 64)
    before = copy.deepcopy(model.state_dict())
    apply, params = jaxify.torch_module_to_jax(model)
    assert params[0].unsafe_buffer_pointer() == model.weight.data_ptr()
    jax.jit(jax.grad(lambda p: apply(p, jnp.ones(64)).sum()))(params)
    for name, tensor in model.state_dict().items():
        assert_equal(tensor, before[name])
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


class Stateful(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.calls, self.history, self.last = nn.Parameter(torch.ones(3)), 0, [], None

    def forward(self, x):
        self.calls += 1
        self.history.append(x)
        self.last = x * self.weight
        return self.last + self.calls


def test_the_caller_s_module_is_untouched(jaxify):
    model = Stateful()
    apply, params = jaxify.torch_module_to_jax(model)
    for _ in range(3):
        for f in (apply, jax.jit(apply), jax.grad(lambda p, x: apply(p, x).sum())):
            f(params, jnp.ones(3))
    assert_equal(apply(params, jnp.ones(3)), torch.full((3,), 2.0))
    assert (model.calls, model.history, model.last) == (0, [], None)
    assert type(model.weight) is nn.Parameter


def test_later_changes_of_the_model_do_not_reach_it(jaxify):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout(0.5)).eval()
    apply, params = jaxify.torch_module_to_jax(model)
    expected = apply(params, draw(4, 3))
    model.train()(as_tensor(draw(4, 3)))
    model[0] = nn.Identity()
    assert_equal(apply(params, draw(4, 3)), expected)


def test_frozen_parameters_stay_and_have_no_gradient(jaxify):
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)
    apply, params = jaxify.torch_module_to_jax(model)
    grads = jax.grad(lambda p: apply(p, jnp.ones((4, 3))).sum())(params)
    assert_equal(grads[0], torch.zeros(2, 3))
    assert_equal(grads[1], torch.full((2,), 4.0))


def test_vmap_over_parameters_is_an_ensemble(jaxify):
    models = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3)]
    apply, _ = jaxify.torch_module_to_jax(models[0])
    params = [jaxify.torch_module_to_jax(m)[1] for m in models]
    stacked = jax.tree.map(lambda *p: jnp.stack(p), *params)
    x = draw(5, 3)
    out = jax.jit(jax.vmap(apply, (0, None)))(stacked, x)
    for lane, model in zip(out, models, strict=True):
        assert_close(lane, model(as_tensor(x)).detach())
    per_sample = jax.jit(jax.vmap(jax.grad(lambda p, x: apply(p, x).sum()), (None, 0)))(params[0], x)
    for k in range(5):
        models[0].zero_grad()
        models[0](as_tensor(x)[k]).sum().backward()
        for grad, parameter in zip(per_sample, models[0].parameters(), strict=True):
            assert_close(grad[k], parameter.grad)


def test_eight_threads_share_one_module(jaxify):
    """Each thread gives its own parameters; a module that lent itself would mix them up."""
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(6)])
    apply, params = jaxify.torch_module_to_jax(model)
    step = jax.jit(apply)
    x, failures = draw(8, 32), []

    def work(k):
        mine = jax.tree.map(lambda p: p * (1 + k / 10), params)
        expected = apply(mine, x)
        failures.extend(k for _ in range(20) if not np.array_equal(step(mine, x), expected))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert_equal(apply(params, x), model(as_tensor(x)).detach())


# -- buffers -----------------------------------------------------------------------------------------------------------


class Rebinds(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("mean", torch.zeros(3))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("fixed", torch.ones(3))

    def forward(self, x):
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        self.steps += 1
        return x * self.fixed * self.weight + self.mean


UPDATES = {
    "batch norm": (lambda: nn.BatchNorm1d(3), (6, 3)),
    "batch norm 2d": (lambda: nn.Sequential(nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3, momentum=None)), (4, 1, 5, 5)),
    "instance norm": (lambda: nn.InstanceNorm1d(3, track_running_stats=True, affine=True), (4, 3, 5)),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)), (6, 3)),
    "rebound": (Rebinds, (6, 3)),
}


@pytest.mark.parametrize("name", UPDATES)
def test_updated_buffers_come_back_as_new_values(jaxify, name):
    make, shape = UPDATES[name]
    torch.manual_seed(0)
    model = make()
    twin, xs = copy.deepcopy(model), draw(3, *shape)
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(model)
    before = {k: np.array(v) for k, v in buffers.items()}
    assert list(params) == [k for k, _ in model.named_parameters()]
    assert list(buffers) == [k for k, _ in model.named_buffers()]

    def loss(params, buffers, x):
        out, new = apply(params, buffers, x)
        return jnp.sin(out).sum(), new

    step, now = jax.jit(jax.value_and_grad(loss, has_aux=True)), buffers
    for x in xs:
        (value, now), grads = step(params, now, x)
        twin.zero_grad()
        expected = twin(as_tensor(x)).sin().sum()
        expected.backward()
        np.testing.assert_allclose(value, expected.item(), rtol=1e-4, atol=1e-5)
        for key, parameter in twin.named_parameters():
            np.testing.assert_allclose(grads[key], parameter.grad.numpy(), rtol=1e-3, atol=1e-5)
        for key, buffer in twin.named_buffers():
            np.testing.assert_allclose(now[key], buffer.numpy(), rtol=1e-5, atol=1e-6)
    for key, value in before.items():
        np.testing.assert_array_equal(buffers[key], value)
        np.testing.assert_array_equal(dict(model.named_buffers())[key].numpy(), value)
    with pytest.raises(jaxify.StateError, match="torch_module_to_jax_with_buffers"):
        jaxify.torch_module_to_jax(model)[0](tuple(params.values()), xs[0])
    evaluated, same = apply(params, now, xs[0], train=False)
    np.testing.assert_allclose(evaluated, twin.eval()(as_tensor(xs[0])).detach().numpy(), rtol=1e-4, atol=1e-5)
    if name != "rebound":
        for key, value in now.items():
            np.testing.assert_array_equal(same[key], value)


def test_train_keeps_parts_that_were_in_eval(jaxify):
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    model[1].eval()
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(model)
    for train in (None, True):
        new = apply(params, buffers, draw(4, 3), train=train)[1]
        assert int(new["0.num_batches_tracked"]) == 1
        assert int(new["1.num_batches_tracked"]) == 0
    assert int(apply(params, buffers, draw(4, 3), train=False)[1]["0.num_batches_tracked"]) == 0
    assert model.training


def test_buffers_under_vmap_and_scan(jaxify):
    model = nn.BatchNorm1d(3)
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(model)
    xs = draw(5, 4, 3)
    last, _ = jax.jit(lambda b, xs: jax.lax.scan(lambda b, x: (apply(params, b, x)[1], None), b, xs))(buffers, xs)
    for x in xs:
        model(as_tensor(x))
    for key, buffer in model.named_buffers():
        np.testing.assert_allclose(last[key], buffer.numpy(), rtol=1e-5)
    apart = jax.vmap(lambda x: apply(params, buffers, x)[1])(xs)
    one = apply(params, buffers, xs[2])[1]
    for key, value in one.items():
        np.testing.assert_allclose(apart[key][2], value, rtol=1e-5)


# -- randomness --------------------------------------------------------------------------------------------------------


class Noisy(nn.Module):
    """y = x * mask, so that the gradient in x is the mask that was drawn."""

    def __init__(self):
        super().__init__()
        self.drop, self.scale = nn.Dropout(0.5), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.drop(x) * self.scale


@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_dropout_draws_from_the_key_and_the_same_in_backward(jaxify, mode, lowering):
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(Noisy())
    x = jnp.ones(200)

    def run(key, x):
        return jax.vjp(lambda x: apply(params, buffers, x, rng=key)[0], x)[0], jax.grad(
            lambda x: apply(params, buffers, x, rng=key)[0].sum()
        )(x)

    run = jax.jit(run) if mode == "jit" else run
    keys = [jax.random.key(0), jax.random.key(1), jax.random.fold_in(jax.random.key(0), 1)]
    outs = []
    state = torch.get_rng_state()
    for key in keys:
        out, grad = run(key, x)
        assert set(np.unique(out)) == {0.0, 2.0}
        assert_equal(out, grad)
        assert_equal(run(key, x)[0], out)
        outs.append(np.asarray(out))
    assert not any(np.array_equal(a, b) for a, b in zip(outs, outs[1:] + outs[:1], strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(apply(params, buffers, x, rng=jax.random.PRNGKey(0))[0], outs[0])
    assert_equal(apply(params, buffers, x, train=False)[0], x)


def test_dropout_with_a_key_for_each_lane_and_with_one_for_all(jaxify):
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(Noisy())
    xs, keys = jnp.ones((4, 50)), jax.random.split(jax.random.key(3), 4)

    def f(x, key):
        return apply(params, buffers, x, rng=key)[0]

    for transform in (lambda g: g, jax.jit):
        apart = transform(jax.vmap(f))(xs, keys)
        for k in range(4):
            assert_equal(apart[k], f(xs[k], keys[k]))
        alike = transform(jax.vmap(f, (0, None)))(xs, keys[0])
        for lane in alike:
            assert_equal(lane, f(xs[0], keys[0]))
        grads = transform(jax.vmap(jax.grad(lambda x, key: f(x, key).sum())))(xs, keys)
        assert_equal(grads, apart)


def test_random_numbers_without_a_key_are_an_error_that_says_so(jaxify):
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    apply, params = jaxify.torch_module_to_jax(model)
    with pytest.raises(jaxify.RandomnessError, match=r"Sequential draws random numbers.*rng=.*eval\(\)"):
        jax.jit(apply)(params, draw(2, 3))
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(model)
    with pytest.raises(jaxify.RandomnessError, match="rng="):
        apply(params, buffers, draw(2, 3))
    with pytest.raises(jaxify.RandomnessError, match="rng: expected one JAX key"):
        apply(params, buffers, draw(2, 3), rng=draw(2))
    assert apply(params, buffers, draw(2, 3), train=False)[0].shape == (2, 3)
    apply, params = jaxify.torch_module_to_jax(model.eval())
    assert apply(params, draw(2, 3)).shape == (2, 3)


def test_attention_without_dropout_is_not_random(jaxify):
    apply, params = jaxify.torch_module_to_jax(nn.MultiheadAttention(8, 2, dropout=0.0).train())
    x = draw(4, 2, 8)
    assert apply(params, x, x, x, need_weights=False)[0].shape == (4, 2, 8)


# -- errors and writing back -------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused(jaxify):
    model = nn.Linear(3, 2)
    apply, params = jaxify.torch_module_to_jax(model)
    with pytest.raises(jaxify.ParameterError, match="params: expected 2 arrays.*got 1"):
        apply(params[:1], jnp.ones(3))
    with pytest.raises(jaxify.ParameterError, match=r"params\['weight'\]: expected the shape \(2, 3\), got \(2,\)"):
        apply(params[::-1], jnp.ones(3))
    with pytest.raises(jaxify.ParameterError, match=r"missing \['bias'\], unknown \['b'\]"):
        jaxify.load_jax_params(model, {"weight": params[0], "b": params[1]})
    with pytest.raises(RuntimeError, match="reduction dim|shapes cannot be multiplied|size mismatch"):
        jax.jit(apply)(params, jnp.ones((2, 5)))
    with pytest.raises(TypeError, match="expected a torch.nn.Module, got function.*torch_function_to_jax"):
        jaxify.torch_module_to_jax(lambda x: x)
    with pytest.raises(jaxify.ParameterError, match="call the module once"):
        jaxify.torch_module_to_jax(nn.LazyLinear(2))
    with pytest.raises(jaxify.BackendError, match="not there yet"):
        jaxify.torch_module_to_jax_with_buffers(model, backend="xla")


class Closure(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.go = lambda x: self.inner(x)

    def forward(self, x):
        return self.go(x)


class Unregistered(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = torch.zeros(3)

    def forward(self, x):
        self.count += x
        return self.count * 2


def test_state_that_would_be_lost_is_refused(jaxify):
    apply, params = jaxify.torch_module_to_jax(Closure())
    with pytest.raises(jaxify.StateError, match=r"parameter 'inner\.(weight|bias)' through a closure"):
        apply(params, jnp.ones(2))
    model = Unregistered()
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(model)
    with pytest.raises(jaxify.StateError, match="edits in place a tensor.*register_buffer"):
        apply(params, buffers, jnp.ones(3))
    apply, params = jaxify.torch_module_to_jax(model)
    with pytest.raises(jaxify.StateError, match="updates state"):
        apply(params, jnp.ones(3))
    assert_equal(model.count, torch.zeros(3))


def test_load_jax_params(jaxify):
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    apply, params, buffers = jaxify.torch_module_to_jax_with_buffers(model)
    trained = {k: p + 1 for k, p in params.items()}
    x = draw(4, 3)
    _, new = apply(trained, buffers, x, train=True)
    jaxify.load_jax_params(model, trained, new)
    assert int(model[1].num_batches_tracked) == 1
    expected = apply(trained, new, x, train=False)[0]
    assert_close(expected, model.eval()(as_tensor(x)).detach())
    jaxify.load_jax_params(model, [p * 0 for p in trained.values()])
    assert all(not p.any() for p in model.parameters())
    assert all(p.requires_grad for p in model.parameters())
    with pytest.raises(jaxify.ParameterError):
        jaxify.load_jax_params(model, {**trained, "0.weight": jnp.ones(2)})
    assert all(not p.any() for p in model.parameters())


def test_writing_back_changes_no_array(jaxify):
    """The arrays share memory with the model, so the model is given new memory."""
    model = nn.Linear(64, 64)
    held = list(model.parameters())
    _, params = jaxify.torch_module_to_jax(model)
    before = [np.array(p) for p in params]
    jaxify.load_jax_params(model, new := [p * 2 for p in params])
    model(torch.ones(64)).sum().backward()
    torch.optim.SGD(held, 0.1).step()
    for array, value, double, parameter in zip(params, before, new, held, strict=True):
        np.testing.assert_array_equal(array, value)
        np.testing.assert_array_equal(double, value * 2)
        np.testing.assert_allclose(parameter.detach().numpy(), value * 2 - 0.1 * parameter.grad.numpy(), rtol=1e-6)


def test_float64_modules(jaxify, x64):
    model = nn.Linear(3, 2).double()
    apply, params = jaxify.torch_module_to_jax(model)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))
    assert params[0].dtype == x.dtype == jnp.float64
    assert_close(apply(params, x), model(as_tensor(x)).detach())


def test_float64_is_never_lowered_in_silence(jaxify):
    """In a fresh interpreter, as the warning comes once in a process."""
    source = f"""
import importlib, warnings, torch, jax.numpy as jnp
jaxify = importlib.import_module("{PREFIX}tj_jaxify")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    apply, params = jaxify.torch_module_to_jax(torch.nn.BatchNorm1d(3).double().eval())
assert apply(params, jnp.ones((4, 3))).dtype == jnp.float32
print([w.category.__name__ for w in caught])
"""
    result = run_python(source)
    assert result.stdout.strip() == "['PrecisionLossWarning']", result.stdout + result.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(jaxify, dtype, lowering):
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)).to(getattr(torch, dtype))
    apply, params = jaxify.torch_module_to_jax(model)
    x = draw(4, 8).astype(dtype)
    out = jax.jit(apply)(params, x)
    expected = model(torch.from_numpy(np.array(x.astype("float32"))).to(getattr(torch, dtype)))
    assert_close(out, expected.detach())
    grads = jax.jit(jax.grad(lambda p: apply(p, x).sum()))(params)
    expected.sum().backward()
    for grad, parameter in zip(grads, model.parameters(), strict=True):
        assert_close(grad, parameter.grad)
