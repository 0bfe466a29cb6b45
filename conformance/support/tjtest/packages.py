"""The packages, and what each of them may need: the oracle for imports, doors and metadata."""

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[3]


class Package(NamedTuple):
    """The siblings and the third-party libraries that a package may need; it may need nothing else."""

    siblings: tuple[str, ...]
    libraries: tuple[str, ...]


PACKAGES = {
    "tj_core": Package((), ("torch", "jax")),
    "tj_autograd": Package(("tj_core",), ()),
    "tj_jaxify": Package(("tj_core",), ()),
    "tj_func": Package(("tj_core", "tj_autograd", "tj_jaxify"), ()),
    "tj_flax": Package(("tj_core", "tj_autograd", "tj_jaxify"), ("flax",)),
    "torch_jax_interop": Package(("tj_core", "tj_autograd", "tj_jaxify", "tj_func", "tj_flax"), ()),
}


def distribution(name: str) -> str:
    """``"tj_core"`` -> ``"tj-core"``."""
    return name.replace("_", "-")


def folder(name: str) -> Path:
    """The folder of the distribution in the repository."""
    return ROOT / "packages" / distribution(name)


def libraries(name: str) -> tuple[str, ...]:
    """The third-party libraries that come with a package: its own and its siblings'."""
    own = [*PACKAGES[name].libraries, *(found for needed in PACKAGES[name].siblings for found in libraries(needed))]
    return tuple(dict.fromkeys(own))


def modules_beside(name: str) -> list[str]:
    """What a user of the package has imported anyway; what these import in their turn is not the package's doing."""
    parts = {"flax": ("flax.linen", "flax.nnx")}
    return [module for library in libraries(name) for module in parts.get(library, (library,))]


def cells() -> dict[str, dict[str, str]]:
    """The table of supported versions: name of the cell -> python, torch, jax, flax."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    table: dict[str, dict[str, str]] = project["tool"]["tj"]["cells"]
    return table


def cells_in_markdown() -> str:
    """The same table, for the site and the README."""
    rows = [(name, *row.values()) for name, row in cells().items()]
    titles = ("cell", *next(iter(cells().values())))
    rule = tuple("---" for _ in titles)
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, rule, *rows))
