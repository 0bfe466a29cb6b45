"""Figures are ratios: within a group, every row is divided by the row of that group called ``floor``.

A benchmark names its group with ``@pytest.mark.benchmark(group="...")``; the one that the others are measured against
has ``floor`` in its name. The fastest of many rounds counts, since all noise on a shared machine is slowness. The
table is printed after the run, and written to the file that ``--ratios`` names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Row(NamedTuple):
    """One benchmark: the fastest round in microseconds, and how many times the floor that is."""

    group: str
    name: str
    microseconds: float
    ratio: float | None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ratios", type=Path, help="write the table of ratios to this Markdown file")


def rows(benchmarks: Iterable[Any]) -> Iterator[Row]:
    """The rows of every group, floor first, then from fast to slow."""
    groups = defaultdict(list)
    for bench in benchmarks:
        groups[bench.group or bench.name].append((bench.name.removeprefix("test_"), bench.stats.min * 1e6))
    for group, members in groups.items():
        floor = next((time for name, time in members if "floor" in name), None)
        for name, time in sorted(members, key=lambda member: ("floor" not in member[0], member[1])):
            yield Row(group, name, time, None if floor is None else time / floor)


def table(found: Iterable[Row]) -> str:
    """The rows in Markdown."""
    lines = ["| case | what | fastest | times the floor |", "|---|---|---:|---:|"]
    for row in found:
        ratio = "-" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append(f"| {row.group} | {row.name} | {row.microseconds:,.1f} us | {ratio} |")
    return "\n".join(lines)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    session = getattr(config, "_benchmarksession", None)
    if session is None or not session.benchmarks:
        return
    text = table(rows(session.benchmarks))
    terminalreporter.section("ratios")
    terminalreporter.write_line(text)
    if config.getoption("--ratios"):
        config.getoption("--ratios").write_text(text + "\n")
