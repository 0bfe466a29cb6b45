"""What the README says in words is what the repository does."""

from pathlib import Path

from tjtest.packages import PACKAGES, ROOT, cells, cells_in_markdown, distribution

README = (ROOT / "README.md").read_text()


def _commands(path: Path) -> list[str]:
    return [line.strip() for line in path.read_text().splitlines() if line.strip().startswith("python3 -m venv")]


def test_the_table_of_supported_versions_is_the_one_in_pyproject() -> None:
    assert cells_in_markdown() in README


def test_ci_runs_the_test_command_of_the_readme() -> None:
    demo, tests = _commands(ROOT / "README.md")
    assert demo == f"{tests} -s demo"
    assert _commands(ROOT / ".ci" / "run") == [tests]


def test_every_package_is_in_the_readme_and_on_the_site() -> None:
    for name in PACKAGES:
        assert f"[{distribution(name)}](packages/{distribution(name)})" in README
        assert (ROOT / "docs" / "packages" / f"{distribution(name)}.md").exists()


def test_every_cell_names_the_same_things() -> None:
    assert {tuple(row) for row in cells().values()} == {("python", "torch", "jax", "flax")}


def test_every_licence_is_the_same() -> None:
    licences = [(ROOT / "packages" / distribution(name) / "LICENSE").read_text() for name in PACKAGES]
    assert set(licences) == {(ROOT / "LICENSE").read_text()}
