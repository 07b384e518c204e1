"""Folders for files that nobody needs once the block that made them ends."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOCK = threading.Lock()
_FOLDERS: set[Path] = set()
_has_ended = False


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is removed when the block ends, as :func:`remove_for_good` does before it."""
    with _LOCK:
        folder = Path(tempfile.mkdtemp(prefix="tvm_tile-"))
        _FOLDERS.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _FOLDERS.discard(folder)


def remove_for_good() -> None:
    """Remove all scratch folders, for a process that is about to end: other threads get no new one.

    What a thread starts in a folder that it had, such as a compiler, fails from now on.
    """
    global _has_ended
    if not _has_ended:
        _has_ended = True
        _LOCK.acquire()  # for good
    for folder in tuple(_FOLDERS):
        shutil.rmtree(folder, ignore_errors=True)


def _start_anew() -> None:
    """Make a new lock in a forked process, where another thread of the parent may have held it."""
    global _LOCK
    _LOCK = threading.Lock()
    _FOLDERS.clear()


os.register_at_fork(after_in_child=_start_anew)
