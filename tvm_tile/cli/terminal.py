"""Reports on a terminal, by Rich: in colours, and as wide as it is; plain for files and pipes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.theme import Theme

from tvm_tile.cli.spelling import in_words
from tvm_tile.report.screen.table import Part, lines_of
from tvm_tile.report.screen.text import WIDTH

_WIDTHS = 80, 200  # narrower terminals break lines; longer ones are hard to follow
_STYLES = {
    "report.heading": "bold",
    "report.number": "cyan",
    "report.warning": "yellow",
    "report.hint": "dim",
}


class _Reports(RegexHighlighter):
    base_style = "report."
    highlights = (
        r"^(?P<heading> *(share|measured|difference|rule|vgpr)  .*)$",
        r"^(?P<heading>\S.*:)$",
        r"(?P<number>(?<![\w.#])\d[\d.]*( (us|ms|s|TB/s|[KMGT]?B|GFLOP|%))?(?![\w.]))",
        r"^(?P<warning>(note|fell back[^:]*):)",
        r"^(?P<hint>more: .*)$",
    )


def show(parts_for: Callable[[int], Iterable[Part]]) -> None:
    """Print a report on standard output, in the command line's words.

    Args:
        parts_for: function of the characters that a line has, which gives the report. Tables have
            as many on a terminal, and a line for each row, however long, in files and pipes.
    """
    if not sys.stdout.isatty():
        for line in lines_of(parts_for(WIDTH)):
            print(in_words(line))
        return
    console = Console(theme=Theme(_STYLES), highlighter=_Reports())
    width = min(max(console.width, _WIDTHS[0]), _WIDTHS[1])
    for line in lines_of(parts_for(width), width):
        # The terminal breaks other lines, so that what is copied from it has none of its own.
        console.print(in_words(line), markup=False, soft_wrap=True)
