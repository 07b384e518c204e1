"""Fit the numbers of the model of time to measured tiles, all of them at once.

Each tile was measured by itself, from a cold cache, and amid others; its kernels are described as
:class:`~tvm_tile.tile.time.Work`. The fit makes logarithms of predicted over measured times small,
of all tiles, and most of all differences between tiles of one function, by which tiles are chosen.
Half of the functions is held out. What says whether a fit is good is how the model does on these:
by how much it is wrong, and how much slower the tile that it would choose, of all rules', is than
the fastest one measured (the regret).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_tile.calibrate.samples import Samples, TileSample
from tvm_tile.device import Device
from tvm_tile.device.chip_times import ChipTimes, UnitTimes
from tvm_tile.errors import CalibrationError, InstallationError
from tvm_tile.tile.time import ALONE, AMID, Batch, Scene

Floats = npt.NDArray[np.float64]
# How sure the numbers from before the fit are: a standard deviation of their logarithms. What the
# samples say nothing of stays as it was.
_DOUBT = 1.0
# The search stays that near to the numbers before, as logarithms, and below that exponent: there
# only the longest time counts, and far above, powers of times are no floating-point numbers.
_FARTHEST, _STEEPEST = 4.0, 16.0
# Beside the difference to the function's other tiles, how much a tile's own error counts.
_OWN = 0.6
# Tiles much slower than the function's best count less, by this power of their ratio: no model
# need know by how much a bad choice is bad.
_FADING = 1.0
# No share of a rate that was measured, or of a bound in a data sheet, is above one.
_MOST_SHARE = 1.0


@dataclass(frozen=True, slots=True)
class Quality:
    """How well the model does on some functions, in one scene.

    Attributes:
        functions: number of them.
        bias: geometric mean of predicted over measured seconds.
        error: standard deviation of the logarithm of that.
        regret: by how much the tile of the least predicted time, of all rules, is slower than the
            fastest measured one, as a ratio: the geometric mean of the functions.
        worst: the largest of these ratios.
    """

    functions: int
    bias: float
    error: float
    regret: float
    worst: float

    def describe(self) -> str:
        """A line for people."""
        off = f"predicted over measured is {self.bias:.2f}, off by {math.expm1(self.error):.0%}"
        chosen = f"{self.regret - 1:.1%} slower than the fastest, {self.worst - 1:.0%} at most"
        return f"{off}; the first choice of {self.functions} functions is {chosen}"


def fit_times(
    device: Device, functions: Sequence[Sequence[TileSample]], rounds: int = 60
) -> Device:
    """The device with the numbers of its chip fitted to measured tiles.

    Args:
        device: device that was measured; its numbers are where the search starts.
        functions: the tiles of each function; those that do not say what they do are left out.
        rounds: evaluations of the search, at most.

    Raises:
        InstallationError: SciPy is missing.
    """
    require_scipy()
    from scipy.optimize import least_squares

    told = [[tile for tile in own if tile.works] for own in functions]
    problem = _Problem.of(device, [own for own in told if own])
    before = problem.start

    def residuals(point: Floats) -> Floats:
        return np.concatenate([problem.residuals(point), (point - before) / _DOUBT * 0.1])

    low, high = problem.bounds()
    start = np.clip(before, low, high)
    found = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=0.2, max_nfev=rounds
    )
    return problem.at(found.x)


def fitted_record(device: Device, samples: Samples) -> Device:
    """The device with the numbers of its chip fitted to all samples, and their origin in words.

    The origin says, too, how the model does on functions that it was not fitted to: for that, it
    is fitted to one half of them first, in which neighbours, a shape in two dtypes, are together.

    Raises:
        CalibrationError: too few functions have tiles that say what they do.
        InstallationError: SciPy is missing.
    """
    told = [own for own in samples.functions.values() if any(tile.works for tile in own)]
    known, held = ([own for i, own in enumerate(told) if i // 2 % 2 == half] for half in (0, 1))
    if not held:
        raise CalibrationError(
            "three functions or more must have tiles that say what they do",
            str(len(told)),
            "measure all cases with `tvm-tile calibrate --fit`",
        )
    of_half, fitted = fit_times(device, known), fit_times(device, told)
    found = [
        f"{words}, {quality(held, of_half, scene).describe()}"
        for words, scene in (("alone", ALONE), ("amid others", AMID))
    ]
    count = sum(1 for own in told for tile in own if tile.works)
    origin = (
        f"fitted on {samples.gpu}, {samples.date}, to {count} tiles of {len(told)} functions; "
        f"fitted to half of these, of the others: {'; '.join(found)}"
    )
    chip = replace(fitted.times.chip, origin=origin)
    return replace(fitted, times=replace(fitted.times, fitted_on=device.name, chip=chip))


def quality(functions: Sequence[Sequence[TileSample]], device: Device, scene: Scene) -> Quality:
    """How well the model of a device does on tiles that say what they do, in one scene."""
    errors, regrets = [], []
    for own in functions:
        told = [tile for tile in own if tile.works]
        if not told:
            continue
        predicted, measured = predictions(told, device, scene), _measured(told, scene)
        errors.append(np.log(predicted / measured))
        regrets.append(measured[int(np.argmin(predicted))] / measured.min())
    every = np.concatenate(errors)
    return Quality(
        len(regrets),
        float(np.exp(every.mean())),
        float(every.std()),
        float(np.exp(np.log(regrets).mean())),
        float(max(regrets)),
    )


def predictions(tiles: Sequence[TileSample], device: Device, scene: Scene) -> Floats:
    """Predicted seconds of tiles, shape (tiles,); each tile's kernels follow one another."""
    return _Kernels.of(tiles).seconds(device, scene)


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The kernels of tiles, one behind the other.

    Attributes:
        batch: all of them.
        starts: place of each tile's first one, shape (tiles,).
    """

    batch: Batch
    starts: npt.NDArray[np.int64]

    @classmethod
    def of(cls, tiles: Sequence[TileSample]) -> _Kernels:
        """The kernels of tiles that say what they do."""
        works = [work for tile in tiles for work in tile.works]
        starts = np.cumsum([0, *(len(tile.works) for tile in tiles[:-1])])
        return cls(Batch.of(works), starts)

    def seconds(self, device: Device, scene: Scene) -> Floats:
        """Predicted seconds of each tile, shape (tiles,)."""
        return np.asarray(np.add.reduceat(self.batch.seconds(device, scene), self.starts))


def _measured(tiles: Sequence[TileSample], scene: Scene) -> Floats:
    return np.array([tile.cold if scene == ALONE else tile.warm for tile in tiles])


@dataclass(frozen=True, slots=True)
class _Problem:
    """What is fitted: the chip's numbers as logarithms, and tiles.

    Attributes:
        device: the device whose numbers are changed.
        names: names of the numbers, those of matrix units with the unit's in front.
        start: their logarithms before the fit.
        tiles: all tiles, those of a function together.
        kernels: their kernels.
        functions: number of each tile's function, shape (tiles,).
    """

    device: Device
    names: tuple[str, ...]
    start: Floats
    tiles: tuple[TileSample, ...]
    kernels: _Kernels
    functions: npt.NDArray[np.int64]

    @classmethod
    def of(cls, device: Device, functions: Sequence[Sequence[TileSample]]) -> _Problem:
        """The problem of fitting a device to functions' tiles."""
        numbers = numbers_of(device.times.chip)
        tiles = tuple(tile for own in functions for tile in own)
        places = np.repeat(np.arange(len(functions)), [len(own) for own in functions])
        start, kernels = np.log(list(numbers.values())), _Kernels.of(tiles)
        return cls(device, tuple(numbers), start, tiles, kernels, places)

    def bounds(self) -> tuple[Floats, Floats]:
        """Logarithms that the numbers stay between."""
        low, high = self.start - _FARTHEST, self.start + _FARTHEST
        for kind, most in (("_share", _MOST_SHARE), ("_power", _STEEPEST)):
            own = [name.endswith(kind) for name in self.names]
            high = np.where(own, np.minimum(high, math.log(most)), high)
        return low, high

    def at(self, point: Floats) -> Device:
        """The device with other numbers."""
        values = dict(zip(self.names, np.exp(point).tolist(), strict=True))
        chip = with_numbers(self.device.times.chip, values)
        return replace(self.device, times=replace(self.device.times, chip=chip))

    def residuals(self, point: Floats) -> Floats:
        """Errors of all tiles in both scenes, and their differences within functions."""
        device, found = self.at(point), []
        for scene in (ALONE, AMID):
            measured = _measured(self.tiles, scene)
            errors = np.log(self.kernels.seconds(device, scene) / measured)
            least = np.full(self.functions[-1] + 1, np.inf)
            np.minimum.at(least, self.functions, measured)
            weights = (least[self.functions] / measured) ** _FADING
            total = np.bincount(self.functions, weights)
            mean = (np.bincount(self.functions, weights * errors) / total)[self.functions]
            found += [weights * (errors - mean), _OWN * weights * errors]
        return np.concatenate(found)


