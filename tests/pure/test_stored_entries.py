"""What goes when a cache is too large."""

from __future__ import annotations

from pathlib import Path

from tvm_tile.files.store import Store, entries_of
from tvm_tile.files.stored_entries import Entry, forget_oldest


def entry(folder: Path, used: float, size: int) -> Entry:
    path = folder / f"{used}"
    path.write_bytes(bytes(size))
    return Entry(used, size, path)


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    new, old, middle = (entry(tmp_path, used, 10) for used in (3.0, 1.0, 2.0))
    assert forget_oldest([new, old, middle], 30) == []
    assert forget_oldest([new, old, middle], 15) == [old, middle]
    assert [path.name for path in tmp_path.iterdir()] == ["3.0"]


def test_what_is_in_use_stays(tmp_path: Path) -> None:
    entries = [entry(tmp_path, used, 10) for used in (1.0, 2.0, 3.0)]
    assert forget_oldest(entries, 0, in_use_since=1.5) == entries[:1]


def test_a_folder_goes_as_a_whole_and_what_is_gone_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "code").write_text("x")
    both = [Entry(1, 1, tmp_path / "program"), Entry(2, 1, tmp_path / "missing")]
    assert forget_oldest(both, 0) == both
    assert not list(tmp_path.iterdir())


def test_only_entries_are_counted(tmp_path: Path) -> None:
    Store(tmp_path, "1").put(b"key", b"data")
    Store(tmp_path, "2").put(b"key", b"data")
    (tmp_path / "ab").mkdir(exist_ok=True)
    (tmp_path / "ab" / "notes.txt").write_text("mine")
    (tmp_path / "ab" / ("z" * 62)).write_text("mine")
    assert len(entries_of(tmp_path)) == 2
    assert entries_of(tmp_path / "missing") == []
