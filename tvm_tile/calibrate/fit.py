"""Fit the parameters of time models to measured tiles, by least squares of log(predicted/measured).

Half of the operators is held out. What says whether a fit is good is how the model does on these:
by how much its predictions are wrong, and how much slower the tile that it would choose is than
the fastest one measured (the regret).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tvm_tile.calibrate.samples import Floats, TileGroup
from tvm_tile.device import Device
from tvm_tile.errors import InstallationError

# The parameters that are fitted, by kernel family: of contractions all, of others what a kernel
# takes however little there is to do.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "contraction": (
        "exposed_cycles",
        "barrier_cycles",
        "barrier_warp_cycles",
        "hiding_power",
        "start_cycles",
        "issue_share",
        "lost_slots",
        "wavefront_cycles",
        "cache_share",
        "store_share",
        "overlap_power",
        "copy_slots",
        "copy_stall_cycles",
    ),
    "wgmma": ("start_cycles",),
    "mma": ("start_cycles",),
    "matrix_cores": ("start_cycles",),
    "matvec": ("start_cycles",),
    "elementwise": ("block_cycles",),
    "reduction": ("round_trip_cycles",),
}
# How sure the parameters from before the fit are: a standard deviation of their logarithms. What
# the samples say nothing of stays as it was.
_DOUBT = 0.5
_LEAST_ERROR = 1e-4  # of log(predicted/measured), so that the search has a scale


@dataclass(frozen=True, slots=True)
class Quality:
    """How well a model does on some operators.

    Attributes:
        error: root mean square of log(predicted/measured).
        mean_regret: share by which the tile of the least predicted time is slower than the fastest
            measured one, the mean of the operators.
        most_regret: the largest of these.
    """

    error: float
    mean_regret: float
    most_regret: float

    def describe(self) -> str:
        """A line for people."""
        regret = f"{self.mean_regret:.1%} slower than the fastest, {self.most_regret:.1%} at most"
        return f"predictions are off by {math.expm1(self.error):.1%}, the first choice is {regret}"


@dataclass(frozen=True, slots=True)
class Fit:
    """The outcome for one kernel family.

    Attributes:
        family: a field of :class:`~tvm_tile.device.times.KernelTimes`.
        values: (parameter, fitted value, its relative standard error) triples.
        tiles: number of measured tiles, of both halves.
        fitted: how the model does on the operators it was fitted to.
        held_out: the same quality on the other operators; None where there is only one operator.
    """

    family: str
    values: tuple[tuple[str, float, float], ...]
    tiles: int
    fitted: Quality
    held_out: Quality | None

    def describe(self) -> str:
        """The origin that a record keeps: from what, how good, and how sure each number is."""
        sure = ", ".join(f"{name} {error:.0%}" for name, _, error in self.values)
        judged = self.held_out or self.fitted
        where = "of what was held out" if self.held_out else "of what it was fitted to"
        return f"{self.tiles} measured tiles: {where}, {judged.describe()}; errors: {sure}"


def fit_times(device: Device, groups: Sequence[TileGroup]) -> tuple[Device, tuple[Fit, ...]]:
    """The device with parameters fitted to measured tiles, one family after the other.

    Args:
        device: device that was measured; its times are where the search starts.
        groups: all operators'; families without any keep their parameters.

    Raises:
        InstallationError: SciPy is missing.
    """
    fits = []
    for family, names in PARAMETERS.items():
        own = [group for group in groups if group.family == family]
        if own:
            # Neighbours are alike: each half gets one of two.
            device, found = fit_family(device, family, names, own[::2], own[1::2])
            fits.append(found)
    return device, tuple(fits)


def fit_family(
    device: Device,
    family: str,
    names: Sequence[str],
    used: Sequence[TileGroup],
    held_out: Sequence[TileGroup] = (),
) -> tuple[Device, Fit]:
    """The device with some parameters of one family fitted.

    Args:
        device: device that was measured; its times are where the search starts.
        family: a field of :class:`~tvm_tile.device.times.KernelTimes` that is not ``None``.
        names: names of the parameters.
        used: operators that they are fitted to, one at least.
        held_out: others, which tell how good the fit is.

    Raises:
        InstallationError: SciPy is missing.
    """
    found = _fit(device, family, names, used, held_out)
    values = {name: value for name, value, _ in found.values}
    origin = f"fitted on {device.name} to {found.describe()}"
    return _with(device, family, values, origin), found


def _fit(
    device: Device,
    family: str,
    names: Sequence[str],
    used: Sequence[TileGroup],
    held_out: Sequence[TileGroup],
) -> Fit:
    """Fit parameters of a family to some groups, and say how well others are predicted."""
    before = np.log([getattr(getattr(device.times, family), name) for name in names])

    def at(point: Floats) -> Device:
        values = np.exp(point).tolist()
        return _with(device, family, dict(zip(names, values, strict=True)))

    def search(error: float, start: Floats) -> tuple[Floats, Floats]:
        def residuals(point: Floats) -> Floats:
            return np.concatenate([_errors(used, at(point)), error / _DOUBT * (point - before)])

        return _least_squares(residuals, start)

    # The first search tells how well the model can do at all, which weighs samples against doubt.
    point, _ = search(_LEAST_ERROR, before)
    point, spread = search(max(_LEAST_ERROR, quality(used, at(point)).error), point)
    fitted = at(point)
    return Fit(
        family,
        tuple(zip(names, np.exp(point).tolist(), spread.tolist(), strict=True)),
        sum(len(group.measured) for group in (*used, *held_out)),
        quality(used, fitted),
        quality(held_out, fitted) if held_out else None,
    )


def _least_squares(residuals: Callable[[Floats], Floats], start: Floats) -> tuple[Floats, Floats]:
    """The point of least squares, and the standard error of each of its numbers."""
    require_scipy()
    from scipy.optimize import least_squares

    found = least_squares(residuals, start)
    freedom = max(1, len(found.fun) - len(start))
    variance = 2 * found.cost / freedom
    covariance = np.linalg.pinv(found.jac.T @ found.jac) * variance
    return np.asarray(found.x), np.sqrt(np.diag(covariance))


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


def quality(groups: Sequence[TileGroup], device: Device) -> Quality:
    """How well the models of a device do on one operator or more."""
    errors = _errors(groups, device)
    regrets = []
    for group in groups:
        chosen = group.measured[int(np.argmin(group.predict(device)))]
        regrets.append(float(chosen / group.measured.min()) - 1)
    return Quality(
        float(np.sqrt(np.mean(np.square(errors)))), float(np.mean(regrets)), max(regrets)
    )


def _errors(groups: Sequence[TileGroup], device: Device) -> Floats:
    """Logarithms of predicted over measured times, of all tiles."""
    return np.concatenate([np.log(group.predict(device) / group.measured) for group in groups])


def _with(device: Device, family: str, values: dict[str, float], origin: str = "") -> Device:
    """The device with other parameters of a family."""
    times = getattr(device.times, family)
    changed = replace(times, **values, origin=origin or times.origin)
    return replace(device, times=replace(device.times, **{family: changed}))
