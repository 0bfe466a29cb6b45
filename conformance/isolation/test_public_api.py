"""The public surface: `__all__`, `__module__`, docstrings with examples, and one version for all packages."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from tjtest import subject
from tjtest.surface import complaints


@pytest.fixture(scope="module")
def public() -> dict[str, ModuleType]:
    return {subject.PREFIX + name: subject.subject(name) for name in subject.EXPECTED}


@pytest.mark.parametrize("name", subject.EXPECTED)
def test_the_surface_keeps_the_rules(name: str, public: dict[str, ModuleType]) -> None:
    assert complaints(public[subject.PREFIX + name], public) == []


def test_all_packages_have_one_version(public: dict[str, ModuleType]) -> None:
    assert len({package.__version__ for package in public.values()}) == 1


@pytest.mark.parametrize("name", subject.EXPECTED)
def test_import_star_gives_exactly_the_public_names(name: str, public: dict[str, ModuleType]) -> None:
    space: dict[str, object] = {}
    exec(f"from {subject.PREFIX}{name} import *", space)
    assert space.keys() - {"__builtins__"} == set(public[subject.PREFIX + name].__all__)


GOOD = '''
"""A package."""
from _good_home import thing as thing
__version__ = "0.1.0"
__all__ = ["thing"]
thing.__module__ = __name__
'''
HOME = 'def thing():\n    """Does it.\n\n    >>> thing()\n    """\n'

#: What is wrong -> (a change of GOOD, a change of HOME, the complaint).
FLAWS = {
    "unsorted": ('["thing"]', '["thing", "__version__"]', "not sorted"),
    "duplicate": ('["thing"]', '["thing", "thing"]', "duplicates"),
    "empty": ('["thing"]', "[]", "missing or empty"),
    "absent": ('["thing"]', '["other", "thing"]', "other, which is not there"),
    "unlisted": ("__all__ =", "extra = 1\n__all__ =", "extra is public but not in __all__"),
    "private home": ("thing.__module__ = __name__", "", "not a public path"),
    "another home": ("thing.__module__ = __name__", "thing.__module__ = 'json'", "has another thing, or none"),
    "no version": ('__version__ = "0.1.0"', "", "__version__ is missing"),
    "no package docstring": ('"""A package."""', "", "the package has no docstring"),
    "defines": ("__all__ =", "class Extra: pass\n__all__ =", "defines Extra instead"),
    "no docstring": ("__all__ =", "thing.__doc__ = None\n__all__ =", "thing has no docstring"),
    "no example": ("__all__ =", "thing.__doc__ = 'Does it.'\n__all__ =", "thing has no example"),
}


def _import(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (folder / "_good_home.py").write_text(HOME)
    (folder / "flawed.py").write_text(source.lstrip())
    monkeypatch.syspath_prepend(str(folder))
    for name in ("flawed", "_good_home"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import flawed

    return flawed


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_flaw_is_found(flaw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import json

    old, new, complaint = FLAWS[flaw]
    package = _import(tmp_path, GOOD.replace(old, new), monkeypatch)
    assert complaint in "\n".join(complaints(package, {"flawed": package, "json": json}))


def test_a_good_surface_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _import(tmp_path, GOOD, monkeypatch)
    assert complaints(package, {"flawed": package}) == []
