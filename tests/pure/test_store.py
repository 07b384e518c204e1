"""The store: what is found, what is not, and that it never fails anybody."""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
from pathlib import Path

import numpy as np
import pytest

from tvm_tile.errors import OptionError
from tvm_tile.files import store as store_module
from tvm_tile.files.store import Store, cache_folder, fingerprint

DATA = b"a plan " * 1000


def entries(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_what_was_kept_is_found_by_anyone(tmp_path: Path) -> None:
    Store(tmp_path / "new" / "folder", "1").put(b"key", DATA)
    store = Store(tmp_path / "new" / "folder", "1")
    assert store.get(b"key") == DATA
    assert store.get(b"another key") is None
    store.put(b"key", b"")
    assert store.get(b"key") == b""
    assert len(entries(tmp_path)) == 1


def test_nothing_of_another_version_is(tmp_path: Path) -> None:
    Store(tmp_path, "1").put(b"key", DATA)
    assert Store(tmp_path, "2").get(b"key") is None


@pytest.mark.parametrize("keep", [0, 5, 40, -1])
def test_what_is_cut_off_is_forgotten(tmp_path: Path, keep: int) -> None:
    store = Store(tmp_path, "1")
    store.put(b"key", DATA)
    (path,) = entries(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    assert store.get(b"key") is None
    assert entries(tmp_path) == []
    store.put(b"key", DATA)
    assert store.get(b"key") == DATA


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    store = Store(tmp_path, "1")
    store.put(b"key", b"some data")
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1
        path.write_bytes(changed)
        assert store.get(b"key") is None


def test_where_no_folder_can_be_nothing_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    store = Store(file / "below", "1")
    store.put(b"key", DATA)
    assert store.get(b"key") is None


def test_a_folder_in_the_place_of_an_entry(tmp_path: Path) -> None:
    store = Store(tmp_path, "1")
    store.put(b"key", DATA)
    (path,) = entries(tmp_path)
    path.unlink()
    path.mkdir()
    store.put(b"key", DATA)
    assert store.get(b"key") == DATA


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    Store(tmp_path, "1").put(b"old", DATA)
    folders = [tmp_path, *(path for path in tmp_path.iterdir() if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    store = Store(tmp_path, "1")
    store.put(b"new", DATA)
    store.put(b"old", b"changed")
    assert (store.get(b"new"), store.get(b"old")) == (None, DATA)
    for folder in folders:
        folder.chmod(0o700)
    assert len(entries(tmp_path)) == 1


def test_a_disk_that_fills_up_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    Store(tmp_path, "1").put(b"key", DATA)
    assert entries(tmp_path) == []


def test_others_may_not_look_in(tmp_path: Path) -> None:
    Store(tmp_path / "cache", "1").put(b"key", DATA)
    (entry,) = entries(tmp_path)
    assert not entry.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    assert not entry.parent.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def test_the_root_is_the_owners_alone_under_any_mask(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        Store(tmp_path / "deep" / "cache", "1").put(b"key", DATA)
    finally:
        os.umask(mask)
    assert (tmp_path / "deep" / "cache").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "deep").stat().st_mode & 0o777 == 0o700


def test_an_entry_is_its_keys_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, "1")
    store.put(b"key", DATA)
    (one,) = entries(tmp_path)
    content = one.read_bytes()
    store.put(b"other", b"other data")
    (other,) = set(entries(tmp_path)) - {one}
    other.write_bytes(content)
    assert store.get(b"other") is None
    assert store.get(b"key") == DATA


def test_what_others_may_write_is_not_read(tmp_path: Path) -> None:
    store = Store(tmp_path, "1")
    store.put(b"key", DATA)
    (entry,) = entries(tmp_path)
    entry.chmod(0o622)
    assert store.get(b"key") is None
    store.put(b"key", DATA)
    assert store.get(b"key") == DATA


@pytest.mark.parametrize("in_the_way", ["file", "dangling link", "link to a file"])
def test_what_stands_in_the_place_of_a_folder_goes(tmp_path: Path, in_the_way: str) -> None:
    store = Store(tmp_path / "cache", "1")
    store.put(b"key", DATA)
    (entry,) = entries(tmp_path / "cache")
    entry.unlink()
    entry.parent.rmdir()
    (tmp_path / "kept").write_bytes(b"kept")
    if in_the_way == "file":
        entry.parent.write_bytes(b"")
    else:
        entry.parent.symlink_to(tmp_path / ("kept" if "file" in in_the_way else "nowhere"))
    assert store.get(b"key") is None
    store.put(b"key", DATA)
    assert store.get(b"key") == DATA
    assert (tmp_path / "kept").read_bytes() == b"kept"


@pytest.mark.parametrize("target", ["/dev/zero", "pipe"])
def test_what_never_ends_is_not_read(tmp_path: Path, target: str) -> None:
    store = Store(tmp_path, "1")
    store.put(b"key", DATA)
    (entry,) = entries(tmp_path)
    entry.unlink()
    os.mkfifo(entry) if target == "pipe" else entry.symlink_to(target)
    assert store.get(b"key") is None
    store.put(b"key", DATA)
    assert store.get(b"key") == DATA


def test_what_would_fill_the_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(tmp_path, "1").put(b"key", bytes(10_000))
    monkeypatch.setattr(store_module, "_MOST_BYTES_OF_ENTRY", 9_000)
    assert Store(tmp_path, "1").get(b"key") is None


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    (tmp_path / "users own").write_bytes(bytes(100_000))
    store = Store(tmp_path, "1", most_bytes=64_000)
    random = np.random.default_rng(0)
    for number in range(40):
        store.put(str(number).encode(), random.bytes(4_000))
        for path in entries(tmp_path):
            if time.time() - path.stat().st_mtime < 60:
                os.utime(path, (time.time() - 1000 + number,) * 2)
        assert store.get(b"0") is not None
    kept = {number for number in range(40) if store.get(str(number).encode()) is not None}
    assert {0, 39} <= kept
    assert 10 < len(kept) < 20
    assert (tmp_path / "users own").exists()


def test_no_limit_is_too_small(tmp_path: Path) -> None:
    store = Store(tmp_path, "1", most_bytes=0)
    store.put(b"key", DATA)
    assert store.get(b"key") is None
    assert entries(tmp_path) == []


def _write_and_read(folder: Path, seed: int) -> bool:
    store = Store(folder, "1")
    for turn in range(200):
        key = str(turn % 7).encode()
        store.put(key, key * (1000 + seed + turn))
        found = store.get(key)
        if found is None or found != key * len(found):
            return False
    return True


def test_many_processes_at_once(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert all(pool.starmap(_write_and_read, [(tmp_path, seed) for seed in range(3)]))
    assert len(entries(tmp_path)) == 7


@pytest.mark.parametrize(
    ("option", "environment", "expected"),
    [
        (False, {"TVM_TILE_CACHE": "/somewhere", "HOME": "/home/me"}, None),
        ("/mine", {"TVM_TILE_CACHE": "/somewhere"}, "/mine"),
        (Path("/mine"), {}, "/mine"),
        (True, {"TVM_TILE_CACHE": "/somewhere", "XDG_CACHE_HOME": "/xdg"}, "/somewhere"),
        (True, {"TVM_TILE_CACHE": "", "HOME": "/home/me"}, None),
        (True, {"XDG_CACHE_HOME": "/xdg", "HOME": "/home/me"}, "/xdg/tvm_tile"),
        (True, {"XDG_CACHE_HOME": "relative", "HOME": "/home/me"}, "/home/me/.cache/tvm_tile"),
        (True, {"HOME": "/home/me"}, "/home/me/.cache/tvm_tile"),
        (True, {}, None),
        ("~/mine", {"HOME": "/home/me"}, "/home/me/mine"),
        (True, {"TVM_TILE_CACHE": "~/mine", "HOME": "/home/me"}, "/home/me/mine"),
        ("mine", {}, str(Path.cwd() / "mine")),
    ],
)
def test_where_the_cache_is(
    option: bool | str | Path, environment: dict[str, str], expected: str | None
) -> None:
    assert cache_folder(option, environment) == (None if expected is None else Path(expected))


@pytest.mark.parametrize("option", ["", Path(""), "a\0b"])
def test_no_folder(option: str | Path) -> None:
    if option == Path(""):
        assert cache_folder(option, {}) == Path.cwd()  # it is "."
        return
    with pytest.raises(OptionError):
        cache_folder(option, {})


def test_a_fingerprint_is_of_every_python_file(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    first, second = tmp_path / "a.py", tmp_path / "inner" / "b.py"
    first.write_text("1")
    second.write_text("2")
    (tmp_path / "note.txt").write_text("3")
    later = time.time() + 60
    sums = [fingerprint(tmp_path, later)]
    second.write_text("3")
    sums.append(fingerprint(tmp_path, later))
    second.rename(tmp_path / "b.py")
    sums.append(fingerprint(tmp_path, later))
    assert None not in sums
    assert len(set(sums)) == 3
    (tmp_path / "note.txt").write_text("4")
    assert fingerprint(tmp_path, later) == sums[2]


def test_code_that_changed_since_it_was_imported_has_none(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1")
    assert fingerprint(tmp_path, time.time() - 60) is None
