"""Measured times of runs, kernel by kernel, beside the predictions, as data."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm_tile.report.activities import Activity, ActivityKind, Shares, shares_of
from tvm_tile.report.compiled import KernelReport, ModelReport
from tvm_tile.report.limits import Bottleneck
from tvm_tile.report.samples import interquartile_range
from tvm_tile.report.symbols import function_of, schedule_of
from tvm_tile.report.veu_times import VeuTimes


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """A kernel of a model: what all calls of it in a run took.

    Attributes:
        name: name in the report; for a kernel that the report does not know, its symbol.
        report: report of the kernel; None for one that is none of the model's functions.
        calls: calls in a run, the median; a call may be several launches.
        seconds: the median of the runs.
        spread: interquartile range of the runs, seconds.
        predicted: predicted seconds for as many calls; None where there is no prediction.
        limit: least seconds for as many calls, at the bandwidth or peak of the device; None where
            that is not known.
        bound: bottleneck that takes most of the measured time; None where that is not known.
    """

    name: str
    report: KernelReport | None
    calls: int
    seconds: float
    spread: float
    predicted: float | None
    limit: float | None
    bound: Bottleneck | None

    @property
    def bytes_per_second(self) -> float | None:
        """The predicted traffic over the measured time; None where the traffic is not known."""
        return self._rate(self.report.traffic) if self.report else None

    @property
    def flops_per_second(self) -> float | None:
        """The operations over the measured time; None where they are not known."""
        return self._rate(self.report.flops) if self.report else None

    def _rate(self, amount: float) -> float | None:
        """Amount a second, given that of a call; ``None`` without measured time."""
        return self.calls * amount / self.seconds if self.seconds else None


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """Some runs of a model, one after another, each from an idle device.

    Attributes:
        report: report of the model.
        source: name of the profiler that measured the activities.
        seconds: seconds of a run that nothing watched, the median.
        spread: its interquartile range, seconds.
        runs: activities of the device in each run that was watched, one at least.
        veus: when the rTasks of persistent kernels ran, if that was asked for.
    """

    report: ModelReport
    source: str
    seconds: float
    spread: float
    runs: tuple[tuple[Activity, ...], ...]
    veus: tuple[VeuTimes, ...] = ()

    @property
    def kernels(self) -> tuple[KernelProfile, ...]:
        """All kernels that ran, those that took most first."""
        return kernels_of(self.report, self.runs)

    @property
    def unseen(self) -> tuple[KernelReport, ...]:
        """Kernels of the report that did not run: of branches that were not taken, for example."""
        seen = {kernel.name for kernel in self.kernels}
        return tuple(kernel for kernel in self.report.kernels if kernel.name not in seen)

    @property
    def typical(self) -> tuple[Activity, ...]:
        """The run whose whole time is the median one."""
        ordered = sorted(self.runs, key=lambda run: shares_of(run).whole)
        return ordered[len(ordered) // 2]

    @property
    def watched_spread(self) -> float:
        """Interquartile range of the runs that were watched, seconds."""
        return interquartile_range([shares_of(run).whole for run in self.runs])

    @property
    def shares(self) -> Shares:
        """Parts of the typical run's time."""
        return shares_of(self.typical)


def kernels_of(
    report: ModelReport, runs: Sequence[Sequence[Activity]]
) -> tuple[KernelProfile, ...]:
    """Measured times of each kernel, those that took most first.

    Args:
        report: report of the model.
        runs: one at least.
    """
    known = {kernel.name: kernel for kernel in report.kernels}
    each = [_by_function(run, known) for run in runs]
    names = dict.fromkeys(name for run in each for name in run)
    found = (
        _measured(report, name, known.get(name), [run.get(name, (0, 0.0)) for run in each])
        for name in names
    )
    return tuple(sorted(found, key=lambda kernel: -kernel.seconds))


def _by_function(
    run: Sequence[Activity], known: Mapping[str, KernelReport]
) -> dict[str, tuple[int, float]]:
    """Calls of each function in a run, and the seconds of all of them."""
    launches = Counter(one.name for one in run if one.kind is ActivityKind.KERNEL)
    seconds: dict[str, float] = defaultdict(float)
    for one in run:
        if one.kind is ActivityKind.KERNEL:
            seconds[function_of(one.name, known)] += one.seconds
    # A function may have several schedules, of which a call takes one. It launches the kernels of
    # this schedule once, but for steps of a sort.
    calls: dict[str, dict[str, int]] = defaultdict(dict)
    for symbol, count in launches.items():
        own, schedule = calls[function_of(symbol, known)], schedule_of(symbol)
        own[schedule] = min(count, own.get(schedule, count))
    return {name: (sum(calls[name].values()), total) for name, total in seconds.items()}


def _measured(
    report: ModelReport,
    name: str,
    kernel: KernelReport | None,
    runs: Sequence[tuple[int, float]],
) -> KernelProfile:
    """The profile of a kernel, from its calls and seconds in each run."""
    samples = [seconds for _, seconds in runs]
    calls = round(statistics.median(count for count, _ in runs))
    seconds, spread = statistics.median(samples), interquartile_range(samples)
    if kernel is None or kernel.fallback or not calls:
        return KernelProfile(name, kernel, calls, seconds, spread, None, None, None)
    predicted = calls * kernel.run_seconds / kernel.calls
    limit = calls * report.least_seconds(kernel)
    bound = report.bound(kernel, seconds / calls)
    return KernelProfile(name, kernel, calls, seconds, spread, predicted, limit, bound)
