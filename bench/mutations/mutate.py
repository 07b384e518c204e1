"""Ways to damage bytes, and to forge the files that hold them. All are drawn from one generator."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tvm_tile.files.store import MODEL_FOLDER

_MANIFEST = "manifest.json"


def damaged(data: bytes, random: Random) -> bytes:
    """Flip, cut, repeat, zero, insert or move some bytes."""
    content = bytearray(data)
    a, b = sorted(random.randrange(len(content) + 1) for _ in range(2))
    kind = random.randrange(7)
    if kind == 0:
        for _ in range(random.choice((1, 1, 2, 16))):
            content[random.randrange(len(content))] ^= random.randrange(1, 256)
    elif kind == 1:
        del content[a:]
    elif kind == 2:
        del content[a:b]
    elif kind == 3:
        content[a:a] = content[a:b]
    elif kind == 4:
        content[a:b] = bytes(b - a)
    elif kind == 5:
        content[a:a] = random.randbytes(random.randrange(1, 64))
    else:
        content[a:] = content[b:] + content[a:b]
    return bytes(content)


def damaged_file(model: bytes, random: Random) -> bytes:
    """A saved model with damage anywhere."""
    return damaged(model, random)


def damaged_member(model: bytes, random: Random) -> bytes:
    """A sound zip file, one member of which is damaged, missing, another's or one too many."""
    members, comment = _unpacked(model)
    name, other = random.choice(list(members)), random.choice(list(members))
    kind = random.randrange(6)
    if kind == 0:
        del members[name]
    elif kind == 1:
        members[name] = members[other]
    elif kind == 2:
        members[random.choice(("../x", "kernels/99.src", ""))] = b"more"
    else:
        members[name] = damaged(members[name], random)
    return _packed(members, comment)


def forged_manifest(model: bytes, random: Random) -> bytes:
    """A manifest with other values of any type, and all sums right."""
    members, _ = _unpacked(model)
    manifest = json.loads(members[_MANIFEST])
    if random.random() < 0.3:
        entry = random.choice(manifest["entries"])
        report = json.loads(entry["report"])
        _change_json(report, random)
        entry["report"] = json.dumps(report)
    else:
        _change_json(manifest, random)
    return _signed_off(members, manifest)


def forged_code(model: bytes, random: Random) -> bytes:
    """Another member than the manifest damaged, and all sums right: a file that lies."""
    members, _ = _unpacked(model)
    manifest = json.loads(members[_MANIFEST])
    name = random.choice([name for name in members if name != _MANIFEST])
    members[name] = damaged(members[name], random)
    entry = {"size": len(members[name]), "sha256": hashlib.sha256(members[name]).hexdigest()}
    manifest["members"][name] = entry
    return _signed_off(members, manifest)


def damage_cache(folder: Path, random: Random) -> None:
    """Damage one entry of a cache, or its place; in one of two there are no whole models, whose
    parts are read then."""
    if random.random() < 0.5:
        shutil.rmtree(folder / MODEL_FOLDER)
    entries = sorted(path for path in folder.rglob("*") if path.is_file())
    path, other = random.choice(entries), random.choice(entries)
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: path.write_bytes(damaged(path.read_bytes(), random)),
        lambda: path.write_bytes(damaged(path.read_bytes(), random)),
        lambda: path.write_bytes(other.read_bytes()),  # another key's
        lambda: path.chmod(0),
        lambda: path.chmod(0o666),
        lambda: _replaced(path, Path.mkdir),
        lambda: _replaced(path, os.mkfifo),
        lambda: _replaced(path, lambda place: place.symlink_to("/dev/zero")),
        lambda: _replaced(path, lambda place: place.symlink_to(other)),
        lambda: _replaced(path.parent, lambda place: place.write_bytes(b"")),
        lambda: path.parent.chmod(0),
    )
    random.choice(kinds)()


def _replaced(path: Path, make: Callable[[Path], Any]) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    make(path)


def _unpacked(model: bytes) -> tuple[dict[str, bytes], bytes]:
    with zipfile.ZipFile(io.BytesIO(model)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}, archive.comment


def _packed(members: dict[str, bytes], comment: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name or " ", data)
        archive.comment = comment
    return file.getvalue()


def _signed_off(members: dict[str, bytes], manifest: Any) -> bytes:
    text = json.dumps(manifest).encode()
    return _packed({**members, _MANIFEST: text}, hashlib.sha256(text).hexdigest().encode())


_STRANGE = (
    None, True, -1, 0, 1, 2**31, 2**63, -(2**70), 1.5, 1e308, "", "x", "../../etc/passwd",
    "float32", "\ud800", "a" * 10_000, [], [[]], {}, {"x": 1}, [None] * 9,
)  # fmt: skip


def _change_json(data: Any, random: Random) -> None:
    """Put something strange in one place, take one out, or exchange two."""
    places = list(_places(data))
    container, key = random.choice(places)
    kind = random.randrange(4)
    if kind == 0:
        del container[key]
    elif kind == 1:
        other, place = random.choice(places)
        container[key] = json.loads(json.dumps(other[place]))
    else:
        container[key] = random.choice(_STRANGE)


def _places(data: Any) -> Any:
    keys = data.keys() if isinstance(data, dict) else range(len(data))
    for key in list(keys):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _places(data[key])
