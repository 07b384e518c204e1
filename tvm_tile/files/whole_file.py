"""Files that are written whole or not at all, whoever else writes them and whatever kills us."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

_PREFIX, _SUFFIX = ".tvm_tile-", ".tmp"
# A writer locks its file right after making it: an old one without a lock has lost its writer.
_ORPHANED_S = 60.0
_PART = 1 << 20  # bytes that are read at a time


@contextmanager
def replacing(path: Path, *, permissions: int = 0o666, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write; when the block ends, ``path`` has all of it, and before that nothing.

    The file has no name while it is written, where the file system can do that (``O_TMPFILE``),
    so that a killed process leaves nothing. Elsewhere it has a name that nobody can guess or plant
    a link at, and the next writer into the folder removes those whose writers are dead. Of several
    writers of one path, the last to finish wins.

    Args:
        path: replaced by the new file; a symbolic link is replaced itself, not what it leads to.
        permissions: mode of a new file, from which the process's mask is subtracted.
        durable: wait until the disk has it.

    Raises:
        OSError: the folder cannot be written, or ``path`` is a folder or a device.
    """
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(mode := path.lstat().st_mode) and not stat.S_ISLNK(mode):
            raise FileExistsError(f"{path} is not a regular file, so it is not replaced")
    if not path.parent.exists():
        raise FileNotFoundError(f"the folder of {path} does not exist")
    name = path.with_name(f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}")
    descriptor, is_named = _create(name, permissions)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield file
            file.flush()
            if durable:
                os.fsync(descriptor)
            if not is_named:
                # Python follows the link only if it is given a folder, which it then ignores.
                os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)
                is_named = True
            os.replace(name, path)
            is_named = False
    finally:
        if is_named:
            name.unlink(missing_ok=True)
        _remove_orphans(path.parent)


def _create(name: Path, permissions: int) -> tuple[int, bool]:
    """A descriptor of a new file, and whether it has its name already."""
    if os.path.isdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            flags = os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC
            return os.open(name.parent, flags, permissions), False
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
    return os.open(name, flags, permissions), True


def _remove_orphans(folder: Path) -> None:
    """Remove unfinished files that processes left behind which no longer run."""
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
            if time.time() - path.lstat().st_mtime > _ORPHANED_S and _is_unlocked(path):
                path.unlink()


def _is_unlocked(path: Path) -> bool:
    """Whether no process holds the lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Content of a regular file.

    Args:
        path: links are followed; devices and pipes, which may never end, are refused.
        most_bytes: limit of the file's size.

    Raises:
        OSError: there is no such file, it is not a regular one, or it is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most_bytes:
            raise OSError(f"{path} has {size} bytes, more than {most_bytes}")
        return file.read(most_bytes)


def file_digest(path: Path) -> bytes:
    """The SHA-256 of a regular file's content.

    Raises:
        OSError: there is no such file, or it is not a regular one.
    """
    total = hashlib.sha256()
    with open_regular(path) as file:
        for part in iter(partial(file.read, _PART), b""):
            total.update(part)
    return total.digest()


def open_regular(path: Path) -> BinaryIO:
    """A regular file for reading; never waits, as opening a pipe would.

    Raises:
        OSError: there is no such file, or it is a folder, a pipe or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
