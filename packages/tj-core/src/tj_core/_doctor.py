"""The doctor: what is installed, what each framework sees, what is wrong with it, and what to do about it.

The checks run in the order of ``CHECKS``. Those above the line touch no device; only then are JAX's backends
initialized, with preallocation off in this process unless the environment says otherwise.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, Literal, NamedTuple

import jax
import torch

from ._convert import jax_to_torch, torch_to_jax
from ._devices import torch_device_of
from ._errors import TJError
from ._exchange import EXCHANGE
from ._memory import shares_memory
from ._requirements import Requirement, requirements_of

Status = Literal["ok", "note", "broken"]
_MARK: Mapping[Status, str] = {"ok": "ok    ", "note": "note  ", "broken": "BROKEN"}
_GPU_PLUGINS = ("jax-cuda12-plugin", "jax-cuda13-plugin", "jax-rocm7-plugin", "jax-rocm60-plugin")
_VERSIONS = ("tj-core", "torch", "jax", "jaxlib", "numpy", *_GPU_PLUGINS)
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


class Finding(NamedTuple):
    """What one check found; ``remedy`` says what to do, and is empty where there is nothing to do."""

    check: str
    status: Status
    found: str
    remedy: str = ""


def version_of(distribution: str) -> str | None:
    """The installed version, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _gpu_plugins() -> list[str]:
    return [name for name in _GPU_PLUGINS if version_of(name) is not None]


# ---- what touches no device


def check_versions() -> Iterator[Finding]:
    """The versions, and whether jax and jaxlib belong together."""
    found = ", ".join(f"{name} {version}" for name in _VERSIONS if (version := version_of(name)))
    yield Finding("versions", "ok", f"python {platform.python_version()}, {found}")
    ours, theirs = version_of("jax"), version_of("jaxlib")
    if ours and theirs and ours.split(".")[:2] != theirs.split(".")[:2]:
        yield Finding("versions", "broken", f"jax {ours} with jaxlib {theirs}", f'pip install "jaxlib=={ours}"')


def check_gpu_builds() -> Iterator[Finding]:
    """Whether both frameworks were built for a GPU, or neither."""
    cuda, plugins = torch.version.cuda, _gpu_plugins()
    yield Finding("builds", "ok", f"torch for {f'CUDA {cuda}' if cuda else 'CPU'}, jax for {plugins or 'CPU'}")
    if cuda and not plugins and torch.cuda.device_count():
        remedy = f'pip install "jax[cuda{cuda.split(".")[0]}]", or keep the tensors that cross on the CPU'
        yield Finding("builds", "note", "torch sees a GPU, and JAX was installed without CUDA", remedy)
    if plugins and not cuda:
        remedy = "install a CUDA build of torch, or set JAX_PLATFORMS=cpu"
        yield Finding("builds", "note", "JAX was installed with CUDA, and torch without", remedy)


def check_wheels() -> Iterator[Finding]:
    """Whether the CUDA libraries that are installed are those that torch and JAX ask for."""
    for holder in ("torch", *_gpu_plugins()):
        for requirement in requirements_of(holder):
            yield from _unmet(holder, requirement)
    majors = _cuda_majors()
    if len(majors) > 1:
        remedy = "install builds of torch and jax for the same major version of CUDA in one environment"
        yield Finding("wheels", "note", f"libraries for CUDA {' and '.join(sorted(majors))} side by side", remedy)


def _unmet(holder: str, requirement: Requirement) -> Iterator[Finding]:
    installed = version_of(requirement.name)
    if installed is not None and not requirement.met_by(installed):
        found = f"{holder} asks for {requirement}, and {installed} is installed: the import order decides who works"
        yield Finding("wheels", "broken", found, f'pip install "{requirement}"')


def _cuda_majors() -> set[str]:
    """The major versions of CUDA whose runtime is installed as a wheel."""
    dists = [
        dist for dist in metadata.distributions() if (dist.metadata["Name"] or "").startswith("nvidia-cuda-runtime")
    ]
    return {dist.version.split(".")[0] for dist in dists}


def check_preallocation() -> Iterator[Finding]:
    """Whether JAX is going to take most of the GPU's memory at its first use."""
    setting = os.environ.get(_PREALLOCATE)
    if not _gpu_plugins() or (setting or "").lower() in {"false", "0"}:
        yield Finding("preallocation", "ok", f"{_PREALLOCATE}={setting}" if setting else "no GPU build of JAX")
        return
    fraction = os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION")
    found = f"JAX takes {fraction or '75% (its default)'} of each GPU's memory at its first use; torch gets the rest"
    remedy = f"set {_PREALLOCATE}=false (grow as needed) or XLA_PYTHON_CLIENT_MEM_FRACTION=.40 before importing jax"
    yield Finding("preallocation", "note", found, remedy)


def check_fork() -> Iterator[Finding]:
    """Whether worker processes are forked: one that calls JAX then hangs."""
    method = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    if method != "fork":
        yield Finding("fork", "ok", f"worker processes start by {method}")
        return
    remedy = (
        "keep JAX out of workers (collate with tj_core.collate, convert in the parent), or start them with "
        'multiprocessing_context="spawn"'
    )
    yield Finding("fork", "note", "worker processes are forked; one that calls JAX hangs", remedy)


