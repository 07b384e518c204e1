"""Markdown's tables, and numbers as they appear in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOTHING = ""


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1) -> str:
    """A table whose first ``text`` columns are words, the others numbers; empty without rows."""
    body = [_line(row) for row in rows]
    if not body:
        return ""
    rule = ["---" if i < text else "---:" for i in range(len(header))]
    return "\n".join([_line(header), _line(rule), *body]) + "\n"


def join(*parts: str) -> str:
    """Paragraphs, tables and headings with a line between them; empty ones left out."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def number(value: float | None, digits: int = 3) -> str:
    """So many significant digits, never as a power of ten; nothing for None."""
    if value is None:
        return NOTHING
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = abs(float(f"{value:.{digits - 1}e}"))
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(rounded)))}f}"


def ratio(value: float | None) -> str:
    """A speed-up or a fraction: two decimals, fewer from ten on."""
    if value is None:
        return NOTHING
    return f"{value:.{2 if value < 9.995 else 1}f}"


def percent(value: float | None, digits: int = 0) -> str:
    """A share of one."""
    return NOTHING if value is None else f"{100 * value:.{digits}f} %"


def power(value: float | None) -> str:
    """An error: one digit and a power of ten."""
    return NOTHING if value is None else f"{value:.0e}"


def plain(text: str, limit: int = 1000) -> str:
    """Text that breaks no table: one line, at most ``limit`` characters."""
    line = " ".join(text.split()).replace("|", "\\|")
    return line if len(line) <= limit else line[: limit - 1].rstrip("\\") + "…"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
