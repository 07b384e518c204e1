"""Fits of the model of time find the numbers again with which measurements were made."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tvm_tile.calibrate.fit import (
    fit_times,
    fitted_record,
    numbers_of,
    predictions,
    quality,
    with_numbers,
)
from tvm_tile.calibrate.samples import Samples, TileSample
from tvm_tile.device import Device, find_device
from tvm_tile.device.record import from_json, to_json
from tvm_tile.errors import CalibrationError, InstallationError
from tvm_tile.tile.time import ALONE, AMID, Part, Unit, Work

H200 = find_device("nvidia/h200")
SCENES = (ALONE, AMID)


def work(random: np.random.Generator, unit: Unit, blocks: int) -> Work:
    """A kernel that loads, multiplies and stores; the more blocks, the less each does."""

    def drawn(most: float) -> float:
        return float(most ** random.uniform())

    load = Part(fills=drawn(1e5), moves=drawn(100), wavefronts=drawn(500), loads=1, barriers=1)
    step = Part(
        repeats=drawn(3e4) / blocks + 1,
        fills=drawn(2e4),
        operations=drawn(1000),
        moves=drawn(100),
        wavefronts=drawn(500),
        flops=0.0 if unit is Unit.CORES else drawn(1e7),
        loads=random.integers(2).item(),
        barriers=random.integers(3).item(),
        exchanges=random.integers(9).item(),
        steps=random.integers(9).item(),
        arrivals=random.integers(2).item(),
        ahead=random.integers(1, 4).item(),
    )
    store = Part(stores=drawn(1e5), moves=drawn(100), exchanges=random.integers(9).item())
    dtype = "" if unit is Unit.CORES else "float16"
    resident, warps = random.integers(1, 5).item(), 2 ** random.integers(6).item()
    moved = drawn(1e8), drawn(1e7)
    return Work(
        blocks=blocks, resident=resident, warps=warps, parts=(load, step, store), read=moved[0],
        written=moved[1], unit=unit, dtype=dtype,
    )  # fmt: skip


def measured(true: Device, noise: float = 0.0, functions: int = 60, seed: int = 1) -> Samples:
    """What a GPU would measure whose numbers are those of ``true``."""
    random, found = np.random.default_rng(seed), list[TileSample]()
    for number in range(functions):
        unit = (Unit.CORES, Unit.WARP, Unit.GROUP)[number % 3]
        for rank in range(6):
            works = tuple(
                work(random, unit, 2 ** random.integers(12).item())
                for _ in range(1 + (number % 7 == 0))
            )
            tile = TileSample(f"f{number}", "mma", rank, f"{rank}", 1.0, works, cold=1.0, warm=1.0)
            cold, warm = (
                predictions([tile], true, scene).item() * np.exp(noise * random.standard_normal())
                for scene in SCENES
            )
            found.append(replace(tile, cold=float(cold), warm=float(warm)))
    return Samples("a GPU", "2026-11-28", tuple(found))


def other(device: Device, seed: int) -> Device:
    """The device with every number of its chip up to a half larger, or a third smaller, and shares
    of at most one."""
    random, numbers = np.random.default_rng(seed), numbers_of(device.times.chip)
    values = {
        name: value * float(np.exp(random.uniform(-0.4, 0.4))) for name, value in numbers.items()
    }
    values |= {name: min(1.0, values[name]) for name in values if name.endswith("_share")}
    chip = with_numbers(device.times.chip, values)
    return replace(device, times=replace(device.times, chip=chip))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_fit_predicts_what_it_has_not_seen(seed: int) -> None:
    true = other(H200, seed)
    functions = list(measured(true).functions.values())
    known, held = functions[::2], functions[1::2]
    fitted = fit_times(H200, known)
    for scene in SCENES:
        before, after = (quality(held, device, scene) for device in (H200, fitted))
        assert after.error < 0.03 < 0.05 < before.error
        assert after.bias == pytest.approx(1, abs=0.02)
        assert after.regret - 1 <= max(1e-3, 0.3 * (before.regret - 1))
    for name in ("cold_start_cycles", "start_cycles"):
        assert numbers_of(fitted.times.chip)[name] == pytest.approx(
            numbers_of(true.times.chip)[name], rel=0.1
        )
    assert replace(fitted.times, chip=H200.times.chip) == H200.times


def test_what_the_samples_say_nothing_of_stays_as_it_was() -> None:
    samples = measured(other(H200, 3))
    own = [tiles for tiles in samples.functions.values() if tiles[0].works[0].unit is Unit.CORES]
    before, after = numbers_of(H200.times.chip), numbers_of(fit_times(H200, own).times.chip)
    assert before.keys() == after.keys()
    kept = {name for name in before if after[name] == pytest.approx(before[name])}
    unknown = {"meeting_cycles", "cluster_share", *(name for name in before if "_unit." in name)}
    whole = {name for name in before if name.endswith("_share") and before[name] == 1}
    assert unknown <= kept <= unknown | whole  # no share of a rate grows above all of it


def test_a_record_says_what_its_numbers_were_fitted_to_and_how_well_they_do() -> None:
    samples = measured(other(H200, 5), noise=0.03, functions=24)
    silent = replace(samples.tiles[0], function="silent", works=())
    fitted = fitted_record(H200, replace(samples, tiles=(*samples.tiles, silent)))
    assert from_json(to_json(fitted)) == fitted
    origin, functions = fitted.times.chip.origin, list(samples.functions.values())
    assert origin.startswith("fitted on a GPU, 2026-11-28, to 144 tiles of 24 functions; ")
    halves = [[f for i, f in enumerate(functions) if i // 2 % 2 == half] for half in (0, 1)]
    known = fit_times(H200, halves[0])
    for words, scene in (("alone", ALONE), ("amid others", AMID)):
        assert f"{words}, {quality(halves[1], known, scene).describe()}" in origin
    assert replace(fitted.times, chip=H200.times.chip) == H200.times
    estimated = replace(H200, name="nvidia/h300")
    assert estimated.is_estimated
    assert not fitted_record(estimated, samples).is_estimated


def test_too_few_functions_are_refused() -> None:
    with pytest.raises(CalibrationError, match="three functions or more"):
        fitted_record(H200, measured(H200, functions=2))


def test_the_regret_is_that_of_the_tile_with_the_least_predicted_time() -> None:
    (own,) = measured(H200, functions=1).functions.values()
    chosen = int(np.argmin(predictions(own, H200, AMID)))
    slower = [replace(tile, warm=tile.warm * (1.5 if i == chosen else 1.0)) for i, tile in
              enumerate(own)]  # fmt: skip
    found = quality([slower], H200, AMID)
    fastest = min(tile.warm for tile in slower)
    assert found.worst == pytest.approx(slower[chosen].warm / fastest)
    assert found.regret == pytest.approx(found.worst)
    assert quality([slower], H200, ALONE).worst == 1


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    samples, path = measured(H200, functions=3), tmp_path / "samples.tiles.json"
    samples.write(path)
    assert Samples.read(path) == samples


@pytest.mark.parametrize(
    "text", ["", "{}", "3", '{"gpu": 1, "date": ""}', '{"gpu": "", "date": ""}\n{}', "[" * 10**5]
)
def test_what_is_no_file_of_samples_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "samples.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CalibrationError, match="calibrate --fit"):
        Samples.read(path)
    with pytest.raises(CalibrationError, match="calibrate --fit"):
        Samples.read(tmp_path / "missing.json")


def test_without_scipy_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(InstallationError, match="needs SciPy"):
        fit_times(H200, ())
