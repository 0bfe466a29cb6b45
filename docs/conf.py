"""How the site is built. Run `nox -s docs`; the pages are beside this file."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "conformance" / "support"))

import torch_jax_interop  # noqa: E402
from tj_core._dtypes import TABLE as dtype_table  # noqa: E402
from tjtest.packages import PACKAGES, cells_in_markdown  # noqa: E402


def reexports_in_markdown() -> str:
    """The names that torch_jax_interop has from each package, as links."""
    rows = ["| from | names |", "| --- | --- |"]
    for home in PACKAGES["torch_jax_interop"].siblings:
        names = [name for name in torch_jax_interop.__all__ if getattr(torch_jax_interop, name).__module__ == home]
        rows.append(f"| `{home}` | {', '.join(f'{{py:obj}}`~{home}.{name}`' for name in names)} |")
    return "\n".join(rows)


def dtypes_in_markdown() -> str:
    """tj_core's own table of dtypes; rows that differ in nothing but the name are one."""
    merged: dict[tuple[str, str | None, str], list[str]] = {}
    for row in dtype_table:
        merged.setdefault((row.passage, row.narrowed, row.reason), []).append(f"`{row.name}`")
    words = {"share": "shared", "narrow": "shared; narrowed", "bits": "bits", "refuse": "refused"}
    rows = ["| dtype | how it crosses |", "| --- | --- |"]
    for (passage, narrowed, reason), names in merged.items():
        note = f" to `{narrowed}` without x64" if narrowed else f": {reason}" if reason else ""
        rows.append(f"| {', '.join(names)} | {words[passage]}{note} |")
    return "\n".join(rows)


project = "torch-jax-interop"
author = copyright = "the authors of torch-jax-interop"
html_theme = "furo"
html_title = "torch-jax-interop"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

myst_enable_extensions = ["substitution", "colon_fence"]
myst_heading_anchors = 3
myst_substitutions = {
    "supported_versions": cells_in_markdown(),
    "reexports": reexports_in_markdown(),
    "dtypes": dtypes_in_markdown(),
}

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
napoleon_custom_sections = ["Returns"]  # prose, not "type: description"
python_use_unqualified_type_names = True

# Names that belong to others have their pages elsewhere; everything of our own must resolve.
nitpick_ignore_regex = [
    ("py:.*", r"(torch|jax|jaxlib|jnp|flax|nnx|linen|nn|numpy|np|optax|collections|typing|types|abc)(\..*)?"),
    ("py:.*", r"\w+\._\w+.*"),
    ("py:.*", r"(Any|Callable|Iterable|Iterator|Mapping|Sequence|Hashable|Literal|Tensor|Array|Module)"),
]
