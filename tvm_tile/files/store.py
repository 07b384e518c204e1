"""Bytes on disk by key: what was made once and need not be made again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from tvm_tile.errors import OptionError
from tvm_tile.files.stored_entries import Entry, forget_oldest, remove
from tvm_tile.files.whole_file import open_regular, replacing

MODEL_FOLDER = "models"
"""Folder, within that of the cache, of a store of whole models."""

_MAGIC = b"tvm_tile store 2\n"
_SUM_BYTES = 32
_ENTRY_NAME = re.compile("[0-9a-f]{62}")  # what _path leaves of the digits of a sum
_START = len(_MAGIC) + 2 * _SUM_BYTES
# Machine code and plans are far smaller; what is larger was not put there by this class.
_MOST_BYTES_OF_ENTRY = 1 << 28
# What is put between two looks at the whole folder, and what one look then leaves: of the limit.
_LOOK_EVERY, _LEAVE = 1 / 16, 7 / 8
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Store:
    """A folder of entries, shared by any number of processes; never a cause of failure.

    An entry is written whole or not at all. It carries its key and a sum, which are checked when
    it is read: one that is damaged, or that was made under another key, is forgotten. What stands
    in an entry's way, such as a file where a folder should be, is removed. Where the folder cannot
    be written or read, nothing is ever found. Entries that were not used for longest go first when
    there are too many.

    An entry may be bytes (:meth:`put`), or a file that others fill and check (:meth:`write`).

    The sums find damage, not malice: whoever can write to an entry can make the models that are
    compiled with it do anything. So all is made readable and writable by its owner only, and an
    entry that somebody else owns or may write is not read.

    Args:
        folder: made when the first entry is kept; may be deleted at any time.
        version: version of whatever makes the entries; entries of other versions are not found.
        most_bytes: approximate limit of the size of all entries together, in bytes; it is an
            attribute, too.
    """

    def __init__(self, folder: Path, version: str, most_bytes: int = 1 << 30) -> None:
        self._folder = folder
        self._version = version.encode()
        self.most_bytes = most_bytes
        self._until_look = 0.0

    def get(self, key: bytes) -> bytes | None:
        """Bytes that are kept under a key; None where there are none, or damaged ones."""
        file = self.open(key)
        if file is None:
            return None
        content = b""
        with file, contextlib.suppress(OSError):
            content = file.read(_MOST_BYTES_OF_ENTRY + 1)
        is_small = len(content) <= _MOST_BYTES_OF_ENTRY
        data = _checked(content, self._digest(key)) if is_small else None
        if data is None:
            self.forget(key)
        return data

    def put(self, key: bytes, data: bytes) -> None:
        """Keep something; of several processes that do, one wins."""
        checked = self._digest(key) + zlib.compress(data, 1)
        self.write(
            key, lambda file: file.write(_MAGIC + hashlib.sha256(checked).digest() + checked)
        )

    def open(self, key: bytes) -> BinaryIO | None:
        """The file that :meth:`write` kept under a key, whose content the caller checks, and which
        counts as used now; None where there is none, or one that others may have written."""
        path = self._path(self._digest(key))
        try:
            file = open_regular(path)
        except FileNotFoundError:
            return None
        except OSError:
            remove(path)
            return None
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
            file.close()
            return None
        with contextlib.suppress(OSError):
            os.utime(file.fileno())  # the last use, by which entries are forgotten
        return file

    def write(self, key: bytes, fill: Callable[[BinaryIO], object]) -> None:
        """Keep the file that a function fills; of several processes that do, one wins."""
        path = self._path(self._digest(key))
        with contextlib.suppress(OSError):
            self._make_way(path)
            # Not synced to the disk: sums find what a power failure leaves.
            with replacing(path, permissions=0o600, durable=False) as file:
                fill(file)
                self._until_look -= file.tell()
        if self._until_look < 0:
            self._until_look = self.most_bytes * _LOOK_EVERY
            entries = entries_of(self._folder)
            if sum(entry.size for entry in entries) > self.most_bytes:
                forget_oldest(entries, int(self.most_bytes * _LEAVE))

    def forget(self, key: bytes) -> None:
        """Remove an entry, such as one that turned out to be damaged."""
        remove(self._path(self._digest(key)))

    def _digest(self, key: bytes) -> bytes:
        """Digest of a key and the store's version."""
        return hashlib.sha256(self._version + b"\0" + key).digest()

    def _path(self, digest: bytes) -> Path:
        """Path of an entry's file."""
        name = digest.hex()
        return self._folder / name[:2] / name[2:]

    def _make_way(self, path: Path) -> None:
        """Make an entry's folders, and remove what is none of ours in their place."""
        # By the XDG base directory specification what is missing is made for its owner alone.
        self._folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        try:
            path.parent.mkdir(mode=0o700)
        except FileExistsError:
            if path.parent.is_symlink() or not path.parent.is_dir():
                path.parent.unlink()
                path.parent.mkdir(mode=0o700)
            elif not os.access(path.parent, os.R_OK | os.W_OK | os.X_OK):
                path.parent.chmod(0o700)
        if path.is_dir():
            remove(path)


