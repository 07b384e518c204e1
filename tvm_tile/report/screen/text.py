"""Words, numbers and lines of what users read on a screen."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence

from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.screen.short_names import cut, short_of_calls
from tvm_tile.report.screen.table import aligned

WIDTH = 100
"""Characters of a line where there is no terminal that tells how many it has."""

Row = tuple[Sequence[str], Callable[[int], str]]
"""Cells of a table, and a function that gives the last one in at most a number of characters."""


def with_room(heading: Sequence[str], rows: Sequence[Row], width: int) -> Iterator[str]:
    """The lines of a table whose last column has the room that is left of ``width`` characters."""
    lines = list(aligned([heading, *((*cells, "") for cells, _ in rows)]))
    start = lines[0].index(heading[-1])
    yield lines[0]
    for line, (_, tell) in zip(lines[1:], rows, strict=True):
        yield line.ljust(start) + tell(width - start)


def computes(kernel: KernelReport, width: int) -> str:
    """Names, in the user's model, of what a kernel computes, in at most ``width`` characters."""
    if kernel.names:
        return short_of_calls(kernel.names, width)
    return cut(f"({kernel.operators or kernel.name})", width)


def counted(number: int, noun: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{number} {noun}{'s' * (number != 1)}"


def wrapped(line: str, width: int) -> list[str]:
    """A line of more than ``width`` characters as two, the second one cut."""
    indent = line[: len(line) - len(line.lstrip())] + "  "
    return textwrap.wrap(line, width, subsequent_indent=indent, max_lines=2, placeholder=" …")


def duration(seconds: float) -> str:
    """Seconds as microseconds or milliseconds."""
    microseconds = seconds * 1e6
    if abs(microseconds) < 1000:
        return f"{microseconds:.1f} us"
    return f"{microseconds / 1000:.2f} ms"


def size(count: float) -> str:
    """Bytes as megabytes or gigabytes."""
    return f"{count / 1e6:.2f} MB" if count < 10**9 else f"{count * 1e-9:.2f} GB"
