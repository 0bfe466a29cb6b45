"""What functorch is for: per-sample gradients and ensembles. Oracle: one model and one example at a time, in torch."""

from typing import Any

import jax.numpy as jnp
import pytest
import torch
from tjtest.subject import subject

tj_core = subject("tj_core")
tj_func = subject("tj_func")


def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))


def data() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.arange(5) % 2


def test_per_sample_gradients() -> None:
    net, (x, y) = model(), data()
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss_of(params: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = tj_func.functional_call(net, params, x[None])
        return torch.nn.functional.cross_entropy(out, y[None])

    found = tj_func.vmap(tj_func.grad(loss_of), in_dims=(None, 0, 0))(params, x, y)
    for i in range(len(x)):
        net.zero_grad()
        torch.nn.functional.cross_entropy(net(x[i : i + 1]), y[i : i + 1]).backward()
        for name, parameter in net.named_parameters():
            torch.testing.assert_close(found[name][i], parameter.grad)


def test_ensembles() -> None:
    nets, (x, _) = [model() for _ in range(4)], data()
    params, buffers = tj_func.stack_module_state(nets)
    assert buffers == {}

    def one(params: dict[str, torch.Tensor], x: torch.Tensor) -> Any:
        return tj_func.functional_call(nets[0], params, x)

    found = tj_func.vmap(one, in_dims=(0, None))(params, x)
    torch.testing.assert_close(found, torch.stack([net(x) for net in nets]))


def test_functional_call_leaves_the_module_alone_and_takes_tensors() -> None:
    net, (x, _) = model(), data()
    before = {name: p.clone() for name, p in net.named_parameters()}
    zeros = {name: torch.zeros_like(p) for name, p in before.items()}
    assert tj_func.functional_call(net, zeros, (x,)).abs().max() == 0
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter, before[name])
    with pytest.raises(RuntimeError, match="bias"):
        tj_func.functional_call(net, {"0.weight": zeros["0.weight"]}, (x,), strict=True)
    with pytest.raises(tj_core.UnsupportedKindError, match="torch_module_to_jax_with_buffers"):
        tj_func.functional_call(net, {"0.weight": jnp.zeros((4, 3))}, (jnp.zeros((5, 3)),))
