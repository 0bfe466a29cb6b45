"""Each check of test_slim can fail: modules that do what a package must not are caught."""

import pytest
from tjtest.watch import Observed, observe

CULPRITS = {
    "culprit_backend": ("changed", "XLA backends", "import jax\njax.devices()"),
    # A machine without a GPU cannot make a context: the flag that torch sets when it makes one stands in for it.
    "culprit_context": ("changed", "CUDA context", "import torch\ntorch.cuda._initialized = True"),
    "culprit_torch": ("changed", "torch settings", "import torch\ntorch.manual_seed(5)"),
    "culprit_jax": ("changed", "jax settings", "import jax\njax.config.update('jax_enable_x64', True)"),
    "culprit_environ": ("changed", "os.environ", "import os\nos.environ['XLA_FLAGS_OF_MINE'] = '1'"),
    "culprit_path": ("changed", "sys.path", "import sys\nsys.path.append('/nowhere')"),
    "culprit_finder": ("changed", "sys.meta_path", "import sys\nsys.meta_path.append(object())"),
    "culprit_hook": ("changed", "sys.excepthook", "import sys\nsys.excepthook = lambda *args: None"),
    "culprit_warnings": ("changed", "warnings.filters", "import warnings\nwarnings.simplefilter('ignore', Warning)"),
    "culprit_logging": ("changed", "logging", "import logging\nlogging.basicConfig()"),
    "culprit_signal": ("changed", "signal handlers", "import signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)"),
    "culprit_random": ("changed", "random state", "import random\nrandom.seed(5)"),
    "culprit_thread": (
        "changed",
        "threads",
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
    ),
    "culprit_print": ("printed", "hello", "print('hello')"),
    "culprit_stderr": ("printed", "hello", "import sys\nsys.stderr.write('hello')"),
    "culprit_write": ("printed", "hello", "import os\nos.write(1, b'hello')"),
    "culprit_import": ("imported", "culprit_neighbour", "import culprit_neighbour"),
    "culprit_replace": ("patched", "torch.add", "import torch\ntorch.add = lambda *args: None"),
    "culprit_add": ("patched", "jax.numpy.of_mine", "import jax\njax.numpy.of_mine = 1"),
    "culprit_remove": ("patched", "torch.sub", "import torch\ndel torch.sub"),
    "culprit_method": ("patched", "torch.Tensor.to_jax", "import torch\ntorch.Tensor.to_jax = lambda self: None"),
    "culprit_module": (
        "patched",
        "torch.nn.modules.module.Module.__call__",
        "import torch\ntorch.nn.Module.__call__ = None",
    ),
    "culprit_innocent": ("printed", "", "import json, torch.nn.functional, jax.numpy"),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Observed]:
    folder = tmp_path_factory.mktemp("culprits")
    (folder / "culprit_neighbour.py").touch()
    for name, (_, _, source) in CULPRITS.items():
        (folder / f"{name}.py").write_text(source + "\n")
    return {seen.module: seen for seen in observe(list(CULPRITS), beside=["torch", "jax"], paths=[folder])}


@pytest.mark.parametrize("name", [name for name in CULPRITS if name != "culprit_innocent"])
def test_a_culprit_is_caught(name: str, reports: dict[str, Observed]) -> None:
    field, expected, _ = CULPRITS[name]
    assert expected in getattr(reports[name], field)


def test_an_innocent_module_passes(reports: dict[str, Observed]) -> None:
    assert reports["culprit_innocent"] == Observed("culprit_innocent", "", ["culprit_innocent"], [], [])


def test_every_part_of_the_state_has_a_culprit() -> None:
    from tjtest.watch import _STATE

    assert {expected for field, expected, _ in CULPRITS.values() if field == "changed"} == set(_STATE)
