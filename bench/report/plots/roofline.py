"""Roofline: what each workload reaches against what its FLOP per byte allow."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.record import Record
from bench.report.data import Column, Suite, column_of
from bench.report.plots.style import INK, Header, colours, gpu, mark, save

_SIDE = 4.6
_LEFT, _BOTTOM, _GAP = 0.8, 0.5, 0.85
_UNITS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def draw(suite: Suite, path: Path) -> Path | None:
    """A panel for each dtype, both axes logarithmic."""
    panels = {dtype: _of_dtype(suite, dtype) for dtype in suite.dtypes}
    panels = {dtype: records for dtype, records in panels.items() if records}
    if not panels:
        return None
    width = max(_LEFT + len(panels) * (_SIDE + _GAP), 9.5)
    drawn = {column_of(record) for records in panels.values() for record in records}
    columns = [column for column in suite.columns if column in drawn]
    note = "Each mark is a workload that is right. The roof: measured copy bandwidth and peak."
    header = Header(f"{suite.name}: roofline, {gpu(suite)}", note, columns, suite)
    height = header.height(width) + 0.4 + _SIDE + _BOTTOM
    figure = Figure(figsize=(width, height))
    header.draw(figure)
    for i, (dtype, records) in enumerate(panels.items()):
        left = _LEFT + i * (_SIDE + _GAP)
        place = (left / width, _BOTTOM / height, _SIDE / width, _SIDE / height)
        axes = figure.add_axes(place)
        _panel(axes, records, suite, columns)
        axes.set_title(dtype)
    return save(figure, path)


def _of_dtype(suite: Suite, dtype: str) -> list[Record]:
    return [
        record
        for row in suite.of_dtype(dtype)
        for record in row.cells.values()
        if record.is_right
        and record.median_ms
        and record.flops
        and record.bytes
        and record.peak_flops
        and record.copy_bandwidth
    ]


def _panel(axes: Axes, records: list[Record], suite: Suite, columns: Sequence[Column]) -> None:
    paint = colours(suite.columns)
    for column in reversed(columns):
        points = [_point(record) for record in records if column_of(record) == column]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.scatter(xs, ys, s=15, color=paint[column], alpha=0.8,
                         marker=mark(column), edgecolors="white", linewidths=0.3,
                         zorder=3)  # fmt: skip
    peak = statistics.median(record.peak_flops or 0.0 for record in records)
    bandwidth = statistics.median(record.copy_bandwidth or 0.0 for record in records)
    xs, ys = zip(*(_point(record) for record in records), strict=True)
    ridge = peak / bandwidth
    low, high = min(*(x / 2 for x in xs), ridge / 10), max(*xs, ridge) * 4
    bottom, top = min(ys) / 2, max(peak * 3, max(ys) * 1.5)
    axes.plot([low, ridge, high], [low * bandwidth, peak, peak], color=INK, linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(bottom, top)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(base=10, numticks=8))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: _unit(value)))
    axes.set_xlabel("FLOP / byte")
    axes.set_ylabel("FLOP / s")
    axes.text(high / 1.15, peak * 1.12, f"{_unit(peak)}FLOP/s", ha="right", color=INK)
    # The panel is square: the slope of the roof is the ratio of what the two axes span.
    slope = math.degrees(math.atan(math.log(high / low) / math.log(top / bottom)))
    middle = math.sqrt(low * ridge)
    axes.text(middle, middle * bandwidth * 1.15, f"{_unit(bandwidth)}B/s", ha="center",
              va="bottom", rotation=slope, rotation_mode="anchor", color=INK)  # fmt: skip


def _point(record: Record) -> tuple[float, float]:
    flops = record.flops or math.nan
    return flops / (record.bytes or math.nan), flops / (record.median_ms or math.nan) * 1e3


def _unit(value: float) -> str:
    """Such as ``"51 T"``; what is below a thousand has no prefix."""
    for scale, prefix in _UNITS:
        if value >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g}"
