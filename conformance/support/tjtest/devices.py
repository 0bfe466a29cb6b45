"""Devices: one that both frameworks see, by name, and a line about what each of them sees."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import torch

_TORCH = {"cpu": "cpu", "cuda": "cuda:0"}
NAMES = tuple(_TORCH)


class MissingDeviceError(Exception):
    """The suite was asked to run on a device that one of the frameworks does not see."""


class Device(NamedTuple):
    """The same device, as each framework names it."""

    name: str
    torch: torch.device
    jax: jax.Device


def select(name: str) -> Device:
    """The first device called ``name`` in both frameworks; its absence is an error, never a skip."""
    if name == "cuda" and not torch.cuda.is_available():
        raise MissingDeviceError(f"--tj-device=cuda: torch {torch.__version__} sees no GPU")
    try:
        return Device(name, torch.device(_TORCH[name]), jax.devices(name)[0])
    except RuntimeError as error:
        raise MissingDeviceError(f"--tj-device={name}: jax {jax.__version__} sees none ({error})") from error


def _seen_by_torch() -> str:
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ", ".join(["cpu", *gpus])


def _seen_by_jax() -> str:
    return ", ".join(str(device) for device in jax.devices())


def seen() -> dict[str, str]:
    """What each framework sees; a framework that fails to say so has its error as the answer."""
    return {"torch": _or_error(_seen_by_torch), "jax": _or_error(_seen_by_jax)}


def _or_error(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except Exception as error:
        return f"failed: {error}"
