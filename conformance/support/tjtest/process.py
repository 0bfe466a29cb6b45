"""A fresh interpreter: for what must be seen from the first import on, or under other environment variables."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence


def run_python(
    source: str, *args: str, env: Mapping[str, str] | None = None, options: Sequence[str] = (), timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run ``source`` in a new interpreter, with ``env`` added to the environment, and capture what it prints."""
    command = [sys.executable, *options, "-c", source, *args]
    environment = os.environ | dict(env or {})
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
