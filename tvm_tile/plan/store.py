"""Bytes on disk by key: what was made once and need not be made again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path

_MAGIC = b"tvm_tile store 1\n"
_SUM_BYTES = 32


class Store:
    """A folder of entries, shared by any number of processes; never a cause of failure.

    An entry is written whole or not at all, and its sum is checked when it is read: a damaged
    one is forgotten. Where the folder cannot be written or read, nothing is ever found.

    The sums find damage, not malice: whoever can write to the folder can make the models that
    are compiled with it do anything. So it is made readable and writable by its owner only.

    Args:
        folder: made when the first entry is kept; may be deleted at any time.
        version: of whatever makes the entries; those of other versions are not found.
    """

    def __init__(self, folder: Path, version: str) -> None:
        self._folder = folder
        self._version = version.encode()

    def get(self, key: bytes) -> bytes | None:
        """What was kept under a key; None where nothing was, or something that is damaged."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        data = _checked(content)
        if data is None:
            with contextlib.suppress(OSError):
                path.unlink()
        return data

    def put(self, key: bytes, data: bytes) -> None:
        """Keep something; of several processes that do, one wins."""
        path = self._path(key)
        packed = zlib.compress(data, 1)
        temporary: str | None = None
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(".tmp", dir=path.parent)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(packed).digest() + packed)
            # Not synced to the disk: the sum finds what a power failure leaves.
            os.replace(temporary, path)
        except OSError:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)

    def _path(self, key: bytes) -> Path:
        name = hashlib.sha256(self._version + b"\0" + key).hexdigest()
        return self._folder / name[:2] / name[2:]


def _checked(content: bytes) -> bytes | None:
    start = len(_MAGIC) + _SUM_BYTES
    expected, packed = content[len(_MAGIC) : start], content[start:]
    if not content.startswith(_MAGIC) or hashlib.sha256(packed).digest() != expected:
        return None
    return zlib.decompress(packed)


def cache_folder(
    option: bool | str | os.PathLike[str], environment: Mapping[str, str]
) -> Path | None:
    """Where to keep things; None for nowhere.

    Args:
        option: a folder; False for none; True for ``TVM_TILE_CACHE``, which may be empty for
            none, and where that is not set the user's cache folder.
        environment: of this process.
    """
    if not isinstance(option, bool):
        return Path(option)
    if not option:
        return None
    if "TVM_TILE_CACHE" in environment:
        named = environment["TVM_TILE_CACHE"]
        return Path(named) if named else None
    # The XDG base directory specification: a path that is not absolute is to be ignored.
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "tvm_tile"
    home = environment.get("HOME", "")
    return Path(home) / ".cache" / "tvm_tile" if os.path.isabs(home) else None


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
