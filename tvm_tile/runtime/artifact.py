"""Saved models: one zip file, complete, checked, and written all or nothing.

``manifest.json`` holds versions, signatures of inputs and outputs, reports, and name, size and
SHA-256 of every other member; the zip's comment holds the manifest's own SHA-256. The sums find
damage and careless edits. They prove nothing about who made the file: whoever can write it can make
new sums, and a model is machine code. Who made it is proven by an Ed25519 signature of the
manifest, which then follows the sum in the comment.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from tvm_tile import compat
from tvm_tile.errors import SavedModelError
from tvm_tile.errors.arguments import check_output
from tvm_tile.files.whole_file import open_regular, replacing
from tvm_tile.runtime.manifest import (
    CODE,
    FORMAT_VERSION,
    Manifest,
    SavedModel,
    assemble,
    manifest_text,
    members_of,
    parse_manifest,
)
from tvm_tile.runtime.signing import is_signed, make_signature

_MANIFEST = "manifest.json"
_NOT_COMPILED = frozenset({".onnx", ".pt2", ".relay"})
"""Suffixes of models that somebody may have meant to compile."""
_STORED = (".bin", ".bc", *filter(None, CODE.values()))
# Zip members carry a date; a fixed one makes equal models equal files.
_DATE = (1980, 1, 1, 0, 0, 0)
# Text of kernels becomes ten times smaller, seldom fifty times. What would become larger than this
# was made to fill the memory.
_MOST_GROWTH, _FREE_GROWTH = 100, 64 << 20
_SIGNATURE = b" ed25519:"


def write(model: SavedModel, path: Path, key: str | os.PathLike[str] | None = None) -> None:
    """Write a model; ``path`` holds either its old content or all of the new one.

    Args:
        model: the model to be written.
        path: the file's path.
        key: a PEM file with the Ed25519 private key to sign it with; None: not signed.

    Raises:
        OSError: the folder cannot be written.
        SavedModelError: the folder does not exist, the path is one itself, or the key cannot be
            used.
    """
    check_output(path)
    with replacing(path) as file:
        write_into(file, model, key)


def write_into(
    file: BinaryIO, model: SavedModel, key: str | os.PathLike[str] | None = None
) -> None:
    """Write a model into an open file; ``key`` is that of :func:`write`."""
    members = members_of(model)
    _fill(file, manifest_text(model, members), members, key)


def sign(path: Path, key: str | os.PathLike[str]) -> None:
    """Sign a saved model in its place, once it is checked; nothing in it is run.

    Raises:
        OSError: the folder cannot be written.
        SavedModelError: the file is no saved model, or the key cannot be used.
    """
    with _opened(path) as file:
        manifest, members = _read(file, path, None)
    with replacing(path) as file:
        _fill(file, manifest, members, key)


def _fill(
    file: BinaryIO,
    manifest: bytes,
    members: Mapping[str, bytes | memoryview],
    key: str | os.PathLike[str] | None,
) -> None:
    """Write what a saved model's file holds, signed if there is a key."""
    comment = hashlib.sha256(manifest).hexdigest().encode()
    if key is not None:
        comment += _SIGNATURE + make_signature(manifest, key).hex().encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in {_MANIFEST: manifest, **members}.items():
            info = zipfile.ZipInfo(name, _DATE)
            # Weights and machine code hardly shrink; text does.
            is_stored = name.endswith(_STORED)
            info.compress_type = zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
        archive.comment = comment


def read(path: Path, key: str | os.PathLike[str] | None = None) -> SavedModel:
    """Read a model and check every byte of it; nothing in it is run.

    Args:
        path: the file's path.
        key: a PEM file with an Ed25519 public key: the model must be signed with its other half.

    Raises:
        SavedModelError: the file is missing, truncated, changed, from versions that do not go with
            the installed ones, or not signed with the key that was given.
    """
    with _opened(path) as file:
        return read_from(file, path, key)


