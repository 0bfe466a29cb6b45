"""Flax models inside torch: gradients equal pure JAX, names follow the variables."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from tjtest.subject import subject
from tjtest.tolerances import assert_close

tj_autograd = subject("tj_autograd")


class Classifier(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = x.reshape((x.shape[0], -1))
        return nn.Dense(10)(nn.relu(nn.Dense(32)(x)))


class Normalised(nn.Module):
    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        return nn.Dense(2)(nn.BatchNorm(use_running_average=not train)(x))


@pytest.mark.parametrize("jit", [False, True])
def test_a_classifier_of_images(jit: bool) -> None:
    model = Classifier()
    images = jax.random.normal(jax.random.key(0), (6, 1, 8, 8))
    labels = jnp.arange(6)
    variables = model.init(jax.random.key(1), images)
    module = tj_autograd.WrappedJaxFunction(jax.jit(model.apply) if jit else model.apply, variables)
    logits = module(torch.from_numpy(np.array(images)))
    torch.nn.functional.cross_entropy(logits, torch.arange(6)).backward()

    def loss(variables: Any) -> Any:
        logp = jax.nn.log_softmax(model.apply(variables, images))
        return -jnp.mean(jnp.take_along_axis(logp, labels[:, None], axis=1))

    expected = jax.grad(loss)(variables)["params"]
    names = ["Dense_0.bias", "Dense_0.kernel", "Dense_1.bias", "Dense_1.kernel"]
    assert sorted(name for name, _ in module.named_parameters()) == [f"params.{name}" for name in names]
    for name in names:
        layer, leaf = name.split(".")
        assert_close(module.get_parameter(f"params.{name}").grad, expected[layer][leaf])


def test_batch_norm_with_a_flag_and_new_statistics_in_aux() -> None:
    model = Normalised()
    x = jax.random.normal(jax.random.key(0), (16, 3))
    variables = model.init(jax.random.key(1), x, train=False)

    def apply(variables: Any, x: Any, *, train: bool) -> Any:
        return model.apply(variables, x, train=train, mutable=["batch_stats"])

    module = tj_autograd.WrappedJaxFunction(apply, variables, has_aux=True)
    out, updates = module(torch.from_numpy(np.array(x)), train=True)
    expected, expected_updates = apply(variables, x, train=True)
    assert_close(out.detach(), expected)
    mean = updates["batch_stats"]["BatchNorm_0"]["mean"]
    assert_close(mean, expected_updates["batch_stats"]["BatchNorm_0"]["mean"])
    assert not mean.requires_grad
    out.square().sum().backward()
    gradients = jax.grad(lambda v: (apply(v, x, train=True)[0] ** 2).sum())(variables)
    assert_close(module.get_parameter("params.Dense_0.kernel").grad, gradients["params"]["Dense_0"]["kernel"])
    assert_close(module.get_parameter("params.BatchNorm_0.scale").grad, gradients["params"]["BatchNorm_0"]["scale"])
