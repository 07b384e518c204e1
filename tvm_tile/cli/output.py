"""Output of commands: checks of a file's place, sizes and tables for people."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from tvm_tile.files.whole_file import replacing


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all; to a device, a pipe or through a link as it comes.

    Raises:
        OSError: the file cannot be written.
    """
    if path.is_symlink() or (path.exists() and not path.is_file()):  # such as /dev/stdout
        path.write_text(text, encoding="utf-8")
        return
    with replacing(path) as file:
        file.write(text.encode())


def describe_size(count: float) -> str:
    """Bytes for people, to three digits."""
    for unit in ("bytes", "KB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.4g} GB"


def print_table(rows: Sequence[Sequence[str]], *, names: int) -> None:
    """Print columns: the first ``names`` of them flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        left = [cell.ljust(width) for cell, width in itertools.islice(cells, names)]
        print("  ".join((*left, *(cell.rjust(width) for cell, width in cells))).rstrip())
