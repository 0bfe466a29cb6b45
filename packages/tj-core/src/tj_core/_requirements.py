"""What an installed distribution asks of the CUDA libraries beside it, read from its metadata.

The specifiers are those of the Python packaging specification, as far as CUDA wheels use them: plain release numbers
joined by commas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import zip_longest
from typing import NamedTuple

Release = tuple[int, ...]
_COMPARISONS: dict[str, Callable[[int], bool]] = {
    "==": lambda order: order == 0,
    "!=": lambda order: order != 0,
    ">=": lambda order: order >= 0,
    "<=": lambda order: order <= 0,
    ">": lambda order: order > 0,
    "<": lambda order: order < 0,
}
_NAME = re.compile(r"\s*([A-Za-z0-9._-]+)")
_CLAUSE = re.compile(r"(==|!=|>=|<=|<|>)\s*([0-9]+(?:\.[0-9]+)*)(\.\*)?")


class Requirement(NamedTuple):
    """A distribution and the clauses that its version must meet: ``(operator, version, is a prefix)``."""

    name: str
    clauses: tuple[tuple[str, str, bool], ...]

    def __str__(self) -> str:
        return self.name + ",".join(f"{op}{version}{'.*' if prefix else ''}" for op, version, prefix in self.clauses)

    def met_by(self, installed: str) -> bool:
        """Whether the installed version meets every clause."""
        return all(_meets(_release(installed), *clause) for clause in self.clauses)


def _release(version: str) -> Release:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))


def _meets(installed: Release, operator: str, version: str, prefix: bool) -> bool:
    wanted = _release(version)
    compared = installed[: len(wanted)] if prefix else installed
    return _COMPARISONS[operator](_order(compared, wanted))


def _order(left: Release, right: Release) -> int:
    pairs = list(zip_longest(left, right, fillvalue=0))
    return next(((a > b) - (a < b) for a, b in pairs if a != b), 0)


def parse(text: str) -> Requirement | None:
    """The requirement that a line of metadata states, markers left aside."""
    requirement = text.split(";")[0]
    name = _NAME.match(requirement)
    if name is None:
        return None
    clauses = tuple((op, version, bool(star)) for op, version, star in _CLAUSE.findall(requirement))
    return Requirement(name[1], clauses)


def requirements_of(distribution: str) -> Iterator[Requirement]:
    """What an installed distribution asks of NVIDIA's libraries, those of its extras included."""
    try:
        lines = metadata.requires(distribution) or []
    except metadata.PackageNotFoundError:
        return
    for line in lines:
        requirement = parse(line)
        if requirement is not None and requirement.name.startswith("nvidia-"):
            yield requirement
