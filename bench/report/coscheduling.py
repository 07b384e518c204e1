"""What co-scheduling is worth: ours beside ours with each kernel launched by itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.record import Record
from bench.report.data import NO_COSCHEDULE, Row, Suite
from bench.report.markdown import join, number, plain, ratio, table
from bench.report.tables import timing

_NOTE = (
    "Models compiled by us twice: with each kernel a launch of its own in a CUDA graph (without), "
    "and with small kernels put into persistent ones where our model predicts less time (with). "
    "× is without over with; predicted are the sums of our model's times."
)
# A gain below this is no gain: runs of the same program differ by as much.
_GAIN = 1.02
_HEADER = [
    *("model", "dtype", "batch", "ms without", "ms with", "×"),
    *("predicted ms without", "predicted ms with", "predicted ×"),
]


@dataclass(frozen=True, slots=True)
class Pair:
    """A model at one batch size, without and with co-scheduling."""

    row: Row
    apart: Record
    together: Record

    @property
    def measured(self) -> float | None:
        """How many times faster it is with; None unless both are right."""
        before, after = self.apart, self.together
        if not (before.is_right and after.is_right and before.median_ms and after.median_ms):
            return None
        return before.median_ms / after.median_ms

    @property
    def predicted(self) -> float | None:
        """The same as our model says; None where it has no time for some kernel."""
        before, after = self.apart.predicted_ms, self.together.predicted_ms
        return before / after if before and after else None


@dataclass(frozen=True, slots=True)
class Sweep:
    """A model over batch sizes, ascending."""

    workload: str
    dtype: str
    pairs: tuple[Pair, ...]

    @property
    def measured(self) -> tuple[tuple[int, float], ...]:
        """(Batch size, how many times faster), where known."""
        return tuple((p.row.batch or 1, p.measured) for p in self.pairs if p.measured)

    @property
    def predicted(self) -> tuple[tuple[int, float], ...]:
        """The same as our model says."""
        return tuple((p.row.batch or 1, p.predicted) for p in self.pairs if p.predicted)


def sweeps(suite: Suite) -> tuple[Sweep, ...]:
    """Models that were measured at several batch sizes, with and without."""
    found: dict[tuple[str, str], list[Pair]] = {}
    for pair in _pairs(suite):
        found.setdefault((pair.row.workload, pair.row.dtype), []).append(pair)
    ordered = {
        key: tuple(sorted(own, key=lambda p: p.row.batch or 1)) for key, own in found.items()
    }
    return tuple(Sweep(*key, own) for key, own in ordered.items() if len(own) > 1)


def section(suite: Suite) -> str:
    """A row for each model and batch size; empty where none was measured without."""
    rows = [_cells(pair) for pair in _pairs(suite)]
    if not rows:
        return ""
    ends = "\n".join(f"* {plain(s.workload)}, {s.dtype}: {_end(s)}" for s in sweeps(suite))
    return join("### What co-scheduling is worth", _NOTE, table(_HEADER, rows, text=2), ends)


def last_paying(points: Iterable[tuple[int, float]]) -> int | None:
    """The largest batch size before the first at which nothing is gained.

    Args:
        points: (batch size, how many times faster), ascending.

    Returns:
        None where nothing is gained at the first.
    """
    last = None
    for batch, gain in points:
        if gain < _GAIN:
            break
        last = batch
    return last


def _pairs(suite: Suite) -> Sequence[Pair]:
    pairs = []
    for row in suite.rows:
        apart = next((r for c, r in row.cells.items() if c.system == NO_COSCHEDULE), None)
        together = next((row.cells[c] for c in suite.ours if c in row.cells), None)
        if apart is not None and together is not None:
            pairs.append(Pair(row, apart, together))
    return pairs


def _cells(pair: Pair) -> list[str]:
    records = (pair.apart, pair.together)
    times = [timing(r) if r.is_right else f"*{plain(r.status, 32)}*" for r in records]
    batch = "" if pair.row.batch is None else str(pair.row.batch)
    return [
        *(plain(pair.row.workload), pair.row.dtype, batch, *times, ratio(pair.measured)),
        *(number(record.predicted_ms) for record in records),
        ratio(pair.predicted),
    ]


def _end(sweep: Sweep) -> str:
    """Such as ``"pays up to batch 16 as measured, up to batch 4 as predicted"``."""
    ends = [
        f"{_up_to(points)} as {how}"
        for points, how in ((sweep.measured, "measured"), (sweep.predicted, "predicted"))
        if points
    ]
    return "pays " + ", ".join(ends) if ends else "not known"


def _up_to(points: Sequence[tuple[int, float]]) -> str:
    last = last_paying(points)
    if last is None:
        return "at no batch size"
    return "at all batch sizes" if last == points[-1][0] else f"up to batch {last}"
