"""Each check of an archive can fail: a good wheel and a good sdist are spoilt in one way each."""

import pytest
from tjtest.archives import Archive, literal_version, sdist_complaints, wheel_complaints
from tjtest.packages import PACKAGES, ROOT, cells, distribution, folder

NAME = "tj_flax"
VERSION = literal_version(NAME)
INFO = f"{NAME}-{VERSION}.dist-info"
MINOR = ".".join(VERSION.split(".")[:2])
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _metadata() -> str:
    pythons = sorted({row["python"] for row in cells().values()})
    siblings = [f"{distribution(name)}=={MINOR}.*" for name in PACKAGES[NAME].siblings]
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", distribution(NAME)),
        ("Version", VERSION),
        ("License-Expression", "MIT"),
        ("License-File", "LICENSE"),
        *(("Classifier", f"Programming Language :: Python :: {entry}") for entry in ["3 :: Only", *pythons]),
        ("Requires-Python", f">={pythons[0]}"),
        *(("Requires-Dist", entry) for entry in [*siblings, f"flax>={cells()['floor']['flax']}"]),
        ("Description-Content-Type", "text/markdown"),
    ]
    header = "".join(f"{field}: {value}\n" for field, value in fields)
    return f"{header}\n{(folder(NAME) / 'README.md').read_text()}"


def _sources() -> dict[str, bytes]:
    src = folder(NAME) / "src"
    files = [path for path in src.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(src).as_posix(): path.read_bytes() for path in files}


def _good_wheel() -> Archive:
    info = {"METADATA": _metadata(), "WHEEL": WHEEL, "RECORD": "", "licenses/LICENSE": (ROOT / "LICENSE").read_text()}
    members = _sources() | {f"{INFO}/{name}": text.encode() for name, text in info.items()}
    return Archive(f"{NAME}-{VERSION}-py3-none-any.whl", members)


def _good_sdist() -> Archive:
    files = {name: (folder(NAME) / name).read_bytes() for name in ("README.md", "LICENSE", "pyproject.toml")}
    files |= {f"src/{path}": content for path, content in _sources().items()}
    return Archive(f"{NAME}-{VERSION}.tar.gz", files | {"PKG-INFO": _metadata().encode(), ".gitignore": b""})


def _spoil(archive: Archive, member: str, old: str, new: str) -> Archive:
    text = archive.members[member].decode()
    assert old in text
    return archive._replace(members=archive.members | {member: text.replace(old, new).encode()})


def test_a_good_wheel_and_a_good_sdist_pass() -> None:
    assert wheel_complaints(NAME, _good_wheel()) == []
    assert sdist_complaints(NAME, _good_sdist()) == []


METADATA, TAGS = f"{INFO}/METADATA", f"{INFO}/WHEEL"
#: member, what stands there, what is put there instead, the complaint.
SPOILT = [
    (METADATA, "Name: tj-flax", "Name: tj-flux", "Name is tj-flux"),
    (METADATA, f"Version: {VERSION}", "Version: 7.0.0", "Version is 7.0.0"),
    (METADATA, "License-Expression: MIT", "License-Expression: ISC", "License-Expression is ISC"),
    (METADATA, "License-File: LICENSE\n", "", "License-File is None"),
    (METADATA, "text/markdown", "text/plain", "Description-Content-Type is text/plain"),
    (METADATA, "Requires-Python: >=3.11", "Requires-Python: >=3.9", "Requires-Python is >=3.9"),
    (METADATA, "Python :: 3.12", "Python :: 3.10", "the classifiers name Python"),
    (METADATA, "Requires-Dist: flax", "Requires-Dist: optax\nRequires-Dist: flax", "requires ["),
    (METADATA, f"tj-core=={MINOR}.*", "tj-core>=0.1", "a sibling is pinned"),
    (METADATA, f"flax>={cells()['floor']['flax']}", "flax>=0.1", "the lower bound is not the floor"),
    (METADATA, f"flax>={cells()['floor']['flax']}", f"flax=={cells()['floor']['flax']}", "refuses"),
    (METADATA, "Metadata-Version: 2.4", "Metadata-Version: 0.9", "metadata: "),
    (METADATA, "# tj-flax", "# another", "the description is not README.md"),
    (METADATA, "# tj-flax", "# tj-flax [more](docs/more.md)", "leads nowhere"),
    (TAGS, "py3-none-any", "cp311-cp311-linux_x86_64", "pure Python"),
    (TAGS, "Root-Is-Purelib: true", "Root-Is-Purelib: false", "pure Python"),
]


@pytest.mark.parametrize(("member", "old", "new", "complaint"), SPOILT)
def test_each_spoilt_member_is_found(member: str, old: str, new: str, complaint: str) -> None:
    found = wheel_complaints(NAME, _spoil(_good_wheel(), member, old, new))
    assert complaint in "\n".join(found)


@pytest.mark.parametrize("extra", ["tests/test_it.py", "sitecustomize.py", f"{INFO}/entry_points.txt", "x.pth"])
def test_an_extra_file_is_found(extra: str) -> None:
    wheel = _good_wheel()
    spoilt = wheel._replace(members=wheel.members | {extra: b""})
    assert f"{extra} has no business there" in wheel_complaints(NAME, spoilt)


@pytest.mark.parametrize("member", [f"{NAME}/py.typed", f"{INFO}/licenses/LICENSE", f"{NAME}/__init__.py"])
def test_a_missing_or_changed_file_is_found(member: str) -> None:
    wheel = _good_wheel()
    missing = {path: content for path, content in wheel.members.items() if path != member}
    assert f"{member} is missing" in wheel_complaints(NAME, wheel._replace(members=missing))
    changed = wheel.members | {member: b"changed"}
    assert f"{member} differs from the repository's" in wheel_complaints(NAME, wheel._replace(members=changed))


def test_a_wheel_for_one_platform_is_found() -> None:
    spoilt = _good_wheel()._replace(name=f"{NAME}-{VERSION}-cp311-cp311-linux_x86_64.whl")
    assert "the file is called" in "\n".join(wheel_complaints(NAME, spoilt))


def test_a_spoilt_sdist_is_found() -> None:
    sdist = _good_sdist()
    assert "docs/x.md has no business there" in sdist_complaints(
        NAME, sdist._replace(members=sdist.members | {"docs/x.md": b""})
    )
    without = {path: content for path, content in sdist.members.items() if path != "LICENSE"}
    assert "LICENSE is missing" in sdist_complaints(NAME, sdist._replace(members=without))
    spoilt = _spoil(sdist, "PKG-INFO", f"Version: {VERSION}", "Version: 7.0.0")
    assert "Version is 7.0.0" in "\n".join(sdist_complaints(NAME, spoilt))
