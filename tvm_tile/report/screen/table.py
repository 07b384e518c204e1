"""Tables for people, within texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.report.screen.short_names import cut

_GAP = "  "  # between columns
_LEAST = 16  # characters that a cell has room for, before columns are left out


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a text.

    Attributes:
        rows: the heading and others, of as many cells each.
        indent: characters in front of each line.
        spare: headings of columns that are left out where there is no room, the first one first.
    """

    rows: tuple[tuple[str, ...], ...]
    indent: int = 0
    spare: tuple[str, ...] = ()


Part = str | Table
"""A line or a table."""


def lines_of(parts: Iterable[Part], width: int | None = None) -> Iterator[str]:
    """The lines of a text, with one for each row of its tables.

    Args:
        parts: the text.
        width: the most characters of a table's row, whose longest cells are cut for it, and which
            does without spare columns; ``None`` for as many as there are.
    """
    for part in parts:
        if isinstance(part, str):
            yield part
        else:
            room = None if width is None else width - part.indent
            yield from (" " * part.indent + line for line in aligned(_needed(part, room), room))


def _needed(table: Table, room: int | None) -> Sequence[tuple[str, ...]]:
    """The rows of a table without the spare columns that there is no room for."""
    rows: Sequence[tuple[str, ...]] = table.rows
    for heading in table.spare:
        least = [min(_LEAST, width) for width in _widths(rows)]
        if room is not None and heading in rows[0] and _length(least) > room:
            column = rows[0].index(heading)
            rows = [(*row[:column], *row[column + 1 :]) for row in rows]
    return rows


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    """Characters of each column of a table."""
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _length(widths: Sequence[int]) -> int:
    """Characters of a line of columns."""
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def aligned(rows: Sequence[Sequence[str]], width: int | None = None) -> Iterator[str]:
    """The lines of a table whose cells begin below each other.

    Args:
        rows: one or more, of as many cells each.
        width: the most characters of a line, as in :func:`lines_of`.
    """
    widths = _widths(rows)
    while width is not None and _length(widths) > width and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    for row in rows:
        cells = (cut(cell, own).ljust(own) for cell, own in zip(row, widths, strict=True))
        yield _GAP.join(cells).rstrip()
