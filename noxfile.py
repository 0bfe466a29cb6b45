"""Sessions: `nox` runs the default set, `nox -l` lists all. CONTRIBUTING.md says what each one is for."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

import nox

nox.needs_version = ">=2026.1"
nox.options.default_venv_backend = "uv"

ROOT = Path(__file__).parent
DIST = ROOT / ".nox" / "archives"
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
CELLS: dict[str, dict[str, str]] = PYPROJECT["tool"]["tj"]["cells"]
CURRENT = CELLS["current"]["python"]
PACKAGES = ("tj_core", "tj_autograd", "tj_jaxify", "tj_func", "tj_flax", "torch_jax_interop")
FRAMEWORKS = ("torch", "jax", "flax")
VENDORED = (("tj_core",), ("tj_core", "tj_autograd"))
#: What must hold wherever a package lies: what its import does, and what it shows.
SLIM = ("conformance/isolation/test_slim.py", "conformance/isolation/test_public_api.py")

# What pip is told by the environment, uv is told too: (pip's variable, uv's, uv's separator).
FROM_PIP = (
    ("PIP_FIND_LINKS", "UV_FIND_LINKS", ","),
    ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", " "),
    ("PIP_EXTRA_INDEX_URL", "UV_INDEX", " "),
    ("PIP_CERT", "SSL_CERT_FILE", " "),
)
for _pip, _uv, _separator in FROM_PIP:
    if os.environ.get(_pip) and _uv not in os.environ:
        os.environ[_uv] = _separator.join(os.environ[_pip].split())

Session = nox.Session


class CellFunction(Protocol):
    """A session that is given the name of a cell."""

    def __call__(self, session: Session, cell: str) -> None: ...


def per_cell(name: str, *, bare: bool = False) -> Callable[[CellFunction], CellFunction]:
    """Register `function(session, cell)` as `name(cell)` for each cell of the table; only `current` runs by default.

    With `bare`, the cell `current` goes by `name` alone. Nox skips a cell whose interpreter is missing, and where the
    environment has CI it fails it instead.
    """

    def register(function: CellFunction) -> CellFunction:
        for cell, row in CELLS.items():
            is_current = cell == "current"
            run = functools.partial(function, cell=cell)
            functools.update_wrapper(run, function)
            nox.session(
                name=name if bare and is_current else f"{name}({cell})",
                python=row["python"],
                tags=[cell],
                default=is_current,
                requires=["build"],
            )(run)
        return function

    return register


def source(package: str) -> Path:
    """The folder that is imported as `package`."""
    return ROOT / "packages" / package.replace("_", "-") / "src" / package


def frameworks(cell: str, names: Iterable[str] = FRAMEWORKS) -> list[str]:
    """The pins of a cell."""
    return [f"{name}=={CELLS[cell][name]}" for name in names]


def wheels(*packages: str) -> list[str]:
    """The wheels that the session `build` made: of all packages, or of those named."""
    found = [path for name in packages or PACKAGES for path in sorted(DIST.glob(f"{name}-*.whl"))]
    assert len(found) == len(packages or PACKAGES), f"expected one wheel of each package in {DIST}, found {found}"
    return [str(path) for path in found]


def install(session: Session, *requirements: str, groups: Iterable[str] = ()) -> None:
    """Install in one resolution, test tools at the versions in constraints.txt."""
    tools = nox.project.dependency_groups(PYPROJECT, *groups)
    session.install(*requirements, *tools, "--constraints", "constraints.txt")


def pytest(session: Session, *args: str, packages: Iterable[str] = PACKAGES, **env: str) -> None:
    """Run pytest; a package in `packages` that cannot be imported is a failure."""
    session.run("pytest", *args, *session.posargs, env={"TJ_PACKAGES": " ".join(packages), **env})


@nox.session(default=False)
def build(session: Session) -> None:
    """Build every sdist, and every wheel from its sdist; other sessions ask for it."""
    shutil.rmtree(DIST, ignore_errors=True)
    constraints = ("--build-constraints", "constraints.txt")
    session.run("uv", "build", "--quiet", "--all-packages", *constraints, "--out-dir", str(DIST))


@nox.session(python=CURRENT, default=False, requires=["build"])
def demo(session: Session) -> None:
    """Train through both directions of the bridge, beside native twins."""
    install(session, *wheels(), *frameworks("current"), "optax", groups=["demo"])
    session.run("python", "demo", *session.posargs)


@nox.session
def lint(session: Session) -> None:
    """Ruff: rules and format."""
    install(session, groups=["lint"])
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session(python=CURRENT, requires=["build"])
def types(session: Session) -> None:
    """Mypy, strict: the packages, and a user's file that exercises the public surface as installed."""
    install(session, *wheels(), *frameworks("current"), "optax", groups=["types"])
    session.run("mypy", *(str(source(package).relative_to(ROOT)) for package in PACKAGES))
    session.run("mypy", "conformance/typing")


