"""Wheels and sdists: what they hold and say of themselves that they should not, one line each."""

import email
import re
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import NamedTuple

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.version import Version

from .packages import PACKAGES, ROOT, cells, distribution, folder


class Archive(NamedTuple):
    """A wheel or an sdist in memory: the content of each member by its path (an sdist's top folder left out)."""

    name: str
    members: dict[str, bytes]

    def text(self, member: str) -> str:
        return self.members.get(member, b"").decode()


def read_wheel(path: Path) -> Archive:
    with zipfile.ZipFile(path) as archive:
        return Archive(path.name, {name: archive.read(name) for name in archive.namelist()})


def read_sdist(path: Path) -> Archive:
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if member.isfile()]
        contents = {member.name.partition("/")[2]: archive.extractfile(member) for member in files}
        return Archive(path.name, {name: stream.read() for name, stream in contents.items() if stream})


def literal_version(name: str) -> str:
    """``__version__`` as it is written in the source."""
    source = (folder(name) / "src" / name / "__init__.py").read_text()
    match = re.search(r'^__version__ = "([^"]+)"$', source, re.MULTILINE)
    assert match, f"{name} has no literal __version__"
    return match[1]


def _sources(name: str) -> dict[str, bytes]:
    src = folder(name) / "src"
    files = [path for path in src.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(src).as_posix(): path.read_bytes() for path in files}


def wheel_complaints(name: str, wheel: Archive) -> list[str]:
    """What is wrong with the wheel of the package ``name``, compared with its sources and the table of cells."""
    version = literal_version(name)
    info = f"{name}-{version}.dist-info"
    expected = _sources(name) | {f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes()}
    generated = {f"{info}/{member}" for member in ("METADATA", "WHEEL", "RECORD")}
    return [
        *_about_contents(wheel, expected, generated),
        *_about_name(name, version, wheel),
        *_about_tags(wheel.text(f"{info}/WHEEL")),
        *metadata_complaints(name, version, wheel.text(f"{info}/METADATA")),
    ]


def sdist_complaints(name: str, sdist: Archive) -> list[str]:
    """What is wrong with the sdist of the package ``name``: it holds what builds the wheel, and nothing else."""
    version = literal_version(name)
    expected = {f"src/{path}": content for path, content in _sources(name).items()}
    expected |= {file: (folder(name) / file).read_bytes() for file in ("README.md", "pyproject.toml")}
    expected["LICENSE"] = (ROOT / "LICENSE").read_bytes()
    found = [*_about_contents(sdist, expected, {"PKG-INFO", ".gitignore"})]
    return [*found, *metadata_complaints(name, version, sdist.text("PKG-INFO"))]


def _about_contents(archive: Archive, expected: dict[str, bytes], generated: set[str]) -> Iterator[str]:
    present = archive.members.keys()
    yield from (f"{path} is missing" for path in sorted((expected.keys() | generated) - present))
    yield from (f"{path} has no business there" for path in sorted(present - expected.keys() - generated))
    for path in sorted(expected.keys() & present):
        if archive.members[path] != expected[path]:
            yield f"{path} differs from the repository's"
    if not any(path.endswith("/py.typed") for path in present):
        yield "py.typed is missing"


def _about_name(name: str, version: str, wheel: Archive) -> Iterator[str]:
    if wheel.name != f"{name}-{version}-py3-none-any.whl":
        yield f"the file is called {wheel.name}, expected {name}-{version}-py3-none-any.whl"


def _about_tags(text: str) -> Iterator[str]:
    message = email.message_from_string(text)
    if message.get_all("Tag") != ["py3-none-any"] or message["Root-Is-Purelib"] != "true":
        yield "WHEEL does not say that it is pure Python for any platform"


def metadata_complaints(name: str, version: str, text: str) -> list[str]:
    """What is wrong with METADATA or PKG-INFO, compared with the table of packages and the table of cells."""
    try:
        Metadata.from_email(text, validate=True)
    except ExceptionGroup as group:
        return [f"metadata: {error}" for error in group.exceptions]
    message = email.message_from_string(text)
    return [
        *_about_identity(name, version, message),
        *_about_python(message),
        *_about_requirements(name, version, message),
        *_about_readme(name, message),
    ]


def _about_identity(name: str, version: str, message: Message) -> Iterator[str]:
    expected = {
        "Name": distribution(name),
        "Version": version,
        "License-Expression": "MIT",
        "License-File": "LICENSE",
        "Description-Content-Type": "text/markdown",
    }
    for field, value in expected.items():
        if message[field] != value:
            yield f"{field} is {message[field]}, expected {value}"


def _about_python(message: Message) -> Iterator[str]:
    pythons = sorted({row["python"] for row in cells().values()}, key=Version)
    if message["Requires-Python"] != f">={pythons[0]}":
        yield f"Requires-Python is {message['Requires-Python']}, the lowest cell has {pythons[0]}"
    prefix = "Programming Language :: Python :: "
    named = [entry.removeprefix(prefix) for entry in message.get_all("Classifier", []) if entry.startswith(prefix)]
    if sorted(named) != sorted(["3 :: Only", *pythons]):
        yield f"the classifiers name Python {named}, the cells have {pythons}"


def _about_requirements(name: str, version: str, message: Message) -> Iterator[str]:
    found = {r.name: r for r in map(Requirement, message.get_all("Requires-Dist", []))}
    siblings = {distribution(sibling) for sibling in PACKAGES[name].siblings}
    expected = siblings | set(PACKAGES[name].libraries)
    if found.keys() != expected:
        yield f"requires {sorted(found)}, expected {sorted(expected)}"
    minor = ".".join(version.split(".")[:2])
    for required in found.values():
        if required.name in siblings and str(required.specifier) != f"=={minor}.*":
            yield f"{required}: a sibling is pinned to =={minor}.*"
        if required.name in PACKAGES[name].libraries:
            yield from _about_library(required)


def _about_library(required: Requirement) -> Iterator[str]:
    floor = cells()["floor"][required.name]
    lowest = [Version(part.version) for part in required.specifier if part.operator == ">="]
    if lowest != [Version(floor)]:
        yield f"{required}: the lower bound is not the floor, {floor}"
    for cell, row in cells().items():
        if row[required.name] not in required.specifier:
            yield f"{required}: refuses {row[required.name]} of the cell {cell}"


def _about_readme(name: str, message: Message) -> Iterator[str]:
    if str(message.get_payload()).strip() != (folder(name) / "README.md").read_text().strip():
        yield "the description is not README.md"
    for target in re.findall(r"\]\(([^)]+)\)", str(message.get_payload())):
        if not target.startswith(("https://", "#")):
            yield f"README.md: the link {target} leads nowhere on an index page"
