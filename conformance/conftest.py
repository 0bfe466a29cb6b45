"""What every test of the suite may ask for, and a header that says what is being tested, and on what."""

import importlib.metadata
import platform
from collections.abc import Iterator

import pytest
from tjtest import devices, subject
from tjtest.precision import x64_mode

FRAMEWORKS = ("torch", "jax", "jaxlib", "numpy", "flax")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tj-device",
        choices=devices.NAMES,
        default="cpu",
        help="the device that the tests run on; one that is missing is an error, not a skip",
    )


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def pytest_report_header(config: pytest.Config) -> list[str]:
    versions = [f"{name} {_version(name)}" for name in FRAMEWORKS]
    return [
        f"versions: python {platform.python_version()}, {', '.join(versions)}",
        f"devices: {', '.join(f'{name} [{found}]' for name, found in devices.seen().items())}",
        f"under test: --tj-device={config.getoption('--tj-device')}, TJ_PREFIX={subject.PREFIX!r}",
        *(f"  {subject.PREFIX}{name} from {subject.origin(name)}" for name in subject.EXPECTED),
    ]


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> devices.Device:
    """The device that this run is about, as torch and as JAX name it."""
    return devices.select(request.config.getoption("--tj-device"))


@pytest.fixture
def x64() -> Iterator[None]:
    """The test runs with ``jax_enable_x64`` on."""
    with x64_mode():
        yield
