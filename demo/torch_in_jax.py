"""A torch CNN trained by a jitted optax loop, and its twin: the same CNN in a pure torch loop."""

from __future__ import annotations

from typing import Any

import jax
import optax
import torch
from runs import LEARNING_RATE, MOMENTUM
from torch import Tensor, nn
from torch_jax_interop import load_jax_params, torch_module_to_jax, torch_to_jax

Params = tuple[jax.Array, ...]


def starting_model() -> nn.Sequential:
    """The CNN that both loops begin with: (N, 8, 8) -> (N, 10) logits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Unflatten(1, (1, 8)),  # [N, 8, 8] -> [N, 1, 8, 8]
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),  # [N, 32, 4, 4] -> [N, 512]
            nn.Linear(512, 10),
        )


class JaxLoop:
    """The bridge: to the jitted loop the torch CNN is a function of its parameters like any other."""

    def __init__(self) -> None:
        self.model = starting_model()
        self.apply, self.params = torch_module_to_jax(self.model)
        self.optimizer = optax.sgd(LEARNING_RATE, momentum=MOMENTUM)
        self.state = self.optimizer.init(self.params)
        self.update = jax.jit(self._update)

    def _update(self, params: Params, state: Any, images: jax.Array, labels: jax.Array) -> Any:
        def loss_of(params: Params) -> jax.Array:
            logits = self.apply(params, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, state = self.optimizer.update(gradients, state)
        return optax.apply_updates(params, updates), state, loss

    def step(self, images: Tensor, labels: Tensor) -> float:
        batch = torch_to_jax((images, labels))
        self.params, self.state, loss = self.update(self.params, self.state, *batch)
        return float(loss)

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        """Of the torch model, once the weights that JAX trained are written back into it."""
        load_jax_params(self.model, self.params)
        return (self.model(images).argmax(1) == labels).float().mean().item()


class TorchLoop:
    """The native twin: nothing of JAX in it."""

    def __init__(self) -> None:
        self.model = starting_model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)

    def step(self, images: Tensor, labels: Tensor) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, images: Tensor, labels: Tensor) -> float:
        return (self.model(images).argmax(1) == labels).float().mean().item()
