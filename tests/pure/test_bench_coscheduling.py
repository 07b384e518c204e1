"""The report on co-scheduling: what it is worth, and where it stops paying."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.record import Record, append
from bench.report import coscheduling, main
from bench.report.data import Suite, suite
from bench.report.plots import coschedule
from bench.report.plots.style import styled

# Batch -> milliseconds measured and predicted, without and with.
TIMES = {1: (8.0, 2.0, 6.0, 2.0), 4: (9.0, 6.0, 6.0, 4.0), 16: (9.0, 10.0, 9.0, 6.0)}


def record(batch: int, system: str, variant: str, ms: float, predicted: float) -> Record:
    return Record(
        "rnn", "lstm", "rnn", "float32", batch, system, variant, "ok",
        median_ms=ms, iqr_ms=0.01, predicted_ms=predicted,
    )  # fmt: skip


RECORDS = [
    made
    for batch, (apart, together, apart_predicted, predicted) in TIMES.items()
    for made in (
        record(batch, "tvm_tile_no_coschedule", "", apart, apart_predicted),
        record(batch, "tvm_tile", "top1", together, predicted),
    )
]


def lines(found: Suite) -> list[list[str]]:
    text = coscheduling.section(found)
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| lstm")
    ]


def test_times_and_ratios_by_hand() -> None:
    first, _, last = lines(suite("rnn", RECORDS))
    assert first == [
        "lstm", "float32", "1", "8.00 (0.01)", "2.00 (0.01)", "4.00", "6.00", "2.00", "3.00",
    ]  # fmt: skip
    assert (last[2], last[5], last[8]) == ("16", "0.90", "1.50")


def test_it_says_where_it_stops_paying() -> None:
    text = coscheduling.section(suite("rnn", RECORDS))
    assert "pays up to batch 4 as measured, at all batch sizes as predicted" in text


@pytest.mark.parametrize(
    ("gains", "last"),
    [((2.0, 1.5, 0.9), 4), ((0.9, 1.5, 2.0), None), ((2.0, 1.0, 2.0), 1), ((2.0, 2.0, 1.1), 16)],
)
def test_the_last_batch_that_pays(gains: tuple[float, ...], last: int | None) -> None:
    assert coscheduling.last_paying(zip((1, 4, 16), gains, strict=True)) == last


def test_what_is_wrong_or_not_predicted_is_no_point() -> None:
    wrong = replace(RECORDS[1], status="wrong: error above 1.0e-03")
    unknown = replace(RECORDS[3], predicted_ms=None)
    (sweep,) = coscheduling.sweeps(suite("rnn", [RECORDS[0], wrong, RECORDS[2], unknown]))
    assert sweep.measured == ((4, 1.5),)
    assert sweep.predicted == ((1, 3.0),)


def test_one_batch_size_is_a_row_but_no_sweep(tmp_path: Path) -> None:
    once = suite("rnn", RECORDS[:2])
    assert len(lines(once)) == 1
    assert coscheduling.sweeps(once) == ()
    assert coschedule.draw(once, tmp_path / "none.png") is None


def test_nothing_without_the_system_that_has_it_off(tmp_path: Path) -> None:
    ours = suite("rnn", RECORDS[1::2])
    assert coscheduling.section(ours) == ""
    assert coschedule.draw(ours, tmp_path / "none.png") is None


def test_the_picture_has_a_line_for_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    figures = []
    monkeypatch.setattr(coschedule, "save", lambda figure, path: figures.append(figure) or path)
    with styled():
        coschedule.draw(suite("rnn", RECORDS), tmp_path / "rnn.png")
    (axes,) = figures[0].axes
    measured, predicted, one = axes.get_lines()
    assert list(measured.get_xdata()) == [1, 4, 16]
    assert list(measured.get_ydata()) == [4.0, 1.5, 0.9]
    assert list(predicted.get_ydata()) == [3.0, 1.5, 1.5]
    assert list(one.get_ydata()) == [1, 1]


def test_the_report_has_both(tmp_path: Path) -> None:
    append(tmp_path / "rnn.jsonl", RECORDS)
    names = {path.name for path in main(tmp_path)}
    assert "rnn_coschedule.png" in names
    text = (tmp_path / "rnn.md").read_text(encoding="utf-8")
    assert "### What co-scheduling is worth" in text
    assert "(rnn_coschedule.png)" in text
