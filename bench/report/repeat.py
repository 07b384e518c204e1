"""Do two runs agree? Medians of equal keys, the second over the first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bench.record import Record
from bench.report.data import Column, Suite, column_of, column_place
from bench.report.markdown import join, percent, plain, ratio, table
from bench.report.tables import timing

# The share of workloads that the stated spread holds for.
SHARE = 95


@dataclass(frozen=True, slots=True)
class Pair:
    """One workload and system, measured right twice."""

    first: Record
    again: Record

    @property
    def ratio(self) -> float:
        """Again over first."""
        return (self.again.median_ms or math.nan) / (self.first.median_ms or math.nan)

    @property
    def difference(self) -> float:
        """How far apart, of the smaller of the two."""
        return max(self.ratio, 1 / self.ratio) - 1


@dataclass(frozen=True, slots=True)
class Spread:
    """Of the ratios of pairs.

    Attributes:
        count: pairs.
        median: of the ratios.
        low: 5th percentile.
        high: 95th percentile.
        worst: the ratio farthest from one.
        within: 95 % of the pairs differ by at most this share.
    """

    count: int
    median: float
    low: float
    high: float
    worst: float
    within: float


def pairs(suite: Suite) -> tuple[Pair, ...]:
    """What both runs have and got right."""
    again = {record.key: record for record in suite.again if record.is_right and record.median_ms}
    return tuple(
        Pair(record, again[record.key])
        for record in suite.records
        if record.is_right and record.median_ms and record.key in again
    )


def spread(found: Iterable[Pair]) -> Spread:
    """Of at least one pair."""
    own = list(found)
    ratios = [pair.ratio for pair in own]
    low, median, high = (float(value) for value in np.percentile(ratios, [5, 50, 95]))
    worst = max(own, key=lambda pair: pair.difference).ratio
    within = float(np.percentile([pair.difference for pair in own], SHARE))
    return Spread(len(own), median, low, high, worst, within)


def section(suite: Suite) -> str:
    """The spread of each system in words and numbers; empty without a second run."""
    found = pairs(suite)
    if not found:
        return ""
    whole = spread(found)
    dates = [", ".join(sorted({r.date for r in run})) for run in (suite.records, suite.again)]
    columns = sorted({column_of(pair.first) for pair in found}, key=column_place)
    rows = [
        [name, *_cells(spread(own))]
        for name, own in [*((suite.label(c), _of(found, c)) for c in columns), ("**all**", found)]
    ]
    header = ["system", "both right", "median", "5th percentile", "95th percentile", "worst"]
    header.append(f"{SHARE} % agree within")
    return join(
        f"**{SHARE} % of the medians agree within {percent(whole.within, 1)}**: the second run "
        f"({dates[1]}) over the first ({dates[0]}), {whole.count} medians.",
        table(header, rows),
        f"The other {100 - SHARE} % are at the end of [{suite.name}]({suite.name}.md).",
    )


def unlike(suite: Suite) -> str:
    """The medians that differ by more than the stated spread, the worst first."""
    found = pairs(suite)
    if not found:
        return ""
    within = spread(found).within
    outside = [pair for pair in found if pair.difference > within]
    outside.sort(key=lambda pair: -pair.difference)
    rows = [
        [
            plain(pair.first.workload),
            pair.first.dtype,
            "" if pair.first.batch is None else str(pair.first.batch),
            suite.label(column_of(pair.first)),
            timing(pair.first),
            timing(pair.again),
            ratio(pair.ratio),
        ]
        for pair in outside
    ]
    header = ["workload", "dtype", "batch", "system", "first, ms", "again, ms", "again / first"]
    body = table(header, rows, text=4)
    note = f"By more than {percent(within, 1)}; in brackets the interquartile range of each run."
    return join(note, body) if body else ""


def _cells(own: Spread) -> list[str]:
    ratios = (own.median, own.low, own.high, own.worst)
    return [str(own.count), *(f"{value:.3f}" for value in ratios), percent(own.within, 1)]


def _of(found: tuple[Pair, ...], column: Column) -> tuple[Pair, ...]:
    return tuple(pair for pair in found if column_of(pair.first) == column)
