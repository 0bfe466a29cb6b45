"""The public surface of a package: what is wrong with it, one line each."""

import ast
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any


def complaints(package: ModuleType, public: dict[str, ModuleType]) -> list[str]:
    """What breaks the rules in ``package``; ``public`` holds the packages that may be the home of a public name."""
    names: list[str] = getattr(package, "__all__", [])
    found = [*_about_all(package, names), *_about_version(package), *_about_source(package)]
    for name in names:
        if hasattr(package, name):
            found += _about_name(name, getattr(package, name), public)
        else:
            found.append(f"__all__ lists {name}, which is not there")
    return found


def _about_all(package: ModuleType, names: list[str]) -> Iterator[str]:
    if not names:
        yield "__all__ is missing or empty"
    if list(names) != sorted(set(names)):
        yield "__all__ is not sorted, or has duplicates"
    for name, value in vars(package).items():
        if not name.startswith("_") and not isinstance(value, ModuleType) and name not in names:
            yield f"{name} is public but not in __all__"


def _about_version(package: ModuleType) -> Iterator[str]:
    if not isinstance(getattr(package, "__version__", None), str):
        yield "__version__ is missing"


def _about_source(package: ModuleType) -> Iterator[str]:
    """``__init__.py`` only re-exports; it defines nothing."""
    if not package.__doc__:
        yield "the package has no docstring"
    tree = ast.parse(inspect.getsource(package))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"__init__.py defines {node.name} instead of re-exporting it"


def _about_name(name: str, value: Any, public: dict[str, ModuleType]) -> Iterator[str]:
    home = getattr(value, "__module__", None)
    if home not in public:
        yield f"{name}.__module__ is {home}, which is not a public path"
    elif getattr(public[home], name, None) is not value:
        yield f"{name}.__module__ is {home}, which has another {name}, or none"
    doc = inspect.cleandoc(value.__doc__ or "")
    if not doc:
        yield f"{name} has no docstring"
    elif _wants_example(value) and ">>>" not in doc:
        yield f"{name} has no example in its docstring"


def _wants_example(value: Any) -> bool:
    return callable(value) and not (isinstance(value, type) and issubclass(value, Exception))
