"""What an import does besides importing, watched in a fresh interpreter.

``watch`` runs in the child; ``observe`` starts it and reads its report. Each module is judged by what changed while it
was being imported, so several can be watched in one process.
"""

import importlib
import json
import logging
import os
import random
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from .process import run_python


class Observed(NamedTuple):
    """What happened while ``module`` was imported."""

    module: str
    printed: str
    imported: list[str]  # top-level names that are neither of the standard library nor loaded before
    patched: list[str]  # attributes of other people's modules and classes
    changed: list[str]  # rows of _STATE


def _torch_state() -> tuple[Any, ...]:
    torch = sys.modules["torch"]
    return torch.get_default_dtype(), torch.is_grad_enabled(), torch.initial_seed(), torch.get_num_threads()


def _xla_backends() -> bool:
    bridge = sys.modules["jax"]._src.xla_bridge
    return bool(bridge.backends_are_initialized())


#: The state of the process that an import has no business with: how to read each part of it.
_STATE: dict[str, Callable[[], Any]] = {
    "XLA backends": _xla_backends,
    "CUDA context": lambda: sys.modules["torch"].cuda.is_initialized(),
    "torch settings": _torch_state,
    "jax settings": lambda: dict(sys.modules["jax"].config.values),
    "os.environ": lambda: dict(os.environ),
    "sys.path": lambda: list(sys.path),
    "sys.meta_path": lambda: list(sys.meta_path),
    "sys.excepthook": lambda: sys.excepthook,
    "warnings.filters": lambda: list(warnings.filters),
    "logging": lambda: (logging.root.level, list(logging.root.handlers)),
    "threads": threading.active_count,
    "signal handlers": lambda: [signal.getsignal(number) for number in sorted(signal.valid_signals())],
    "random state": random.getstate,
}


def _attributes(roots: Set[str]) -> dict[tuple[str, str], Any]:
    """Every attribute of every loaded module under ``roots``, and of every class defined in them."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in roots:
            continue
        for attribute, value in list(vars(module).items()):
            found[name, attribute] = value
            if isinstance(value, type) and value.__module__ == name:
                found.update({(f"{name}.{attribute}", key): entry for key, entry in list(vars(value).items())})
    return found


def _patches(before: dict[tuple[str, str], Any], after: dict[tuple[str, str], Any]) -> Iterator[str]:
    owners = {owner for owner, _ in before}
    for key, value in after.items():
        replaced = key in before and before[key] is not value
        added = key not in before and key[0] in owners and not isinstance(value, ModuleType)
        if replaced or added:
            yield ".".join(key)
    yield from (".".join(key) for key in before.keys() - after.keys())


@contextmanager
def _captured() -> Iterator[list[str]]:
    """What is written to the two standard streams, also past Python, as the one entry of the list."""
    texts: list[str] = []
    with tempfile.TemporaryFile() as sink:
        saved = [os.dup(number) for number in (1, 2)]
        _flush()
        for number in (1, 2):
            os.dup2(sink.fileno(), number)
        try:
            yield texts
        finally:
            _flush()
            for number, copy in zip((1, 2), saved, strict=True):
                os.dup2(copy, number)
                os.close(copy)
            sink.seek(0)
            texts.append(sink.read().decode(errors="replace"))


def _flush() -> None:
    sys.stdout.flush()
    sys.stderr.flush()


def _top_level() -> set[str]:
    return {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names


def watch(module: str, roots: Set[str]) -> Observed:
    """Import ``module`` in this process, and say what else happened."""
    loaded, attributes = _top_level(), _attributes(roots)
    state = {part: read() for part, read in _STATE.items()}
    with _captured() as texts:
        importlib.import_module(module)
    return Observed(
        module,
        texts[0],
        sorted(_top_level() - loaded),
        sorted(_patches(attributes, _attributes(roots))),
        [part for part, read in _STATE.items() if read() != state[part]],
    )


_CHILD = """
import importlib, json, sys
modules, beside = json.loads(sys.argv[1])
for name in beside:
    importlib.import_module(name)
from tjtest.watch import watch
roots = {name.partition(".")[0] for name in beside} | {"jaxlib", "numpy"}
print(json.dumps([watch(module, roots) for module in modules]))
"""


def observe(modules: Sequence[str], *, beside: Sequence[str], paths: Sequence[Path] = ()) -> list[Observed]:
    """Watch the modules, in turn, in a new interpreter in which the modules ``beside`` are loaded already."""
    support = Path(__file__).parents[1]
    path = os.pathsep.join([*map(str, [*paths, support]), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = run_python(_CHILD, json.dumps([list(modules), list(beside)]), env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return [Observed(*report) for report in json.loads(done.stdout)]
