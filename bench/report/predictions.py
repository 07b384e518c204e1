"""Were times predicted? Ours as predicted beside ours as measured, of every suite.

A front is of candidates that one search could choose from: of a family and a batch. What they are
worth is not known without training, so FLOPs stand for it: on a front are those than which none
takes less time and has as many FLOPs. Whoever trusts predictions takes the predicted front, and for
each network of the measured one the fastest on it with as many FLOPs: how much longer that takes,
as measured, is how far the fronts are apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from bench import suites
from bench.record import Record
from bench.report.data import Row, Suite
from bench.report.markdown import join, percent, plain, table

SHARES = (0.10, 0.15, 0.20)
_FEWEST = 4  # fewer have no order worth a number

_NOTE = (
    "What our model says that a run takes, beside what it took: right results, without fallbacks. "
    "The error is of the measured time; *rank correlation* is Spearman's."
)
_FRONT_NOTE = (
    "Networks of one search and batch size, by time and FLOPs, which stand here for what a network "
    "is worth. *Fronts* are those than which none takes less time and has as many FLOPs. *Longer* "
    "is how much longer than a network of the measured front the fastest one of the predicted "
    "front with as many FLOPs takes, as measured."
)


@dataclass(frozen=True, slots=True)
class Guess:
    """A workload as predicted and as measured, milliseconds."""

    predicted: float
    measured: float
    flops: float

    @property
    def error(self) -> float:
        """How far off, of the measured time."""
        return abs(self.predicted / self.measured - 1)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Of several guesses.

    Attributes:
        correlation: Spearman's, of the ranks; NaN where all of either kind are equal.
        within: the shares with errors of at most ``SHARES``.
        median: of the errors.
    """

    correlation: float
    within: tuple[float, ...]
    median: float


def guesses(records: Iterable[Record]) -> list[Guess]:
    """Those that are right and predicted."""
    return [
        Guess(record.predicted_ms, record.median_ms, record.flops or 0.0)
        for record in records
        if record.is_right and record.predicted_ms and record.median_ms
    ]


def accuracy(found: Sequence[Guess]) -> Accuracy:
    """Of at least two."""
    errors = [each.error for each in found]
    within = tuple(sum(error <= share for error in errors) / len(errors) for share in SHARES)
    ranks = rank_correlation([g.predicted for g in found], [g.measured for g in found])
    return Accuracy(ranks, within, statistics.median(errors))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks; equal values share the mean of theirs."""
    one, other = (_ranks(values) - (len(values) - 1) / 2 for values in (first, second))
    scale = float(np.sqrt((one @ one) * (other @ other)))
    return float(one @ other) / scale if scale else float("nan")


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    return (before + (counts - 1) / 2)[place]


def front(found: Iterable[Guess], seconds: Callable[[Guess], float]) -> list[Guess]:
    """Those than which none takes less time and has as many FLOPs; most FLOPs first."""
    kept: list[Guess] = []
    for each in sorted(found, key=lambda guess: (-guess.flops, seconds(guess))):
        if not kept or seconds(each) < seconds(kept[-1]):
            kept.append(each)
    return kept


def longer(found: Sequence[Guess]) -> list[float]:
    """For each of the measured front how much longer the choice from the predicted front takes."""
    trusted = front(found, lambda guess: guess.predicted)
    return [
        min(g.measured for g in trusted if g.flops >= best.flops) / best.measured - 1
        for best in front(found, lambda guess: guess.measured)
    ]


_FIGURES = ("rank correlation", *(f"within {percent(share)}" for share in SHARES), "median error")


def section(found: Iterable[Suite]) -> str:
    """A row for each suite and dtype; empty where nothing was predicted."""
    rows = [
        [suite.name, dtype, _gpus(records), *_figures(guesses(records))]
        for suite in found
        for dtype in suite.dtypes
        if len(guesses(records := _ours(suite, suite.of_dtype(dtype)))) >= _FEWEST
    ]
    body = table(["suite", "dtype", "GPU", "workloads", *_FIGURES], rows, text=3)
    return join("## How well times are predicted", _NOTE, body) if body else ""


def fronts(suite: Suite) -> str:
    """A row for each family and batch size of a search; empty for other suites."""
    if suite.name not in suites.names() or not suites.is_search(suite.name):
        return ""
    found = {
        key: own
        for key in sorted({(row.family, row.batch or 1) for row in suite.rows})
        if len(own := _of(suite, *key)) >= _FEWEST
    }
    rows = [
        [plain(family), str(batch), *_figures(own), *_distance(longer(own))]
        for (family, batch), own in found.items()
    ]
    apart = [share for own in found.values() for share in longer(own)]
    everything = [guess for own in found.values() for guess in own]
    if rows:
        rows.append(["**all**", "", *_figures(everything), *_distance(apart)])
    header = ["family", "batch", "networks", *_FIGURES, "on the front", "longer, mean", "worst"]
    body = table(header, rows)
    return join("### Candidates as predicted", _FRONT_NOTE, body) if body else ""


def _of(suite: Suite, family: str, batch: int) -> list[Guess]:
    rows = [row for row in suite.rows if (row.family, row.batch or 1) == (family, batch)]
    return guesses(_ours(suite, rows))


def _ours(suite: Suite, rows: Iterable[Row]) -> list[Record]:
    """Of ours as it is meant to be used."""
    first = suite.ours[:1]
    return [row.cells[column] for row in rows for column in first if column in row.cells]


def _gpus(records: Iterable[Record]) -> str:
    return ", ".join(sorted({plain(record.gpu) for record in records}))


def _figures(found: Sequence[Guess]) -> list[str]:
    figures = accuracy(found)
    shares = [percent(share) for share in figures.within]
    return [str(len(found)), f"{figures.correlation:.3f}", *shares, percent(figures.median, 1)]


def _distance(apart: Sequence[float]) -> list[str]:
    return [str(len(apart)), percent(statistics.fmean(apart), 1), percent(max(apart), 1)]