@per_cell("core-slim", bare=True)
def core_slim(session: Session, cell: str) -> None:
    """tj-core beside torch, jax and pytest, and nothing else."""
    install(session, *wheels("tj_core"), *frameworks(cell, ("torch", "jax")), groups=["slim"])
    pytest(session, "conformance/core", *SLIM, packages=["tj_core"])


@nox.session(python=CURRENT)
def vendored(session: Session) -> None:
    """tj_core, then tj_core and tj_autograd, copied into another project; none of our distributions is installed."""
    install(session, *frameworks("current"), "optax", groups=["test"])
    for packages in VENDORED:
        project = Path(session.create_tmp()) / "+".join(packages)
        vendor(packages, project)
        suites = [f"conformance/{package.removeprefix('tj_')}" for package in packages]
        env = {"TJ_PREFIX": "acme._vendor.", "PYTHONPATH": str(project)}
        pytest(session, *suites, *SLIM, packages=packages, **env)


def vendor(packages: Iterable[str], project: Path) -> None:
    """A project called acme that holds copies of the packages, and nothing that is not in their folders."""
    shutil.rmtree(project, ignore_errors=True)
    home = project / "acme" / "_vendor"
    for package in packages:
        shutil.copytree(source(package), home / package, ignore=shutil.ignore_patterns("__pycache__"))
    for folder in (home.parent, home):
        (folder / "__init__.py").touch()


@nox.session(python=CURRENT, requires=["build"])
def dist(session: Session) -> None:
    """What the sdists and wheels hold and say of themselves."""
    install(session, groups=["dist"])
    # The suite's own conftest imports both frameworks, which these tests do without.
    pytest(session, "--confcutdir=conformance/isolation", "conformance/isolation/test_dist.py", TJ_DIST=str(DIST))


@nox.session(python=CURRENT, requires=["build"])
def docs(session: Session) -> None:
    """The site, warnings as errors; then every example in it, in the READMEs and in the docstrings."""
    install(session, *wheels(), *frameworks("current"), "optax", groups=["docs"])
    session.run("sphinx-build", "-W", "--keep-going", "--nitpicky", "-q", "-b", "html", "docs", "docs/_build/html")
    pages = [
        "README.md",
        *(str(path) for folder in ("docs", "packages") for path in sorted(Path(folder).rglob("*.md"))),
    ]
    pytest(session, "-p", "tjtest.examples", *pages, PYTHONPATH="conformance/support")
    pytest(session, "--doctest-modules", "--pyargs", *PACKAGES)


@per_cell("conformance")
def conformance(session: Session, cell: str) -> None:
    """The whole suite over all packages, on one row of the table of supported versions."""
    install(session, *wheels(), *frameworks(cell), "optax", groups=["test"])
    pytest(session, "conformance")


@nox.session(python=CURRENT, default=False, requires=["build"])
def cuda(session: Session) -> None:
    """The whole suite on a GPU; a machine without one fails."""
    if shutil.which("nvidia-smi") is None:
        session.error("no GPU is seen on this machine: nvidia-smi is not there")
    session.run("nvidia-smi", "-L", external=True)
    pins = [pin.replace("jax==", "jax[cuda13]==") for pin in frameworks("current")]
    # A folder of wheels may hold a CPU build of torch, which would win over the CUDA build of the index.
    session.env["UV_FIND_LINKS"] = ""
    install(session, *wheels(), *pins, "optax", groups=["test"])
    pytest(session, "conformance", "--tj-device=cuda")


@nox.session(python=CURRENT, default=False, requires=["build"])
def bench(session: Session) -> None:
    """Benchmarks; each figure is a ratio against a floor or a peer measured in the same run."""
    install(session, *wheels(), *frameworks("current"), "optax", groups=["bench"])
    pytest(session, "benchmarks")


if __name__ == "__main__":
    nox.main()
