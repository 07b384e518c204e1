"""Tiles that calibration measures: the models know each of them again by what is written down."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tvm import tirx

from tvm_tile.calibrate.fit import PARAMETERS, fit_times
from tvm_tile.calibrate.samples import Samples, groups_of
from tvm_tile.calibrate.tiles import cases, convolution, measure_tiles, product, timer_on
from tvm_tile.cli import main
from tvm_tile.device import find_device
from tvm_tile.device.record import read_record
from tvm_tile.schedule.rule import Scheduled

H200 = find_device("nvidia/h200")
FAMILIES = {
    "nvidia/h200": {"wgmma", "mma", "matvec", "elementwise", "reduction"},
    "nvidia/a100": {"mma", "matvec", "elementwise", "reduction"},
    "amd/mi300x": {"matrix_cores", "matvec", "elementwise", "reduction"},
}
SMALL = (
    product("contraction", (64, 96), (96, 48), "float32"),
    convolution((1, 16, 14, 14), 32, 3, 1),
)


def as_predicted(_: tirx.PrimFunc, written: Mapping[int, Scheduled]) -> dict[int, float]:
    return {rank: done.seconds for rank, done in written.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_a_device_is_measured_and_predicted_again(name: str) -> None:
    device = find_device(name)
    own = [case for case in cases() if case.family != "contraction"]
    lines: list[str] = []
    samples = measure_tiles(device, as_predicted, own, progress=lines.append)
    assert {found.family for found in samples.families} == FAMILIES[name]
    assert len(lines) == len(own)
    for family in FAMILIES[name]:
        assert sum(found.family == family for found in samples.families) >= 2
    for group in groups_of(samples, device):
        assert group.predict(device) == pytest.approx(group.measured, rel=1e-12)


def test_contractions_are_predicted_again() -> None:
    samples = measure_tiles(H200, as_predicted, SMALL)
    assert len(samples.contractions) == len(SMALL)
    for group in groups_of(samples, H200):
        assert len(group.measured) > 10
        assert group.predict(H200) == pytest.approx(group.measured, rel=1e-12)


def test_all_contractions_that_calibration_names_are_for_cuda_cores() -> None:
    families = [case.family for case in cases()]
    assert {*families} == {*PARAMETERS}
    assert families.count("contraction") >= 20


def test_kernels_that_are_measured_to_start_later_move_the_start_alone() -> None:
    late = 3e-6

    def later(_: tirx.PrimFunc, written: Mapping[int, Scheduled]) -> dict[int, float]:
        return {rank: done.seconds + late for rank, done in written.items()}

    own = [case for case in cases() if case.family == "matvec"]
    fitted, (fit,) = fit_times(H200, groups_of(measure_tiles(H200, later, own), H200))
    cycles = H200.times.matvec.start_cycles + late * H200.clock
    assert fitted.times.matvec.start_cycles == pytest.approx(cycles, rel=0.02)
    assert fit.held_out is not None
    assert fit.held_out.error < 0.01
    origin = fitted.times.matvec.origin
    assert fitted.times.matvec == replace(
        H200.times.matvec, start_cycles=fitted.times.matvec.start_cycles, origin=origin
    )


def test_tiles_that_compute_the_same_are_timed_on_the_emulated_device() -> None:
    emulated = find_device("emulated")
    samples = measure_tiles(emulated, timer_on(emulated), SMALL[:1])
    (found,) = samples.contractions
    assert all(tile.seconds > 0 for tile in found.tiles)


@pytest.fixture
def _matvecs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [case for case in cases() if case.family == "matvec"]
    monkeypatch.setattr("tvm_tile.calibrate.tiles.cases", lambda: iter(own))
    monkeypatch.setattr("tvm_tile.calibrate.tiles.timer_on", lambda _: as_predicted)
    monkeypatch.setattr("tvm_tile.calibrate.calibrate", lambda *_: (H200, H200))


@pytest.mark.usefixtures("_matvecs_alone")
def test_the_command_writes_measured_tiles_and_a_fitted_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.json"
    assert main(["calibrate", "--fit", "-o", str(path)]) == 0
    fitted, told = read_record(path), capsys.readouterr().out
    assert fitted.times.matvec.origin.startswith("fitted on nvidia/h200 to")
    assert fitted.times.matvec.start_cycles == pytest.approx(H200.times.matvec.start_cycles)
    assert replace(fitted.times, matvec=H200.times.matvec) == H200.times
    assert "matvec, held out: predictions are off by 0.0%" in told
    start = f"{H200.times.matvec.start_cycles:.4g}"
    assert f"start_cycles: {start} ± 0%, before {start}" in told
    assert len(Samples.read(tmp_path / "mine.tiles.json").families) == 4


@pytest.mark.usefixtures("_matvecs_alone")
def test_without_scipy_the_command_says_so_before_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    monkeypatch.setattr("tvm_tile.calibrate.calibrate", lambda *_: pytest.fail("too late"))
    assert main(["calibrate", "--fit", "-o", str(tmp_path / "mine.json")]) == 4
    assert "needs SciPy" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
