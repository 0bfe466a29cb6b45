"""The order of work on CUDA streams, with stand-ins for the calls: what is run on a GPU is in ``test_core_gpu.py``."""

from importlib import import_module
from types import SimpleNamespace

import jax
import pytest
import torch
from tjtest.subject import subject

tj_core = subject("tj_core")
cuda = import_module(f"{tj_core.__name__}._cuda")
devices = import_module(f"{tj_core.__name__}._devices")


class Recorder:
    """A CUDA tensor's outside: it notes what is asked of it."""

    def __init__(self, *, contiguous: bool = True):
        self.calls: list[tuple] = []
        self.device = torch.device("cuda", 1)
        self._contiguous = contiguous

    def record_stream(self, stream):
        self.calls.append(("record_stream", stream))

    def __dlpack__(self, *, stream=None):
        self.calls.append(("__dlpack__", stream))
        return "capsule"

    def __dlpack_device__(self):
        return (2, 1)

    def is_conj(self):
        return False

    is_neg = is_conj

    def is_contiguous(self):
        return self._contiguous


@pytest.fixture
def on_gpu(monkeypatch):
    """Stand-ins for torch.cuda and for JAX's import, which asks the exporter for its stream as the real one does."""
    log: list[tuple] = []

    class Guard:
        def __init__(self, device):
            self.device = device

        def __enter__(self):
            log.append(("enter", self.device))

        def __exit__(self, *_):
            log.append(("exit", self.device))

    monkeypatch.setattr(torch.cuda, "device", Guard)
    monkeypatch.setattr(torch.cuda, "ExternalStream", lambda pointer, device: ("stream", pointer, device.index))

    def from_dlpack(exporter, *, device):
        assert exporter.__dlpack_device__() == (2, 1)
        return exporter.__dlpack__(stream=device.stream)

    monkeypatch.setattr(jax.dlpack, "from_dlpack", from_dlpack)
    return log


def test_jax_waits_for_torch_and_the_allocator_for_jax(on_gpu):
    tensor = Recorder()
    assert cuda.import_cuda(tensor, SimpleNamespace(stream=77), None) == "capsule"
    assert tensor.calls == [("record_stream", ("stream", 77, 1)), ("__dlpack__", 77)]


def test_a_tensor_is_exported_on_its_own_device(on_gpu):
    cuda.import_cuda(Recorder(), SimpleNamespace(stream=77), None)
    assert on_gpu == [("enter", torch.device("cuda", 1)), ("exit", torch.device("cuda", 1))]


def test_permuted_memory_is_copied_or_refused(on_gpu, monkeypatch):
    copied = Recorder()
    monkeypatch.setattr(cuda, "fresh", lambda tensor: copied)
    monkeypatch.setattr(cuda, "why_not_shared", lambda tensor: "its strides are odd")
    cuda.import_cuda(Recorder(contiguous=False), SimpleNamespace(stream=1), None)
    assert [name for name, _ in copied.calls] == ["record_stream", "__dlpack__"]
    with pytest.raises(tj_core.SharingError, match="strides"):
        cuda.import_cuda(Recorder(contiguous=False), SimpleNamespace(stream=1), False)


def test_devices_are_matched_by_hardware_index(monkeypatch):
    gpus = [SimpleNamespace(platform="gpu", local_hardware_id=i) for i in (3, 1)]
    monkeypatch.setattr(jax, "local_devices", lambda backend: gpus)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert devices.jax_device_of(torch.device("cuda", 1)) is gpus[1]
    assert devices.jax_device_of(torch.device("cuda")) is gpus[0]
    assert devices.torch_device_of(gpus[1]) == torch.device("cuda", 1)
    with pytest.raises(tj_core.DeviceError, match="CUDA_VISIBLE_DEVICES"):
        devices.jax_device_of(torch.device("cuda", 0))


def test_a_cuda_tensor_beside_a_jax_without_cuda_names_the_install(monkeypatch):
    def none(backend):
        raise RuntimeError("Unknown backend")

    monkeypatch.setattr(jax, "local_devices", none)
    with pytest.raises(tj_core.DeviceError, match=r"install jax with CUDA"):
        devices.jax_device_of(torch.device("cuda", 0))
    with pytest.raises(tj_core.DeviceError, match="JAX_PLATFORMS"):
        devices.default_cpu_device()


def test_devices_without_a_counterpart_are_named():
    with pytest.raises(tj_core.DeviceError, match="cpu()"):
        devices.jax_device_of(torch.device("mps"))
    with pytest.raises(tj_core.DeviceError, match="device_put"):
        devices.torch_device_of(SimpleNamespace(platform="tpu"))
