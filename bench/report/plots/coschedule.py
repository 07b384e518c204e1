"""Where co-scheduling stops paying: time without over time with, against the batch size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bench.report.coscheduling import Sweep, sweeps
from bench.report.data import Suite
from bench.report.plots.style import INK, SPARE, gpu, save, titles

_WIDTH, _PLOT = 9.5, 3.6
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.65, 0.2, 0.75, 0.5
_MARKS = "osD^vPX"


def draw(suite: Suite, path: Path) -> Path | None:
    """A colour for each model: a line of what was measured, and a dashed one of what our model
    says."""
    found = [sweep for sweep in sweeps(suite) if sweep.measured or sweep.predicted]
    if not found:
        return None
    height = _TOP + _PLOT + _BOTTOM
    figure = Figure(figsize=(_WIDTH, height))
    note = "Time with each kernel launched by itself over time with co-scheduling. "
    note += "Above the line it pays. Solid: measured; dashed: predicted."
    titles(figure, f"{suite.name}: where co-scheduling stops paying, {gpu(suite)}", note)
    place = (_LEFT / _WIDTH, _BOTTOM / height, 1 - (_LEFT + _RIGHT) / _WIDTH, _PLOT / height)
    axes = figure.add_axes(place)
    for number, sweep in enumerate(found):
        _lines(axes, sweep, SPARE[number % len(SPARE)], _MARKS[number % len(_MARKS)])
    _batches(axes, found)
    axes.axhline(1, color="black", linewidth=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("times faster with co-scheduling")
    axes.legend(loc="upper right")
    return save(figure, path)


def _lines(axes: Axes, sweep: Sweep, colour: str, marker: str) -> None:
    label = f"{sweep.workload}, {sweep.dtype}"
    styles = (
        (sweep.measured, "-", colour, label),
        (sweep.predicted, "--", "white", "" if sweep.measured else f"{label} (predicted)"),
    )
    for points, line, fill, name in styles:
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, linestyle=line, marker=marker,
                      markerfacecolor=fill, label=name or None)  # fmt: skip


def _batches(axes: Axes, found: Sequence[Sweep]) -> None:
    """A logarithmic axis with a tick for each batch size."""
    sizes = sorted({batch for s in found for batch, _ in (*s.measured, *s.predicted)})
    axes.set_xscale("log")
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    axes.xaxis.set_major_locator(FixedLocator(sizes))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel("batch size", color=INK)
