"""The door between siblings: a vendored neighbour first, an installed one second, and no error of theirs hidden.

The doors are run as they are, beside stand-ins for the packages they open to: the same files, but empty. The
interpreter has no site-packages, so that nothing but the stand-ins can be found.
"""

import ast
import os
from pathlib import Path

import pytest
from tjtest.packages import PACKAGES
from tjtest.packages import folder as folder_of
from tjtest.process import run_python

WITH_DOOR = [name for name in PACKAGES if PACKAGES[name].siblings]
SHARED_END = "if TYPE_CHECKING:"


def _home(name: str) -> Path:
    return folder_of(name) / "src" / name


def _door(name: str) -> str:
    return (_home(name) / "_core.py").read_text()


def _opened(name: str) -> set[str]:
    """The siblings that the door of ``name`` asks for."""
    calls = [node for node in ast.walk(ast.parse(_door(name))) if isinstance(node, ast.Call)]
    asked = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "_sibling"]
    return {node.value for node in asked if isinstance(node, ast.Constant)}


def _stand_in(name: str, folder: Path, source: str = "") -> None:
    """An empty file for each module of the package ``name``; its ``__init__`` holds ``source``."""
    for path in _home(name).rglob("*.py"):
        copy = folder / name / path.relative_to(_home(name))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(source if path == _home(name) / "__init__.py" else "")


def _with_door(name: str, folder: Path) -> None:
    _stand_in(name, folder, "from . import _core")
    (folder / name / "_core.py").write_text(_door(name))


def _vendor(folder: Path) -> Path:
    home = folder / "acme" / "_vendor"
    home.mkdir(parents=True)
    for package in (home, home.parent):
        (package / "__init__.py").touch()
    return home


def _run(module: str, folder: Path) -> str:
    """Import ``module`` from ``folder`` alone; prints where the door found tj_core, or how it failed."""
    source = (
        f"import sys\nsys.path.insert(0, {os.fspath(folder)!r})\nimport importlib\n"
        f"try:\n    print(importlib.import_module({module!r})._core.core.__name__)\n"
        "except ImportError as error:\n    print(f'{type(error).__name__}: {error}')"
    )
    done = run_python(source, options=["-I", "-S"])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_doors_are_one_file_but_for_the_siblings() -> None:
    shared = {_door(name).partition(SHARED_END)[0] for name in WITH_DOOR}
    assert len(shared) <= 1
    assert all(SHARED_END in _door(name) for name in WITH_DOOR)


@pytest.mark.parametrize("name", WITH_DOOR)
def test_a_door_opens_only_to_what_the_package_depends_on(name: str) -> None:
    assert _opened(name) <= set(PACKAGES[name].siblings)
    assert "tj_core" in _opened(name)


@pytest.mark.parametrize("name", PACKAGES)
def test_nothing_but_the_door_names_a_sibling(name: str) -> None:
    for path in _home(name).rglob("*.py"):
        if path.name == "_core.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module or ""]
            siblings = [m for m in modules if m.partition(".")[0] in PACKAGES]
            assert siblings == [], f"{path.name}:{getattr(node, 'lineno', 0)} imports {siblings} past the door"


@pytest.mark.parametrize("name", WITH_DOOR)
class TestDoor:
    def test_installed_neighbours_are_found(self, name: str, tmp_path: Path) -> None:
        _with_door(name, tmp_path)
        for sibling in PACKAGES[name].siblings:
            _stand_in(sibling, tmp_path)
        assert _run(name, tmp_path) == "tj_core"

    def test_a_vendored_neighbour_comes_before_an_installed_one(self, name: str, tmp_path: Path) -> None:
        home = _vendor(tmp_path)
        _with_door(name, home)
        for sibling in PACKAGES[name].siblings:
            _stand_in(sibling, tmp_path)
            _stand_in(sibling, home)
        assert _run(f"acme._vendor.{name}", tmp_path) == "acme._vendor.tj_core"

    def test_an_installed_neighbour_serves_a_vendored_package(self, name: str, tmp_path: Path) -> None:
        _with_door(name, _vendor(tmp_path))
        for sibling in PACKAGES[name].siblings:
            _stand_in(sibling, tmp_path)
        assert _run(f"acme._vendor.{name}", tmp_path) == "tj_core"

    def test_a_missing_neighbour_is_named_with_the_remedy(self, name: str, tmp_path: Path) -> None:
        _with_door(name, _vendor(tmp_path))
        said = _run(f"acme._vendor.{name}", tmp_path)
        assert said.startswith("ModuleNotFoundError: ")
        assert "needs tj_core" in said
        assert "pip install tj-core" in said

    @pytest.mark.parametrize(
        ("source", "error"),
        [("raise ImportError('broken inside')", "broken inside"), ("import not_installed", "not_installed")],
    )
    def test_a_broken_neighbour_is_not_masked(self, name: str, source: str, error: str, tmp_path: Path) -> None:
        home = _vendor(tmp_path)
        _with_door(name, home)
        for sibling in PACKAGES[name].siblings:
            _stand_in(sibling, tmp_path)
        _stand_in("tj_core", home, source)
        said = _run(f"acme._vendor.{name}", tmp_path)
        assert error in said
        assert "pip install" not in said
