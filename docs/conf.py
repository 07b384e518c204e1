"""How Sphinx builds these pages: `make docs`.

The sources lie where they are read in the repository, so that a link between two of them, or to any
other file, is the same there and here: pages in docs/, the lessons, the benchmark's results.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
from tvm_tile._version import __version__  # noqa: E402

project = "tvm_tile"
version = release = __version__
html_title = f"{project} {version}"
root_doc = "docs/index"
include_patterns = ["*.md", "docs/*.md", "tutorials/[0-9]*.py", "bench/results/*.md"]
source_suffix = {".md": "markdown", ".py": "lesson"}
extensions = [
    "myst_parser",
    "lessons",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxarg.ext",
]

html_theme = "furo"
html_show_copyright = False
html_copy_source = False
templates_path = ["templates"]
html_static_path = ["static"]
html_css_files = ["pages.css"]
# index.html, which leads to that of docs/.
html_extra_path = ["site"]

# Links may name headings down to this level, as on the forges that show Markdown.
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "none"
# What is returned is prose here, which napoleon would take for a type as far as its first colon.
napoleon_use_ivar = True
napoleon_attr_annotations = False
napoleon_custom_sections = ["Returns"]


def check_offline(app: Any, failure: Exception | None) -> None:
    """Raise if a page loads anything from elsewhere: pages are read where no network is."""
    loads = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=\"(?:https?:)?//")
    pages = () if failure else Path(app.outdir).rglob("*.html")
    if loading := [str(page) for page in pages if loads.search(page.read_text(encoding="utf-8"))]:
        raise RuntimeError(f"these pages load something from the network: {', '.join(loading)}")


def mend_properties(
    _app: Any, what: str, _name: str, _of: Any, _options: Any, lines: list[str]
) -> None:
    """Put together a property's docstring, of which napoleon takes the beginning for a type."""
    for line in [line for line in lines if what == "property" and line.startswith(":type: ")]:
        lines.remove(line)
        lines[0] = f"{line.removeprefix(':type: ')}: {lines[0]}"


def setup(app: Any) -> None:
    """What Sphinx calls."""
    app.connect("autodoc-process-docstring", mend_properties, priority=900)
    app.connect("build-finished", check_offline)
