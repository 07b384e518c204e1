"""The benchmark of tiles with codes: its records and its page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.coded_tiles.__main__ import _RESULTS, PRODUCTS, main
from bench.coded_tiles.record import TILES, MeasuredTile, by_product, read, read_all
from bench.coded_tiles.report import PAGE, floor_us, page
from bench.lines import put, rewrite
from tvm_tile.device import find_device
from tvm_tile.tile.coded.few_vectors import CodedTile

H100 = find_device("nvidia/h100")


@pytest.fixture(scope="module")
def records() -> list[MeasuredTile]:
    return read(_RESULTS / TILES, "nvidia/h100")


def test_the_records_are_of_all_tiles_of_the_products_and_right(
    records: list[MeasuredTile],
) -> None:
    found = by_product(records)
    assert {(p.vectors, p.rows, p.depth) for p in found} == set(PRODUCTS[:5])  # as time was up
    assert len(records) == 174 == sum(map(len, found.values()))
    assert all(one.us > floor_us(one.product, H100) for one in records)


def test_the_committed_page_is_that_of_the_records(
    records: list[MeasuredTile], tmp_path: Path
) -> None:
    rewrite(tmp_path / TILES, records)
    assert main(["--device", "nvidia/h100", "--results", str(tmp_path), "--report"]) == 0
    written = (tmp_path / PAGE).read_text(encoding="utf-8")
    assert written == (_RESULTS / PAGE).read_text(encoding="utf-8")
    assert written.count("\n| 1") == len(by_product(records))


def test_a_wrong_tile_has_no_time_and_is_told(
    records: list[MeasuredTile], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = records[:40]
    fastest = min(few, key=lambda one: one.us)
    for error in (None, 0.5):
        wrong = [replace(one, error=error) if one == fastest else one for one in few]
        assert fastest not in by_product(wrong)[fastest.product]
        assert "1 tiles were wrong" in page(wrong, H100)
        rewrite(tmp_path / TILES, wrong)
        assert read(tmp_path / TILES, "nvidia/h100") == sorted(wrong, key=lambda one: one.key)
        assert main(["--device", "nvidia/h100", "--results", str(tmp_path), "--report"]) == 1
    capsys.readouterr()


def test_records_are_kept_device_by_device(records: list[MeasuredTile], tmp_path: Path) -> None:
    path = tmp_path / TILES
    first, second = records[0], replace(records[0], device="nvidia/h200")
    again = replace(first, us=1.0)
    for one in (first, second, again):
        put(path, read_all(path), one)
    assert read(path, "nvidia/h100") == [again]
    assert read(path, "nvidia/h200") == [second]


def test_without_records_or_a_gpu_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--results", str(tmp_path), "--report"]) == 2
    assert "nothing of nvidia/h100" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_tiles_are_told_for_people() -> None:
    tile = CodedTile(8, 2, 4, run=16, step=128, grid=64, shared_bytes=0)
    assert tile.describe() == (
        "128 rows a block, 8 parts of the sum, 64 rows a warp, loads of 16 bytes of each"
    )
