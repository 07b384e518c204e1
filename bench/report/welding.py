"""What joining is worth: ours beside ours with stock fusion only, where memory is what limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.record import Record
from bench.report.compare import geometric_mean
from bench.report.data import UNFUSED, Row, Suite
from bench.report.markdown import join, number, plain, ratio, table
from bench.report.tables import timing
from bench.suites.models import MEMORY_BOUND
from bench.traffic.record import Traffic, whole_runs

_NOTE = (
    "Models that memory limits, compiled by us twice: with the groups of TVM's own fusion only "
    "(before), and with what we join (after). *Kernels* are different ones, *launches* those of "
    "one run; × is before over after. DRAM: measured by Nsight Compute over one run without CUDA "
    "graphs, see [traffic.md](traffic.md)."
)
_HEADER = [
    *("model", "dtype", "batch", "ms before", "ms after", "×", "kernels", "launches"),
    *("DRAM MB before", "DRAM MB after", "×"),
]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A model before and after; its traffic only where both were measured."""

    row: Row
    before: Record
    after: Record
    traffic: tuple[Traffic, Traffic] | None

    @property
    def speed_up(self) -> float | None:
        """None unless both are right."""
        columns = [
            c for r in (self.after, self.before) for c, v in self.row.cells.items() if v is r
        ]
        return self.row.speed_up(*columns)

    @property
    def saving(self) -> float | None:
        """Of bytes to and from memory."""
        if self.traffic is None:
            return None
        before, after = self.traffic
        return before.moved / after.moved


def section(suite: Suite, traffic: Sequence[Traffic]) -> str:
    """A row for each model; empty where none was measured without what we join."""
    pairs = [pair for row in suite.rows if (pair := _pair(suite, row, traffic)) is not None]
    if not pairs:
        return ""
    means = [
        *([""] * 4),
        ratio(_mean([pair.speed_up for pair in pairs])),
        *([""] * 4),
        ratio(_mean([pair.saving for pair in pairs])),
    ]
    rows = [*map(_cells, pairs), ["**geometric mean**", *means]]
    return join("### What joining is worth", _NOTE, table(_HEADER, rows, text=2))


def _pair(suite: Suite, row: Row, traffic: Sequence[Traffic]) -> _Pair | None:
    before = next((r for c, r in row.cells.items() if c.system == UNFUSED), None)
    after = next((row.cells[c] for c in suite.ours if c in row.cells), None)
    if row.workload not in MEMORY_BOUND or before is None or after is None:
        return None
    runs = whole_runs(traffic, (suite.name, row.workload, row.dtype, row.batch))
    both = [runs.get((r.system, r.variant)) for r in (before, after)]
    known = tuple(run for run in both if run is not None)
    return _Pair(row, before, after, (known[0], known[1]) if len(known) == 2 else None)


def _cells(pair: _Pair) -> list[str]:
    records = (pair.before, pair.after)
    kernels = " → ".join(str(r.kernels) for r in records if r.kernels is not None)
    launches = " → ".join(str(t.launches) for t in pair.traffic or ())
    moved = [number(t.moved / 1e6) for t in pair.traffic] if pair.traffic else ["", ""]
    times = [timing(r) if r.is_right else f"*{plain(r.status, 32)}*" for r in records]
    batch = "" if pair.row.batch is None else str(pair.row.batch)
    return [
        *(plain(pair.row.workload), pair.row.dtype, batch, *times, ratio(pair.speed_up)),
        *(kernels, launches, *moved, ratio(pair.saving)),
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value]
    return geometric_mean(known) if known else None
