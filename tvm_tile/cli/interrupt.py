"""Ctrl-C: the process ends at once, and with it all that it has started."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tvm_tile.cli.status import ExitStatus
from tvm_tile.files.scratch import remove_for_good

_ENDS = {
    signal.SIGINT: ("interrupted", ExitStatus.INTERRUPTED),
    signal.SIGTERM: ("terminated", ExitStatus.TERMINATED),
}


def end_cleanly_on_signals() -> None:
    """Have Ctrl-C, and ``kill``, end this process with a line and a status of their own.

    Not by an exception, which might be taken for a failure of whatever TVM was just calling; nor by
    Python's handler in the main thread, which may be waiting for a compiler: TVM's LLVM puts a
    handler of its own in place of Python's, and puts Python's back so that waiting goes on. A
    thread is told of the signal by a pipe instead. Files are written whole or not at all
    (``files/whole_file.py``), so that none is left half written; compilers that were started end,
    too, and their folders go.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in _ENDS:
        signal.signal(number, lambda _number, _frame: None)
    threading.Thread(target=_end_when_told, args=(reading,), daemon=True).start()


def _end_when_told(reading: int) -> None:
    """End the process when a signal's number comes through a pipe."""
    while True:
        for number in os.read(reading, 1):
            if number in _ENDS:
                _end(*_ENDS[signal.Signals(number)])


def _end(text: str, status: ExitStatus) -> NoReturn:
    """End the process with all that it has started, after a word to the user."""
    # \x1b[?25h: the progress bar hides the cursor.
    show_cursor = "\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else ""
    own = 2
    try:
        # Threads whose compilers end here have nothing to say any more.
        own = os.dup(2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        remove_for_good()
        for child in descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        remove_for_good()  # what was written until then
    finally:
        os.write(own, f"{show_cursor}tvm-tile: {text}\n".encode())
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
