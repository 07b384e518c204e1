"""Entries of a cache on disk, and which of them go when there are too many."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Something that was made once, and need not be made again.

    Attributes:
        used: when it was last used, in seconds since the epoch.
        size: bytes on disk.
        path: a file, or a folder with all that is in it.
    """

    used: float
    size: int
    path: Path


def forget_oldest(
    entries: Iterable[Entry], most_bytes: int, in_use_since: float = float("inf")
) -> list[Entry]:
    """Remove what was not used for longest, until the rest is no larger than a limit.

    Args:
        entries: all entries.
        most_bytes: limit of the size of the entries that are left, in bytes.
        in_use_since: time since which used entries stay, whatever the limit, as others may be
            reading them.

    Returns:
        What was removed. Another process may have been faster.
    """
    oldest_first = sorted(entries)
    total, removed = sum(entry.size for entry in oldest_first), []
    for entry in oldest_first:
        if total <= most_bytes or entry.used > in_use_since:
            break
        remove(entry.path)
        removed.append(entry)
        total -= entry.size
    return removed


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it, if that is allowed and it is there."""
    with contextlib.suppress(OSError):
        try:
            os.unlink(path)
        except IsADirectoryError:
            shutil.rmtree(path, ignore_errors=True)
