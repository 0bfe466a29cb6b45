"""The archives that the session built, in the folder that ``TJ_DIST`` names."""

import os
from pathlib import Path

import pytest
from tjtest.archives import literal_version, read_sdist, read_wheel, sdist_complaints, wheel_complaints
from tjtest.packages import PACKAGES

DIST = Path(os.environ["TJ_DIST"])


def _only(pattern: str) -> Path:
    [path] = DIST.glob(pattern)
    return path


@pytest.mark.parametrize("name", PACKAGES)
def test_the_wheel_is_what_the_repository_says(name: str) -> None:
    assert wheel_complaints(name, read_wheel(_only(f"{name}-*.whl"))) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_the_sdist_is_what_the_repository_says(name: str) -> None:
    assert sdist_complaints(name, read_sdist(_only(f"{name}-*.tar.gz"))) == []


def test_all_versions_are_one() -> None:
    assert len({literal_version(name) for name in PACKAGES}) == 1


def test_nothing_else_was_built() -> None:
    archives = [path for path in DIST.iterdir() if path.name != ".gitignore"]
    assert len(archives) == 2 * len(PACKAGES)