def read_from(file: BinaryIO, path: Path, key: str | os.PathLike[str] | None = None) -> SavedModel:
    """Read a model from an open file, which messages call ``path``; see :func:`read`."""
    manifest, members = _read(file, path, key)
    try:
        return assemble(_parsed(manifest), members)
    except Exception as error:  # as below
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _opened(path: Path) -> BinaryIO:
    """A saved model's file, for reading."""
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise SavedModelError("a saved model", f"no file {path}", "check the path") from error
    except Exception as error:  # a folder, a device, or a name that cannot be one
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _read(
    file: BinaryIO, path: Path, key: str | os.PathLike[str] | None
) -> tuple[bytes, dict[str, bytes]]:
    """The text of the manifest and the members, all checked."""
    try:
        with zipfile.ZipFile(file) as archive:
            _check_sizes(archive, file, path)
            text = archive.read(_MANIFEST)
            manifest = _checked_manifest(text, archive.comment, path, key)
            return text, _checked_members(archive, path, manifest)
    except SavedModelError:
        raise
    except Exception as error:  # zipfile, zlib, json and the lookups raise ten kinds and more
        raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, what: str) -> SavedModelError:
    """The error for a file that is not as it was written."""
    if path.suffix in _NOT_COMPILED:
        return SavedModelError(
            "a saved model is a file that save() of a compiled one wrote",
            f"{path} is a model that is not compiled",
            "compile it first, with tvm_tile.compile or `tvm-tile compile`",
        )
    return SavedModelError(
        "a saved model must be exactly as it was written",
        f"{path}: {what[:1000]}",
        "copy the file again, or compile and save the model again",
    )


def _check_sizes(archive: zipfile.ZipFile, file: BinaryIO, path: Path) -> None:
    """Refuse what would take far more memory than the file has bytes, before any of it is read."""
    found = archive.infolist()
    size = os.fstat(file.fileno()).st_size
    if len({info.filename for info in found}) < len(found):
        raise _damaged(path, "it has two members of one name")
    if sum(info.compress_size for info in found) > size:
        raise _damaged(path, "its members overlap")
    unpacked = sum(info.file_size for info in found)
    if unpacked > _FREE_GROWTH + _MOST_GROWTH * size:
        raise _damaged(path, f"{size} bytes would become {unpacked}")
    for info in found:
        if info.filename.endswith(_STORED) and info.compress_type != zipfile.ZIP_STORED:
            raise _damaged(path, f"{info.filename} is compressed")


def _parsed(text: bytes) -> Manifest:
    """The manifest in its JSON text."""
    return parse_manifest(json.loads(text))


def _checked_manifest(
    text: bytes, comment: bytes, path: Path, key: str | os.PathLike[str] | None
) -> Manifest:
    """The manifest, after a check of versions, checksum and signature."""
    content: dict[str, Any] = json.loads(text)
    # Versions first: a newer format may well keep its sums elsewhere.
    tvm, ffi = compat.installed_versions()
    expected = {
        "format": FORMAT_VERSION,
        "tvm": tvm,
        # Bytecode and calling convention belong to the series, patches keep them.
        "tvm_ffi": ffi.split(".post")[0],
    }
    saved = {
        "format": content["format"],
        "tvm": content["tvm"],
        "tvm_ffi": str(content["tvm_ffi"]).split(".post")[0],
    }
    if saved != expected:
        raise SavedModelError(
            f"a saved model that goes with {_render(expected)}",
            f"{path} was saved with {_render(saved)}",
            "install these versions, or compile and save the model again",
        )
    checksum, _, signature = comment.partition(_SIGNATURE)
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise _damaged(path, f"{_MANIFEST} has been changed")
    if key is not None:
        _check_signature(text, signature, path, key)
    return parse_manifest(content)


def _check_signature(
    text: bytes, signature: bytes, path: Path, key: str | os.PathLike[str]
) -> None:
    """Refuse a manifest that is not signed with this key's other half."""
    if not signature:
        found = "not signed"
    elif not is_signed(text, bytes.fromhex(signature.decode()), key):
        found = "signed with another key, or changed since"
    else:
        return
    raise SavedModelError(
        f"the model must be signed with the other half of the key {os.fspath(key)}",
        f"{path} is {found}",
        "get it from whoever has the private key, who signs it with `tvm-tile sign`",
    )


def _render(versions: Mapping[str, object]) -> str:
    """Versions by name, for people."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _checked_members(archive: zipfile.ZipFile, path: Path, manifest: Manifest) -> dict[str, bytes]:
    """Contents of the file's members, each checked against the manifest."""
    if more := set(archive.namelist()) - {_MANIFEST, *manifest.members}:
        raise _damaged(path, f"{min(more)} does not belong to it")
    members = {}
    for name, entry in manifest.members.items():
        if archive.getinfo(name).file_size != entry.size:
            raise _damaged(path, f"{name} has been changed")
        data = archive.read(name)
        if len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256:
            raise _damaged(path, f"{name} has been changed")
        members[name] = data
    return members
