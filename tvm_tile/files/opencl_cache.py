"""The folder in which PoCL and pyopencl keep what they compile: ours, and of limited size."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path

from tvm_tile.files.store import cache_folder
from tvm_tile.files.stored_entries import Entry, forget_oldest

_MOST_BYTES = 256 << 20
_LOOK_EVERY_S = 3600.0
# Other processes may be reading what was used since.
_IN_USE_S = 3600.0
POCL_FOLDER = "pocl"
"""PoCL's folder in that of the cache."""


@contextmanager
def bounded_caches(environment: MutableMapping[str, str]) -> Iterator[None]:
    """A context for importing pyopencl and starting PoCL, which read where their caches are.

    PoCL's is put beside ours, and what was not used for longest is removed from it, once an hour at
    most; pyopencl's, which has no limit and little to gain, is off. What the user has set stays,
    and outside of this block the environment is as it was.
    """
    given = dict(environment)
    environment.setdefault("PYOPENCL_NO_CACHE", "1")
    named = {"POCL_CACHE_DIR", "POCL_KERNEL_CACHE"} & given.keys()
    # An empty TVM_TILE_CACHE is for ours: PoCL would keep its own elsewhere, and for ever.
    places = {name: value for name, value in given.items() if name != "TVM_TILE_CACHE" or value}
    folder = cache_folder(True, places)
    if folder is not None and not named:
        with contextlib.suppress(OSError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            own = folder / POCL_FOLDER
            own.mkdir(mode=0o700, exist_ok=True)
            environment["POCL_CACHE_DIR"] = str(own)
            forget_programs(own, _MOST_BYTES)
    try:
        yield
    finally:
        for name in ("PYOPENCL_NO_CACHE", "POCL_CACHE_DIR"):
            if name in given:
                environment[name] = given[name]
            else:
                environment.pop(name, None)


def forget_programs(folder: Path, most_bytes: int) -> None:
    """Remove programs of PoCL's that were not used for longest, down to a limit.

    Args:
        folder: PoCL's.
        most_bytes: limit of the size of all programs together, in bytes.
    """
    looked = folder / "looked"
    with contextlib.suppress(OSError):
        if looked.exists() and time.time() - looked.stat().st_mtime < _LOOK_EVERY_S:
            return
        looked.touch()
        forget_oldest(programs_of(folder), most_bytes, in_use_since())


def in_use_since() -> float:
    """The time, in seconds since the epoch, since which other processes may be using a program."""
    return time.time() - _IN_USE_S


def programs_of(folder: Path) -> list[Entry]:
    """All programs in PoCL's folder: each a folder ``kcache/AB/CDEF...``, with a file that is
    touched when it is used."""
    found = []
    for path in (folder / "kcache").glob("*/*"):
        # Other processes may remove it meanwhile.
        with contextlib.suppress(OSError):
            found.append(_program(path))
    return found


def _program(path: Path) -> Entry:
    """A folder of PoCL's as an entry: its last use, and its size."""
    used, size = path.stat().st_mtime, 0
    for inner in path.rglob("*"):
        with contextlib.suppress(OSError):
            status = inner.lstat()
            used, size = max(used, status.st_mtime), size + status.st_size
    return Entry(used, size, path)
