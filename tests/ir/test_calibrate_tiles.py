"""Tiles that calibration measures: of every rule, and they say what they do."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tvm import tirx

from tvm_tile.calibrate.cases import Case
from tvm_tile.calibrate.fit import predictions
from tvm_tile.calibrate.samples import Samples
from tvm_tile.calibrate.tiles import (
    RANKS,
    Timed,
    Timer,
    all_cases,
    choices_to_measure,
    described,
    measure_tiles,
)
from tvm_tile.cli import main
from tvm_tile.device import Device, find_device
from tvm_tile.device.record import read_record
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.ranking import RULES, attempt
from tvm_tile.schedule.rule import Scheduled
from tvm_tile.tile.rules import CODED, COLUMN, MATRIX_CORES, WARP_ATTENTION
from tvm_tile.tile.time import ALONE, seconds_of

H200 = find_device("nvidia/h200")
CASES = {f"{case.name} {case.dtype}": case for case in all_cases()}
# Cases that all rules have tiles for, taken together.
OF_ALL_RULES = (
    "product 64x64x64 float16",
    "product 8x4096x4096 float16",
    "convolution 32 112 16 1/1 float32",
    "softmax (64, 64) float32",
    "sum of columns (1024, 256) float16",
    "permuted (1024, 1024) (1, 0) float16",
    "attention 12x128x128x64 float16",
    "attention 12x128x128x64 float32",
    "attention 12x1x256x64 float16",
    "inverted bottleneck 24 56 float16",
    "LSTM cell 1x128 float32",
)
FEW = [CASES[name] for name in (
    "sum of rows (64, 64) float16", "relu (64, 64) float16", "relu (64, 64) float32",
    "product 1x512x512 float32",
)]  # fmt: skip


def rules_of(case: Case) -> set[str]:
    """Names of the rules of which tiles are measured."""
    functions = case.functions(H200)
    return {choice.rule.name for f in functions for _, choice in choices_to_measure(f, H200)}


def timer(_: tirx.PrimFunc, written: Sequence[Scheduled]) -> Mapping[int, Timed]:
    """A GPU that takes as long as is predicted, on which the kernel at place 1 does not build."""
    seconds = {place: done.seconds for place, done in enumerate(written) if place != 1}
    return {place: Timed(own, own / 2) for place, own in seconds.items()}


@pytest.mark.bank(12)
@pytest.mark.parametrize("name", CASES)
def test_every_case_has_tiles_that_say_what_they_do(name: str) -> None:
    found = [
        pair for func in CASES[name].functions(H200) for pair in choices_to_measure(func, H200)
    ]
    assert found
    assert {rank for rank, _ in found} <= {*RANKS}
    assert all(choice.works for _, choice in found)


@pytest.mark.bank(20)
@pytest.mark.parametrize("name", CASES)
def test_one_model_prices_all_choices_and_what_is_written(name: str) -> None:
    for func in CASES[name].functions(H200):
        graph = extract(func)
        assert graph is not None
        scene = Task(func, graph, H200).scene
        for rank, choice in choices_to_measure(func, H200):
            assert choice.seconds == pytest.approx(seconds_of(choice.works, H200, scene).sum())
            done = attempt(choice) if rank == 0 else None
            assert done is None or done.seconds == pytest.approx(choice.seconds)


def test_names_tell_cases_apart() -> None:
    assert len(CASES) == len(list(all_cases()))


def test_tiles_of_every_rule_are_measured() -> None:
    rules = {finder.rule for finder in RULES} - {CODED, MATRIX_CORES} | {COLUMN, WARP_ATTENTION}
    found = set[str]().union(*(rules_of(CASES[name]) for name in OF_ALL_RULES))
    assert found == {rule.name for rule in rules}


def test_measured_tiles_are_kept_and_described_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    samples = measure_tiles(H200, timer, FEW, gpu="a GPU", date="today", progress=lines.append)
    assert (samples.gpu, samples.date, len(samples.functions)) == ("a GPU", "today", len(FEW))
    assert [line.partition(":")[0] for line in lines] == [f"{c.name}, {c.dtype}" for c in FEW]
    assert all(tile.cold == tile.predicted == 2 * tile.warm for tile in samples.tiles)
    samples.write(tmp_path / "of.tiles.json")
    read = Samples.read(tmp_path / "of.tiles.json")
    assert read == samples
    assert (predictions(read.tiles, H200, ALONE) == predictions(samples.tiles, H200, ALONE)).all()
    monkeypatch.setattr("tvm_tile.calibrate.tiles.all_cases", lambda: iter(FEW))
    silent = replace(samples, tiles=tuple(replace(tile, works=()) for tile in samples.tiles))
    assert described(silent, H200) == samples


def test_processes_can_share_the_cases() -> None:
    whole = measure_tiles(H200, timer, FEW)
    parts = [measure_tiles(H200, timer, FEW[n::2]).functions for n in range(2)]
    assert parts[0] | parts[1] == whole.functions


@contextmanager
def timer_on(_: Device) -> Iterator[Timer]:
    yield timer


@pytest.fixture
def _few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_tile.calibrate.tiles.all_cases", lambda: iter(FEW))
    monkeypatch.setattr("tvm_tile.calibrate.tiles.timer_on", timer_on)
    monkeypatch.setattr("tvm_tile.calibrate.calibrate", lambda *_: (H200, H200))


@pytest.mark.usefixtures("_few_cases")
def test_the_command_writes_measured_tiles_and_a_fitted_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    assert main(["calibrate", "--fit", "-o", str(path)]) == 0
    samples, fitted = Samples.read(tmp_path / "mine.tiles.json"), read_record(path)
    told = capsys.readouterr().out
    again = measure_tiles(H200, timer, FEW, gpu=samples.gpu, date=samples.date)
    assert replace(samples, origin="") == again
    assert H200.measured is not None
    assert H200.measured.driver in samples.origin
    assert (samples.gpu, samples.date) == (H200.measured.gpu, H200.measured.date)
    chip = fitted.times.chip
    assert chip.origin.startswith(f"fitted on {samples.gpu}, {samples.date}, to ")
    assert chip.origin in told
    before = H200.times.chip.cold_start_cycles
    assert f"cold_start_cycles: {chip.cold_start_cycles:.4g}, before {before:.4g}\n" in told
    assert replace(fitted, times=replace(fitted.times, chip=H200.times.chip)) == H200


@pytest.mark.usefixtures("_few_cases")
def test_without_scipy_the_command_says_so_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    monkeypatch.setattr("tvm_tile.calibrate.calibrate", lambda *_: pytest.fail("too late"))
    assert main(["calibrate", "--fit", "-o", str(tmp_path / "mine.json")]) == 4
    assert "needs SciPy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
