"""Fits of time models find the parameters again with which measurements were made."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from operators import conv2d, einsum, elementwise, matmul, row_sum

from tvm_tile.calibrate.fit import PARAMETERS, Fit, fit_times, quality
from tvm_tile.calibrate.samples import (
    ContractionSamples,
    ContractionTile,
    FamilySamples,
    Samples,
    groups_of,
    tile_seconds,
)
from tvm_tile.device import Device, find_device
from tvm_tile.device.record import from_json, to_json
from tvm_tile.errors import CalibrationError, InstallationError
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.construct import construct_contraction, contraction_predictor
from tvm_tile.tile.rtile import RProgram

H200 = find_device("nvidia/h200")
A100 = find_device("nvidia/a100")
RANKS = (*range(8), 12, 20, 35, 60, 100, 180)
CONTRACTIONS = (
    matmul(512, 512, 512),
    matmul(256, 256, 256),
    matmul(128, 768, 3072),
    matmul(64, 1000, 2048),
    conv2d(64, 64, 28, 3),
    conv2d(128, 128, 14, 3),
    conv2d(64, 256, 28, 1),
    conv2d(256, 512, 7, 3),
)
FAMILIES = {
    "wgmma": [einsum("mk", "nk", "mn", m=m, n=m, k=512) for m in (128, 512)],
    "mma": [einsum("mk", "nk", "mn", m=m, n=m, k=512) for m in (128, 512)],
    "matvec": [matmul(1, n, 4096) for n in (1024, 4096)],
    "elementwise": [elementwise(n, 64) for n in (16, 64)],
    "reduction": [row_sum(n, 64) for n in (64, 256)],
}


def programs(operator: Operator) -> list[RProgram]:
    plans = construct_contraction(operator, H200, max(RANKS) + 1)
    return [plans[rank] for rank in RANKS if rank < len(plans)]


@pytest.fixture(scope="module")
def tiles() -> dict[Operator, list[RProgram]]:
    return {operator: programs(operator) for operator in CONTRACTIONS}


def measured(
    true: Device, tiles: dict[Operator, list[RProgram]], noise: Callable[[int], np.ndarray]
) -> Samples:
    """What a GPU would measure whose parameters are those of ``true``."""
    contractions = []
    for operator, own in tiles.items():
        seconds = contraction_predictor(own, true)(true) * noise(len(own))
        pairs = zip(own, seconds.tolist(), strict=True)
        contractions.append(
            ContractionSamples(operator, tuple(ContractionTile.of(*pair) for pair in pairs))
        )
    families = []
    for family, operators in FAMILIES.items():
        for operator in operators:
            found = tuple(tile_seconds(family, operator, true).items())[:6]
            families.append(FamilySamples(family, operator, found))
    return Samples("a GPU", "2026-11-24", tuple(contractions), tuple(families))


def exactly(count: int) -> np.ndarray:
    return np.ones(count)


def other(device: Device, seed: int) -> Device:
    """The device with every fitted parameter up to a half larger, or a third smaller."""
    random = np.random.default_rng(seed)
    times = device.times
    for family, names in PARAMETERS.items():
        own = getattr(times, family)
        if own is not None:
            factors = dict(zip(names, np.exp(random.uniform(-0.4, 0.4, len(names))), strict=True))
            values = {name: getattr(own, name) * factor for name, factor in factors.items()}
            times = replace(times, **{family: replace(own, **values)})
    return replace(device, times=times)


def values(fits: Sequence[Fit]) -> dict[tuple[str, str], float]:
    return {(fit.family, name): value for fit in fits for name, value, _ in fit.values}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fit_finds_the_parameters_again(seed: int, tiles: Any) -> None:
    true = other(H200, seed)
    fitted, fits = fit_times(H200, groups_of(measured(true, tiles, exactly), H200))
    assert {fit.family for fit in fits} == {"contraction", *FAMILIES}
    for (family, name), value in values(fits).items():
        assert value == pytest.approx(getattr(getattr(true.times, family), name), rel=0.03)
        assert value == getattr(getattr(fitted.times, family), name)
    for fit in fits:
        assert fit.held_out is not None
        assert fit.held_out.error < 0.005
        assert fit.held_out.most_regret < 0.005


def test_with_noise_a_fit_is_better_than_no_fit_on_operators_that_it_has_not_seen(
    tiles: Any,
) -> None:
    true, random = other(H200, 4), np.random.default_rng(4)
    samples = measured(true, tiles, lambda count: np.exp(0.03 * random.standard_normal(count)))
    groups = [g for g in groups_of(samples, H200) if g.family == "contraction"]
    _, (fit,) = fit_times(H200, groups)
    assert fit.held_out is not None
    assert fit.held_out.error < 0.04 < quality(groups[1::2], H200).error
    errors = {name: error for name, _, error in fit.values}
    assert all(error > 0 for error in errors.values())
    # Nearly all that small products take is their start; hardly anything tells of copies.
    assert errors["start_cycles"] < 0.05 < errors["copy_slots"]


def test_a_record_keeps_what_was_fitted_and_how_well(tiles: Any) -> None:
    fitted, _ = fit_times(H200, groups_of(measured(other(H200, 5), tiles, exactly), H200))
    assert from_json(to_json(fitted)) == fitted
    origin = fitted.times.contraction.origin
    assert origin.startswith("fitted on nvidia/h200 to 112 measured tiles: of what was held out")
    assert "start_cycles 0%" in origin
    assert fitted.times.sort == H200.times.sort


def test_families_that_were_not_measured_keep_their_parameters() -> None:
    assert fit_times(A100, ()) == (A100, ())


def test_samples_are_read_as_they_were_written(tmp_path: Path, tiles: Any) -> None:
    samples = measured(H200, tiles, exactly)
    path = tmp_path / "samples.json"
    samples.write(path)
    assert Samples.read(path) == samples


@pytest.mark.parametrize("text", ["", "{}", '{"gpu": 1}', "[" * 10**5])
def test_what_is_no_file_of_samples_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CalibrationError, match="calibrate --fit"):
        Samples.read(path)
    with pytest.raises(CalibrationError, match="calibrate --fit"):
        Samples.read(tmp_path / "missing.json")


def test_the_regret_is_that_of_the_tile_with_the_least_predicted_time(tiles: Any) -> None:
    group, *_ = groups_of(measured(H200, tiles, exactly), H200)
    chosen = int(np.argmin(group.predict(H200)))
    slower = group.measured.copy()
    slower[chosen] *= 1.5
    fastest = min(np.delete(slower, chosen).min(), slower[chosen])
    found = quality([replace(group, measured=slower)], H200)
    assert found.most_regret == pytest.approx(slower[chosen] / fastest - 1)
    assert found.mean_regret == found.most_regret > 0


def test_without_scipy_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tiles: Any) -> None:
    groups = groups_of(measured(H200, tiles, exactly), H200)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(InstallationError, match="needs SciPy"):
        fit_times(H200, groups)
