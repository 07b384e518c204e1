"""The benchmark of open extents: which extents it takes, and what it makes of their times."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.lines import append
from bench.open_shapes import record as records
from bench.open_shapes.models import MODELS
from bench.open_shapes.points import points
from bench.open_shapes.record import Compilation, Point, Provenance
from bench.open_shapes.report import page, write
from bench.open_shapes.summary import Summary, summarize

_ORIGIN = Provenance("a GPU", "1.2", "torch 3", "abc", "python", "2026-01-01")


def _point(extent: int, system: str, ms: float, variant: str = "") -> Point:
    return Point("m", system, variant, extent, "ok", ms, ms, ms, 15, 0.0, 1e-3, provenance=_ORIGIN)


def _summary(*given: Point, made: tuple[Compilation, ...] = ()) -> Summary:
    return summarize("m", given, made)


@pytest.mark.parametrize(("low", "high"), [(1, 512), (1, 4096), (1, 64), (2, 512), (3, 5)])
@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_points_are_different_and_begin_with_the_ends(low: int, high: int, count: int) -> None:
    chosen = points(low, high, count, seed=1)
    assert len(set(chosen)) == len(chosen) == min(count, high - low + 1)
    assert chosen[:2] == (low, high)[:count]
    assert all(low <= extent <= high for extent in chosen)
    assert chosen == points(low, high, 2 * count, seed=1)[:count] or count // 4 == 0 or count >= 8


def test_points_hold_powers_their_neighbours_primes_and_random_extents() -> None:
    chosen = set(points(1, 512, 64, seed=1))
    powers = {1 << exponent for exponent in range(10)}
    assert powers <= chosen
    assert {power + 1 for power in powers} - {513} <= chosen
    assert {power - 1 for power in powers} - {0} <= chosen
    assert chosen != set(points(1, 512, 64, seed=2))


def test_few_points_are_spread() -> None:
    chosen = sorted(points(1, 4096, 12, seed=1))
    assert any(8 <= extent <= 128 for extent in chosen)
    assert any(1000 <= extent <= 4000 for extent in chosen)


def test_inputs_are_padded_to_powers_of_two_or_the_bound() -> None:
    model = replace(MODELS["resnet50"], high=48)
    assert [model.padded_extent(n) for n in (1, 2, 3, 5, 16, 17, 33, 48)] == [
        *(1, 2, 4, 8, 16, 32, 48, 48)
    ]
    assert model.padded_extents() == (1, 2, 4, 8, 16, 32, 48)


def test_ratios_are_of_points_where_both_are_right() -> None:
    wrong = replace(_point(3, "open", 1.0), status="wrong: error above 1.0e-03")
    found = _summary(
        *(_point(1, "open", 1.05), _point(1, "static", 1.0)),
        *(_point(2, "open", 3.0), _point(2, "static", 2.0)),
        *(wrong, _point(3, "static", 10.0)),
        _point(4, "open", 1.0),
    )
    assert found.ratios("open", "static") == pytest.approx({1: 1.05, 2: 1.5})
    assert found.share_within(1.10) == 0.5
    assert found.worst == (2, 1.5)
    assert found.wrong == (wrong,)


def test_dynamic_is_the_fastest_of_its_right_ways_at_each_point() -> None:
    wrong = replace(_point(1, "dynamic", 0.1, "c"), status="wrong")
    found = _summary(
        *(_point(1, "open", 1.0), _point(1, "dynamic", 4.0, "a"), _point(1, "dynamic", 2.0, "b")),
        *(_point(2, "open", 1.0), _point(2, "dynamic", 8.0, "a"), _point(2, "dynamic", 9.0, "b")),
        wrong,
    )
    assert [row.variants["dynamic"] for row in found.rows] == ["b", "a"]
    assert found.speed_up("dynamic") == pytest.approx(4.0)  # the geometric mean of 2 and 8


def test_as_fast_as_padded_is_not_faster() -> None:
    given = [_point(n, "padded", ms) for n, ms in ((1, 1.0), (2, 2.0), (3, 3.0), (4, 4.0))]
    found = _summary(*given, *(_point(n, "open", 2.0) for n in (1, 2, 3, 4)))
    assert found.share_faster("padded") == 0.5


def test_compiling_is_compared_with_the_median_and_without_what_was_cached() -> None:
    def made(system: str, extent: int, seconds: float) -> Compilation:
        return Compilation("m", system, "", extent, "ok", seconds, 5, 0)

    static = [made("static", n, s) for n, s in ((1, 2.0), (2, 10.0), (3, 4.0))]
    cached = replace(made("static", 4, 0.1), is_cached=True)
    found = _summary(made=(made("open", 8, 12.0), *static, cached))
    assert found.compile_ratio == 3.0
    assert (found.kernels("open"), found.kernels("static")) == (5, 20)
    refused = replace(made("open", 8, 1.0), status="failed: no")
    assert _summary(made=(refused, *static)).compile_ratio is None
    assert _summary(made=(refused,)).refused == (refused,)


def test_what_calls_compiled_is_counted() -> None:
    calls = [
        replace(_point(1, "dynamic", 1.0, "a"), compiled=1, first_call_s=3.0),
        replace(_point(2, "dynamic", 1.0, "a"), compiled=0, first_call_s=0.5),
        *(replace(_point(n, "open", 1.0), first_call_s=s) for n, s in ((1, 2.0), (2, 0.1))),
    ]
    found = _summary(*calls)
    assert found.compiled == {("dynamic", "a"): 1, ("open", ""): 0}
    assert found.recompiling_s["dynamic", "a"] == 3.0
    assert found.slowest_first_s == 0.1  # the first of all loads the model


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "points.jsonl"
    first, second = _point(1, "open", 1.0), _point(2, "open", 1.0)
    append(path, second)
    path.write_text(path.read_text() + json.dumps({"model": "m"})[:5])  # a run was killed
    append(path, first)
    append(path, replace(second, median_ms=3.0))
    found = records.read(path, Point)
    assert list(found.values()) == [replace(second, median_ms=3.0), first]
    records.tidy(path, Point)
    assert len(path.read_text().splitlines()) == 2


def test_the_page_tells_of_what_is_wrong_and_of_what_is_missing() -> None:
    wrong = replace(_point(3, "open", 1.0), status="wrong: error above 1.0e-03", error=0.5)
    refused = Compilation("m", "open", "", 8, "failed: DynamicShapeError: no", 1.0)
    text = page([_summary(wrong, _point(3, "static", 2.0), made=(refused,))], [_ORIGIN])
    assert "| m | open | 3 | wrong: error above 1.0e-03 | 5e-01 |" in text
    assert "| m | open | 8 | failed: DynamicShapeError: no |  |" in text
    assert "| 3 |  | 2.000 |  |  |  |  |  |" in text


def test_page_and_picture_are_written(tmp_path: Path) -> None:
    for extent in (1, 7, 64):
        for number, system in enumerate(records.SYSTEMS):
            append(tmp_path / records.POINTS, _point(extent, system, 1.0 + number))
    assert [path.name for path in write(tmp_path)] == ["open_shapes.md", "open_shapes.png"]
    assert "a GPU, driver 1.2" in (tmp_path / "open_shapes.md").read_text()


@pytest.mark.parametrize("status", ["ok", "failed: no"])
def test_a_picture_needs_no_open_model_and_no_right_one(status: str, tmp_path: Path) -> None:
    for extent in (1, 3):
        point = replace(_point(extent, "static", 1.0), status=status)
        append(tmp_path / records.POINTS, point)
    assert len(write(tmp_path)) == (2 if status == "ok" else 1)


def test_without_records_there_is_no_picture(tmp_path: Path) -> None:
    assert [path.name for path in write(tmp_path)] == ["open_shapes.md"]
