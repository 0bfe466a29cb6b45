"""A Flax classifier trained by a torch loop, and its twin: the same classifier in a pure Flax and optax loop."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import torch
from runs import LEARNING_RATE, MOMENTUM
from torch import Tensor
from torch_jax_interop import flax_to_torch

Variables = dict[str, Any]


class Classifier(nn.Module):
    """Two dense layers: (N, 8, 8) -> (N, 10) logits."""

    hidden: int = 128
    classes: int = 10

    @nn.compact
    def __call__(self, images: jax.Array) -> jax.Array:
        x = images.reshape(images.shape[0], -1)
        x = nn.relu(nn.Dense(self.hidden)(x))
        return nn.Dense(self.classes)(x)


def starting_variables() -> Variables:
    """The weights that both loops begin with."""
    return Classifier().init(jax.random.key(0), jnp.zeros((1, 8, 8)))


class TorchLoop:
    """The bridge: to the torch loop the Flax classifier is an nn.Module like any other."""

    def __init__(self) -> None:
        self.model = flax_to_torch(Classifier(), starting_variables())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def step(self, images: Tensor, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        return (self.model(images).argmax(1) == labels).float().mean().item()


class FlaxLoop:
    """The native twin: nothing of torch but the batches, which arrive as NumPy arrays."""

    def __init__(self) -> None:
        self.optimizer = optax.sgd(LEARNING_RATE, momentum=MOMENTUM)
        self.variables = starting_variables()
        self.state = self.optimizer.init(self.variables)
        self.update = jax.jit(self._update)

    def _update(self, variables: Variables, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss_of(variables: Variables) -> jax.Array:
            logits = Classifier().apply(variables, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(loss_of)(variables)
        updates, state = self.optimizer.update(gradients, state)
        return optax.apply_updates(variables, updates), state, loss

    def step(self, images: Tensor, labels: Tensor) -> float:
        batch = images.numpy(), labels.numpy().astype("int32")
        self.variables, self.state, loss = self.update(self.variables, self.state, *batch)
        return float(loss)

    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        logits = Classifier().apply(self.variables, images.numpy())
        return float((logits.argmax(1) == labels.numpy()).mean())
