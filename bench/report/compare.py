"""The figures of the summaries. Only results that are right enter; see :class:`Row`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.report.data import Column, Row

CLOSE = 1.10


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ours against one other system over some workloads.

    Attributes:
        count: workloads that both got right; the rest does not count.
        mean: geometric mean of the speed-ups.
        faster: share of the workloads on which ours is faster.
        close: share on which it is not more than 10 % slower, the faster ones among them.
    """

    count: int
    mean: float
    faster: float
    close: float


def compare(rows: Iterable[Row], ours: Column, other: Column) -> Comparison | None:
    """None where no workload was right in both."""
    ratios = [ratio for row in rows if (ratio := row.speed_up(ours, other)) is not None]
    if not ratios:
        return None
    return Comparison(
        count=len(ratios),
        mean=geometric_mean(ratios),
        faster=sum(ratio > 1 for ratio in ratios) / len(ratios),
        close=sum(ratio * CLOSE >= 1 for ratio in ratios) / len(ratios),
    )


def fractions(rows: Iterable[Row], column: Column) -> list[float]:
    """Of the floor, one for each workload that was right."""
    return [value for row in rows if (value := row.fraction(column)) is not None]


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers, at least one."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


@dataclass(frozen=True, slots=True)
class Compilation:
    """Seconds from the model to ready to run: medians and largest.

    Attributes:
        count: workloads.
        median: of all of it.
        longest: of all of it.
        schedule: median and longest of our own part; None for others.
        compiler: median and longest of NVRTC's part; None for others.
        jobs: most workloads compiled at once.
    """

    count: int
    median: float
    longest: float
    schedule: tuple[float, float] | None
    compiler: tuple[float, float] | None
    jobs: int


def compilation(rows: Iterable[Row], column: Column) -> Compilation | None:
    """None where nothing was compiled."""
    cells = [row.cells[column] for row in rows if row.ms(column) is not None]
    own = [record for record in cells if record.compile_s is not None]
    if not own:
        return None
    total = [r.compile_s or 0.0 for r in own]
    split = [(r.schedule_s, (r.compile_s or 0.0) - r.schedule_s) for r in own if r.schedule_s]
    parts = [(statistics.median(part), max(part)) for part in zip(*split, strict=True)]
    schedule, compiler = parts if parts else (None, None)
    jobs = max(r.jobs for r in own)
    return Compilation(len(own), statistics.median(total), max(total), schedule, compiler, jobs)