def check_platforms() -> Iterator[Finding]:
    """Whether JAX may use the CPU, which CPU tensors need."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    if platforms and "cpu" not in platforms.split(","):
        remedy = f'set JAX_PLATFORMS="{platforms},cpu"'
        yield Finding("platforms", "broken", f"JAX_PLATFORMS={platforms} leaves the CPU out", remedy)
    else:
        yield Finding("platforms", "ok", f"JAX_PLATFORMS={platforms or '(not set)'}")


# ---- what initializes the devices


def check_devices() -> Iterator[Finding]:
    """The devices that each framework sees."""
    gpus = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    yield Finding("torch devices", "ok", ", ".join(["cpu", *gpus]))
    try:
        yield Finding("jax devices", "ok", ", ".join(str(device) for device in jax.local_devices()))
    except RuntimeError as error:
        yield Finding("jax devices", "broken", str(error), "choose the platforms that work with JAX_PLATFORMS")


def check_precision() -> Iterator[Finding]:
    """Whether 64-bit values keep their bits."""
    if jax.config.read("jax_enable_x64"):
        yield Finding("precision", "ok", "jax_enable_x64 is on")
    else:
        remedy = 'jax.config.update("jax_enable_x64", True), if 64 bits are needed'
        yield Finding("precision", "note", "jax_enable_x64 is off: float64 and int64 become 32-bit in JAX", remedy)


def check_round_trips() -> Iterator[Finding]:
    """A tensor there and back on every device that both frameworks see."""
    for device in _common_devices():
        yield _round_trip(device)
    if EXCHANGE.way == "public":
        remedy = "unset TJ_CORE_EXCHANGE, or update tj-core to a version that knows this torch and jax"
        yield Finding("exchange", "note", "conversion goes by public DLPack, ten times slower", remedy)
    else:
        yield Finding("exchange", "ok", "conversion takes the fast way")


def _common_devices() -> list[torch.device]:
    found = []
    for platform_name in ("cpu", "gpu"):
        try:
            candidates = [torch_device_of(device) for device in jax.local_devices(backend=platform_name)]
        except (RuntimeError, TJError):
            continue
        found += [d for d in candidates if d.type == "cpu" or (d.index or 0) < torch.cuda.device_count()]
    return list(dict.fromkeys(found))


def _round_trip(device: torch.device) -> Finding:
    check = f"round trip on {device}"
    try:
        tensor = torch.arange(1024, dtype=torch.float32, device=device)
        array = torch_to_jax(tensor)
        exact = jax_to_torch(array + 1).equal(tensor + 1)
        shared = shares_memory(tensor, array)
    except Exception as error:  # whatever it is, it is what the user would have met
        return Finding(check, "broken", f"{type(error).__name__}: {error}", "see the findings above")
    if not exact or not shared:
        return Finding(check, "broken", f"values exact: {exact}, memory shared: {shared}", "please report this")
    return Finding(check, "ok", "values exact, memory shared")


CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    check_versions,
    check_gpu_builds,
    check_wheels,
    check_preallocation,
    check_fork,
    check_platforms,
    # ---- from here on devices are initialized
    check_devices,
    check_precision,
    check_round_trips,
)


def examine() -> list[Finding]:
    """All findings, in the order of ``CHECKS``; a broken platform setting ends the examination."""
    findings: list[Finding] = []
    for check in CHECKS:
        if check is check_devices:
            if any(f.check == "platforms" and f.status == "broken" for f in findings):
                break
            os.environ.setdefault(_PREALLOCATE, "false")  # of this process alone: a look should not take the memory
        findings += check()
    return findings


def report(findings: Iterable[Finding]) -> str:
    """The findings, a line each, the remedy below."""
    lines = []
    for finding in findings:
        lines.append(f"{_MARK[finding.status]}  {finding.check}: {finding.found}")
        if finding.remedy:
            lines.append(f"        -> {finding.remedy}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Print the findings; 1 if something is broken, else 0."""
    parser = argparse.ArgumentParser(
        prog="python -m tj_core", description="Examine this installation of torch and JAX."
    )
    parser.add_argument("--json", action="store_true", help="print the findings for machines")
    parser.add_argument("--cpu", action="store_true", help="leave GPUs alone")
    options = parser.parse_args(arguments)
    if options.cpu:
        jax.config.update("jax_platforms", "cpu")
    findings = examine()
    broken = any(finding.status == "broken" for finding in findings)
    sys.stdout.write((_as_json(findings, broken) if options.json else report(findings)) + "\n")
    return int(broken)


def _as_json(findings: Iterable[Finding], broken: bool) -> str:
    versions = {name: version for name in _VERSIONS if (version := version_of(name))}
    content: dict[str, Any] = {"ok": not broken, "python": platform.python_version(), "versions": versions}
    return json.dumps(content | {"findings": [finding._asdict() for finding in findings]}, indent=2)