def numbers_of(chip: ChipTimes) -> dict[str, float]:
    """The numbers of a chip by name, those of its matrix units as ``unit.name``."""
    found: dict[str, float] = {}
    for field in fields(chip):
        value = getattr(chip, field.name)
        if isinstance(value, UnitTimes):
            found |= {f"{field.name}.{own.name}": getattr(value, own.name) for own in fields(value)}
        elif isinstance(value, float):
            found[field.name] = value
    return found


def with_numbers(chip: ChipTimes, values: Mapping[str, float]) -> ChipTimes:
    """A chip with other numbers, named as :func:`numbers_of` has them."""
    own: dict[str, Any] = {name: value for name, value in values.items() if "." not in name}
    for unit in {name.partition(".")[0] for name in values if "." in name}:
        inner = {
            name.partition(".")[2]: value
            for name, value in values.items()
            if name.startswith(f"{unit}.")
        }
        own[unit] = replace(getattr(chip, unit), **inner)
    return replace(chip, **own)


def require_scipy() -> None:
    """Check that fitting is possible here.

    Raises:
        InstallationError: SciPy is missing.
    """
    try:
        import scipy.optimize  # noqa: F401
    except ImportError as error:
        raise InstallationError(
            "fitting a device's times needs SciPy", str(error), "pip install 'tvm-tile[fit]'"
        ) from error
