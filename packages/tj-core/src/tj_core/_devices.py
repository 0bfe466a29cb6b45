"""Devices of the one framework named in the words of the other.

A CPU tensor may become an array on any CPU device of JAX (``--xla_force_host_platform_device_count`` makes several):
they share one memory. A CUDA tensor becomes an array on the JAX device with the same hardware index.
"""

from __future__ import annotations

from typing import Any

import jax
import torch

from ._errors import DeviceError

_PLATFORM_OF_TORCH = {"cpu": "cpu", "cuda": "gpu"}
_TYPE_OF_JAX = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "cuda"}

_INSTALL = {
    "gpu": 'JAX sees no GPU: install jax with CUDA (pip install "jax[cuda12]") or move the tensor with .cpu() first',
    "cpu": 'JAX was told to leave the CPU out: add it, as in JAX_PLATFORMS="cuda,cpu"',
}


def _local_devices(platform: str) -> list[jax.Device]:
    try:
        return list(jax.local_devices(backend=platform))
    except RuntimeError as error:
        raise DeviceError(f"device: no {platform} device in JAX. {_INSTALL[platform]}") from error


def default_cpu_device() -> jax.Device:
    """The CPU device on which a CPU tensor arrives unless another is asked for."""
    return _local_devices("cpu")[0]


def _with_index(device: torch.device) -> torch.device:
    return torch.device("cuda", torch.cuda.current_device()) if device.index is None else device


def jax_device_of(device: torch.device) -> jax.Device:
    """The JAX device that holds the memory of this torch device."""
    platform = _PLATFORM_OF_TORCH.get(device.type)
    if platform is None:
        raise DeviceError(f"value: tensors on {device} cannot be shared with JAX; move the tensor with .cpu() first")
    if platform == "cpu":
        return default_cpu_device()
    device = _with_index(device)
    for candidate in _local_devices(platform):
        if candidate.local_hardware_id == device.index:
            return candidate
    raise DeviceError(
        f"value: JAX has no device for {device}; it sees {_local_devices(platform)}. "
        "Make the same devices visible to both frameworks (CUDA_VISIBLE_DEVICES), or move the tensor first"
    )


def torch_device_of(device: jax.Device) -> torch.device:
    """The torch device that holds the memory of this JAX device."""
    kind = _TYPE_OF_JAX.get(device.platform)
    if kind is None:
        raise DeviceError(
            f"value: arrays on {device} cannot be shared with torch; copy the array to the host first: "
            "jax.device_put(array, jax.devices('cpu')[0])"
        )
    return torch.device(kind) if kind == "cpu" else torch.device(kind, device.local_hardware_id)


def _named(device: str) -> jax.Device:
    try:
        return jax_device_of(torch.device(device))
    except RuntimeError as error:
        raise DeviceError(f"device: {device!r} names no device; give a jax.Device, or 'cpu', 'cuda:0'") from error


def as_jax_device(device: Any) -> Any:
    """A JAX device or sharding from what the user gave as ``device=`` to ``torch_to_jax``."""
    if isinstance(device, jax.Device | jax.sharding.Sharding):
        return device
    if isinstance(device, torch.device):
        return jax_device_of(device)
    if isinstance(device, str):
        return _named(device)
    raise DeviceError(
        f"device: expected a jax.Device, a jax.sharding.Sharding, a torch.device or a string, got {device!r}"
    )


def as_torch_device(device: Any) -> torch.device:
    """A torch device from what the user gave as ``device=`` to ``jax_to_torch``."""
    if isinstance(device, torch.device):
        return device
    if isinstance(device, jax.Device):
        return torch_device_of(device)
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise DeviceError(f"device: expected a torch.device, a string or a jax.Device, got {device!r}") from error
