"""Tables for people, within texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a text, of which a terminal makes as many lines as it has room for.

    Attributes:
        rows: the heading and others, of as many cells each.
        indent: characters in front of each line.
    """

    rows: tuple[tuple[str, ...], ...]
    indent: int = 0


Part = str | Table
"""A line or a table."""


def plain(parts: Iterable[Part]) -> str:
    """A text whose tables have a line for each row, however long."""
    return "\n".join(line for part in parts for line in _lines(part))


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table whose cells begin below each other.

    Args:
        rows: one or more, of as many cells each.
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


def _lines(part: Part) -> Iterator[str]:
    """Lines of a text or of a table."""
    if isinstance(part, str):
        yield part
    else:
        yield from (" " * part.indent + line for line in aligned(part.rows))
