"""Records on disk: what is written is read, whatever a killed run leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.record import Record, append, read, tidy

RECORD = Record("ops", "C2", "conv", "float32", None, "torch", "", "ok", median_ms=1.5)
OTHERS = [
    replace(RECORD, workload="C10"),
    replace(RECORD, dtype="float16"),
    replace(RECORD, batch=64),
    replace(RECORD, system="tvm_tile", variant="top1"),
    replace(RECORD, system="tvm_tile", variant="top10"),
]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "ops.jsonl"
    append(path, [RECORD, *OTHERS])
    assert set(read(path).values()) == {RECORD, *OTHERS}
    assert len(read(path)) == 6


def test_no_file_is_no_records(tmp_path: Path) -> None:
    assert read(tmp_path / "none.jsonl") == {}


def test_the_last_of_equal_keys_counts_and_tidying_keeps_only_it(tmp_path: Path) -> None:
    path = tmp_path / "ops.jsonl"
    newer = replace(RECORD, median_ms=2.0)
    append(path, [RECORD, *OTHERS])
    append(path, [newer])
    assert read(path)[RECORD.key] == newer
    tidy(path)
    assert len(path.read_text().splitlines()) == 6
    assert read(path)[RECORD.key] == newer
    assert [p.name for p in tmp_path.iterdir()] == ["ops.jsonl"]


def test_half_a_line_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "ops.jsonl"
    append(path, [RECORD])
    with path.open("a") as file:
        file.write('{"suite": "ops", "work')
    assert list(read(path).values()) == [RECORD]
    append(path, [OTHERS[0]])
    assert set(read(path).values()) == {RECORD, OTHERS[0]}
