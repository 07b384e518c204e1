"""What was found of decoders' steps: each system's time beside the floor, its tokens and bits."""

from __future__ import annotations

from bench.record import Record
from bench.report.data import Suite, column_of
from bench.report.markdown import join, number, plain, power, ratio, table

_LEGEND = (
    "Microseconds of a step: *alone* from an idle device, launches included; *chained* behind "
    "others, whose tokens it takes on the device. The floor: weights and cache, read at "
    "the bandwidth of the device record for reading; *of floor* is of the chained time. "
    "*Error* is of the logits, relative to those in float32: PyTorch's own has the element type's. "
    "*Tokens*: of the greedy steps of the model in float32, given its tokens, those in which the "
    "same one follows. *Differ*: of calls of one step, those with any bit that is another."
)


def section(suite: Suite) -> str:
    """A row for each system's result with a decoder's step; empty where the suite has none."""
    rows = [
        _row(suite, record)
        for row in suite.rows
        for record in row.cells.values()
        if record.is_right and record.steps
    ]
    header = ["workload", "system", "batch", "floor", "alone", "chained", "of floor", "error"]
    body = table([*header, "tokens", "differ", "compile s"], rows, text=2)
    return join("### Steps", _LEGEND, body) if rows else ""


def _row(suite: Suite, record: Record) -> list[str]:
    floor = None
    if record.bytes and record.read_bandwidth:
        floor = record.bytes / record.read_bandwidth * 1e3
    return [
        plain(record.workload),
        suite.label(column_of(record)),
        str(record.batch),
        _microseconds(floor),
        _microseconds(record.median_ms),
        _microseconds(record.chained_ms),
        ratio(floor / record.chained_ms if floor and record.chained_ms else None),
        power(record.error),
        f"{record.same_tokens} of {record.steps}",
        f"{record.differing_calls} of {record.calls}",
        number(record.compile_s),
    ]


def _microseconds(ms: float | None) -> str:
    return "" if ms is None else f"{ms * 1e3:.0f}"
