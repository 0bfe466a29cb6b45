"""A pytest plugin that runs the Python blocks of Markdown pages, one after the other in one namespace per page."""

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

from .packages import ROOT

_pages = Sybil(parsers=[PythonCodeBlockParser(), SkipParser()], pattern="*.md", path=str(ROOT))
pytest_collect_file = _pages.pytest()
