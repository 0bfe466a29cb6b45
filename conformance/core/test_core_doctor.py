"""The doctor: each trouble is found, said, and given its remedy; nothing is initialized before it was looked at."""

import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError

import jax
import pytest
import torch
from tjtest.subject import subject

tj_core = subject("tj_core")
doctor = import_module(f"{tj_core.__name__}._doctor")
requirements = import_module(f"{tj_core.__name__}._requirements")


def _run(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", tj_core.__name__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | env, check=False)


def test_a_healthy_installation_passes_and_says_so_to_machines():
    run = _run("--json", JAX_PLATFORMS="cpu")
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads(run.stdout)
    assert report["ok"]
    assert report["versions"]["jax"] == jax.__version__
    assert torch.__version__.startswith(report["versions"]["torch"])
    by_check = {finding["check"]: finding for finding in report["findings"]}
    assert by_check["round trip on cpu"]["status"] == "ok"
    assert {"versions", "builds", "preallocation", "fork", "platforms", "jax devices", "precision"} <= set(by_check)


def test_a_broken_setting_is_said_with_its_remedy_and_exit_status_1():
    run = _run(JAX_PLATFORMS="cuda")
    assert run.returncode == 1
    assert "BROKEN  platforms: JAX_PLATFORMS=cuda leaves the CPU out" in run.stdout
    assert '-> set JAX_PLATFORMS="cuda,cpu"' in run.stdout
    assert "round trip" not in run.stdout


def test_every_finding_that_is_not_ok_has_a_remedy():
    for finding in doctor.examine():
        assert finding.remedy or finding.status == "ok", finding


@pytest.fixture
def installed(monkeypatch):
    """A pretended set of installed distributions: versions, and what they require."""
    versions: dict[str, str] = {}
    requires: dict[str, list[str]] = {}

    def version(name):
        if name not in versions:
            raise PackageNotFoundError(name)
        return versions[name]

    def required(name):
        version(name)
        return requires.get(name)

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(requirements.metadata, "requires", required)
    return versions, requires


def test_a_clash_of_cuda_wheels_is_broken(installed):
    versions, requires = installed
    versions |= {"torch": "2.13.0", "jax-cuda12-plugin": "0.10.2", "nvidia-cudnn-cu12": "9.5.1.17"}
    requires["torch"] = ['nvidia-cudnn-cu12==9.5.1.17; platform_system == "Linux"', "sympy>=1.13.3"]
    requires["jax-cuda12-plugin"] = ['nvidia-cudnn-cu12<10.0,>=9.8; extra == "with-cuda"']
    (finding,) = [f for f in doctor.check_wheels() if f.status == "broken"]
    assert "jax-cuda12-plugin asks for nvidia-cudnn-cu12<10.0,>=9.8, and 9.5.1.17 is installed" in finding.found
    assert finding.remedy == 'pip install "nvidia-cudnn-cu12<10.0,>=9.8"'
    versions["nvidia-cudnn-cu12"] = "9.10.2.21"
    (finding,) = [f for f in doctor.check_wheels() if f.status == "broken"]
    assert finding.found.startswith("torch asks for nvidia-cudnn-cu12==9.5.1.17")


def test_jaxlib_of_another_version_is_broken(installed):
    installed[0].update({"jax": "0.10.2", "jaxlib": "0.9.0"})
    assert [f.status for f in doctor.check_versions()] == ["ok", "broken"]


@pytest.mark.parametrize(("setting", "status"), [(None, "note"), ("true", "note"), ("false", "ok"), ("0", "ok")])
def test_preallocation_is_said_before_any_device_is_touched(installed, monkeypatch, setting, status):
    installed[0]["jax-cuda13-plugin"] = "0.10.2"
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    if setting is not None:
        monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", setting)
    (finding,) = doctor.check_preallocation()
    assert finding.status == status
    checks = doctor.CHECKS
    assert checks.index(doctor.check_preallocation) < checks.index(doctor.check_devices)


def test_the_checks_above_the_line_initialize_nothing():
    program = f"""
import torch
import {tj_core.__name__}._doctor as doctor
from jax._src import xla_bridge
for check in doctor.CHECKS[:doctor.CHECKS.index(doctor.check_devices)]:
    list(check())
assert not xla_bridge.backends_are_initialized() and not torch.cuda.is_initialized()
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("text", "version", "met"),
    [
        ("nvidia-nccl-cu12==2.27.5", "2.27.5", True),
        ("nvidia-nccl-cu12==2.27.5", "2.27.6", False),
        ("nvidia-nccl-cu12 (>=2.18.1)", "2.27", True),
        ("nvidia-cudnn-cu12<10.0,>=9.8", "9.10.1", True),
        ("nvidia-cudnn-cu12<10.0,>=9.8", "10.0.0", False),
        ("nvidia-cublas==13.*", "13.1.2", True),
        ("nvidia-cublas==13.*", "12.9", False),
        ("nvidia-cublas!=13.1", "13.1.0", False),
        ('nvidia-cublas; platform_system == "Linux"', "1", True),
    ],
)
def test_requirements_are_read_as_packaging_reads_them(text, version, met):
    assert requirements.parse(text).met_by(version) is met
