"""Ctrl-C: the process ends at once, and with it all that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tvm_tile.cli.status import ExitStatus
from tvm_tile.scratch import remove_for_good

_ENDS = {
    signal.SIGINT: ("interrupted", ExitStatus.INTERRUPTED),
    signal.SIGTERM: ("terminated", ExitStatus.TERMINATED),
}


def end_cleanly_on_signals() -> None:
    """Have Ctrl-C, and ``kill``, end this process with a line and a status of their own.

    Not by an exception, which might be taken for a failure of whatever TVM was just calling. Files
    are written whole or not at all (``whole_file.py``), so that none is left half written;
    compilers that were started end, too, and their folders go.
    """
    for number in _ENDS:
        signal.signal(number, _end)


def _end(number: int, _frame: object) -> NoReturn:
    text, status = _ENDS[signal.Signals(number)]
    remove_for_good()
    for child in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(child, signal.SIGKILL)
    remove_for_good()  # what was written until then
    # \x1b[?25h: the progress bar hides the cursor.
    show_cursor = "\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else ""
    os.write(2, f"{show_cursor}tvm-tile: {text}\n".encode())
    os._exit(status)


def descendants(process: int) -> tuple[int, ...]:
    """All processes that a process has started, and those that these have; parents come first."""
    children = defaultdict(list)
    for child, parent in _parents():
        children[parent].append(child)
    found = [process]
    for one in found:
        found += children[one]
    return tuple(found[1:])


def _parents() -> Iterator[tuple[int, int]]:
    """Each process of the machine, and the one that started it."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            # "number (name) state parent ...", and the name may have anything in it.
            yield int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])
