"""Time over extents: a row of two pictures for each model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.open_shapes.record import SYSTEMS
from bench.open_shapes.summary import WANTED, WORST, Summary
from bench.report.plots.style import INK, save, styled, titles

_COLOURS = {"open": "#0072B2", "static": "#222222", "padded": "#E69F00", "dynamic": "#D55E00"}
_MARKS = {"open": "o", "static": ".", "padded": "s", "dynamic": "D"}
_WIDTH, _ROW, _TOP, _GAP = 9.5, 2.4, 0.8, 0.75
_LEFT, _BETWEEN, _RIGHT = 0.65, 0.95, 0.15


def draw(summaries: Sequence[Summary], path: Path, gpus: Sequence[str]) -> Path | None:
    """Loss beside our compilations for known extents, and milliseconds of all."""
    shown = [summary for summary in summaries if any(row.ms for row in summary.rows)]
    if not shown:
        return None
    with styled():
        height = _TOP + len(shown) * (_ROW + _GAP)
        figure = Figure(figsize=(_WIDTH, height))
        note = "Left: time of one compilation for all extents over that of one for each. "
        note += f"Dashed: {WANTED} and {WORST}. Right: milliseconds."
        titles(figure, f"Open extents, {', '.join(gpus)}", note)
        wide = (_WIDTH - _LEFT - _BETWEEN - _RIGHT) / 2 / _WIDTH
        for number, summary in enumerate(shown):
            bottom = 1 - (_TOP + (number + 1) * _ROW + number * _GAP) / height
            second = (_LEFT + _BETWEEN) / _WIDTH + wide
            tall = (_ROW - 0.15) / height
            _loss(figure.add_axes((_LEFT / _WIDTH, bottom, wide, tall)), summary)
            _milliseconds(figure.add_axes((second, bottom, wide, tall)), summary)
        return save(figure, path)


def _loss(axes: Axes, summary: Summary) -> None:
    ratios = summary.ratios("open", "static")
    extents = [row.extent for row in summary.rows]
    values = [ratios.get(extent, float("nan")) for extent in extents]  # a gap where one is wrong
    axes.plot(extents, values, color=_COLOURS["open"], marker="o", markersize=3, linewidth=0.8)
    axes.set_xlim(extents[0] / 1.1, extents[-1] * 1.1)
    axes.axhline(1, color=INK, linewidth=1)
    for limit in (WANTED, WORST):
        axes.axhline(limit, color=INK, linewidth=0.8, linestyle="--")
    axes.set_ylim(bottom=0)
    axes.set_title(summary.model)
    axes.set_ylabel("open / static")
    _extents(axes)


def _milliseconds(axes: Axes, summary: Summary) -> None:
    for system in SYSTEMS:
        points = [(row.extent, row.ms[system]) for row in summary.rows if system in row.ms]
        if points:
            axes.plot(*zip(*points, strict=True), color=_COLOURS[system], label=system,
                      marker=_MARKS[system], markersize=3, linewidth=0.8)  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if _is_labelled(value) else "")
    axes.set_ylabel("milliseconds")
    axes.legend(loc="upper left")
    _extents(axes)


def _is_labelled(value: float) -> bool:
    """Whether a tick within a decade is 2 or 5 of it."""
    return f"{value:e}"[0] in "25"


def _extents(axes: Axes) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("extent")
