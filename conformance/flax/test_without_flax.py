"""Without Flax, tj_flax says what to install; a Flax that is there and broken shows its own error."""

import pytest
from tjtest import subject
from tjtest.process import run_python

ABSENT = """
import sys
sys.modules["flax"] = None
"""
BROKEN = """
import sys, tempfile, pathlib
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "flax").mkdir()
(folder / "flax" / "__init__.py").write_text("import a_library_that_is_missing")
sys.path.insert(0, str(folder))
"""


@pytest.mark.parametrize(
    ("before", "words"),
    [(ABSENT, ("MissingPackageError", "pip install 'flax")), (BROKEN, ("a_library_that_is_missing",))],
)
def test_the_error_says_what_is_missing(before: str, words: tuple[str, ...]) -> None:
    done = run_python(f"{before}\nimport {subject.PREFIX}tj_flax")
    assert done.returncode != 0
    assert all(word in done.stderr for word in words), done.stderr
