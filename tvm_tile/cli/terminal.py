"""Reports on a terminal, by Rich: in colours, with tables that fit; plain for files and pipes."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.table import Table as Drawn
from rich.text import Text
from rich.theme import Theme

from tvm_tile.cli.spelling import in_words
from tvm_tile.report.screen.table import Part, Table, plain

_GAP = 2  # characters between columns
_STYLES = {
    "report.heading": "bold",
    "report.number": "cyan",
    "report.warning": "yellow",
    "report.hint": "dim",
}


class _Reports(RegexHighlighter):
    base_style = "report."
    highlights = (
        r"^(?P<heading>(share|measured|difference)  .*)$",
        r"^(?P<heading>\S.*:)$",
        r"(?P<number>(?<![\w.#])\d[\d.]*( (us|ms|s|TB/s|[KMGT]?B|GFLOP|%))?(?![\w.]))",
        r"^(?P<warning>(note|fell back[^:]*):)",
        r"^(?P<hint>more: .*)$",
    )


def show(parts: Sequence[Part]) -> None:
    """Print a report on standard output, in the command line's words."""
    parts = [in_words(part) if isinstance(part, str) else part for part in parts]
    if not sys.stdout.isatty():
        print(plain(parts))
        return
    console = Console(theme=Theme(_STYLES), highlighter=_Reports())
    for part in parts:
        if isinstance(part, Table):
            console.print(_drawn(part))
        else:
            # The terminal breaks lines, so that what is copied from it has none of its own.
            console.print(part, markup=False, soft_wrap=True)


def _drawn(table: Table) -> Drawn:
    """A table as Rich draws it."""
    heading, *rows = table.rows
    drawn = Drawn(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="report.heading")
    for number, name in enumerate(heading):
        indent = " " * table.indent if not number else ""
        drawn.add_column(Text(indent + name), overflow="fold")
    for first, *others in rows:
        cells = (" " * table.indent + first, *others)
        drawn.add_row(*map(Text, cells))
    return drawn