def entries_of(folder: Path) -> list[Entry]:
    """All entries in a store's folder, of any version. Others may remove them meanwhile."""
    found = []
    # Only what is named as entries are: the folder may be somebody's, with other things in it.
    for path in folder.glob("[0-9a-f][0-9a-f]/*"):
        if _ENTRY_NAME.fullmatch(path.name):
            with contextlib.suppress(OSError):
                status = path.lstat()
                found.append(Entry(status.st_mtime, status.st_size, path))
    return found


def _checked(content: bytes, digest: bytes) -> bytes | None:
    """Content of an entry; None where it is damaged or has another key."""
    expected, checked = (
        content[len(_MAGIC) : len(_MAGIC) + _SUM_BYTES],
        content[_START - _SUM_BYTES :],
    )
    if not content.startswith(_MAGIC) or hashlib.sha256(checked).digest() != expected:
        return None
    if checked[:_SUM_BYTES] != digest:
        return None
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(checked[_SUM_BYTES:], _MOST_BYTES_OF_ENTRY)
    except zlib.error:
        return None
    return data if unpacker.eof else None


def cache_folder(
    option: bool | str | os.PathLike[str], environment: Mapping[str, str]
) -> Path | None:
    """Folder for the cache; None for no cache.

    Args:
        option: a folder, in which ``~`` is the user's home; False for none; True for
            ``TVM_TILE_CACHE``, which may be empty for none, and where that is not set the user's
            cache folder.
        environment: environment variables of this process.

    Raises:
        OptionError: ``option`` is an empty path, or of no home that is known.
    """
    if not isinstance(option, bool):
        return _absolute(os.fspath(option), environment)
    if not option:
        return None
    if "TVM_TILE_CACHE" in environment:
        named = environment["TVM_TILE_CACHE"]
        return _absolute(named, environment) if named else None
    # The XDG base directory specification: a path that is not absolute is to be ignored.
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "tvm_tile"
    home = environment.get("HOME", "")
    return Path(home) / ".cache" / "tvm_tile" if os.path.isabs(home) else None


def _absolute(named: str, environment: Mapping[str, str]) -> Path:
    """A folder that stays the same wherever the process goes."""
    if not named or "\0" in named:
        raise OptionError(
            "cache= must be a folder, or True or False", repr(named), "use False for no cache"
        )
    first, separator, rest = named.partition("/")
    if first == "~" and os.path.isabs(environment.get("HOME", "")):
        named = environment["HOME"] + separator + rest
    return Path(os.path.abspath(os.path.expanduser(named)))


def fingerprint(package: Path, imported: float) -> str | None:
    """A sum of a package's Python files: what it makes may change with any of them.

    A version number would do for released packages; in a checkout, code changes without it.

    Args:
        package: its folder.
        imported: when this process imported it, in seconds since the epoch.

    Returns:
        The sum; None where a file is newer than the code that this process runs.
    """
    total = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        if path.stat().st_mtime > imported:
            return None
        content = path.read_bytes()
        total.update(f"{path.relative_to(package)}\0{len(content)}\0".encode())
        total.update(content)
    return total.hexdigest()
