"""A torch module trained by optax, beside the same training in torch."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch import nn


def test_a_module_trains_as_in_torch(jaxify):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    twin = copy.deepcopy(model)
    apply, params = jaxify.torch_module_to_jax(model)
    cross_entropy = jaxify.torch_function_to_jax(nn.functional.cross_entropy)
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(20, 32, 5)).astype("float32"), rng.integers(0, 3, (20, 32)).astype("int32")

    optimizer, traces = optax.sgd(0.1, momentum=0.9), []
    state = optimizer.init(params)

    @jax.jit
    def step(params, state, x, y):
        traces.append(1)
        loss, grads = jax.value_and_grad(lambda p: cross_entropy(apply(p, x), y))(params)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(params, updates), state, loss

    theirs = torch.optim.SGD(twin.parameters(), 0.1, momentum=0.9)
    for x, y in zip(xs, ys, strict=True):
        params, state, loss = step(params, state, jnp.asarray(x), jnp.asarray(y))
        theirs.zero_grad()
        expected = nn.functional.cross_entropy(twin(torch.from_numpy(x)), torch.from_numpy(y).long())
        expected.backward()
        theirs.step()
        np.testing.assert_allclose(loss, expected.item(), rtol=1e-4)
    assert len(traces) == 1
    jaxify.load_jax_params(model, params)
    for ours, other in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), other.detach().numpy(), rtol=1e-4, atol=1e-5)
