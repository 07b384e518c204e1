"""Fraction of the floor for each family: bars are geometric means, dots the workloads."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report.compare import fractions, geometric_mean
from bench.report.data import Column, Row, Suite
from bench.report.plots.style import INK, Header, colours, gpu, save

_BAR = 0.2
_PLOT = 3.3
_BOTTOM = 0.4
_FEWEST = 16  # places for bars, so that a few are not as wide as the picture
# Where all fractions are below this, the axis ends before 1.
_SMALL = 0.6


def draw(suite: Suite, dtype: str, path: Path) -> Path | None:
    """Families in order of what ours reaches, systems in order of the tables."""
    rows = suite.of_dtype(dtype)
    columns = [column for column in suite.columns if fractions(rows, column)]
    if not columns:
        return None
    groups = _groups(rows, columns)
    bars = sum(len(own) for _, _, own in groups)
    width = min(max(_BAR * (bars + len(groups)) + 1.0, 9.5), 16.0)
    note = "Bars: geometric mean of the workloads that are right. Dots: the workloads. "
    note += "1 is the larger of FLOP / peak and bytes / copy bandwidth."
    title = f"{suite.name}: fraction of the floor, {dtype}, {gpu(suite)}"
    header = Header(title, note, columns, suite)
    top = header.height(width) + 0.15
    height = top + _PLOT + _BOTTOM
    figure = Figure(figsize=(width, height))
    header.draw(figure)
    place = (0.65 / width, _BOTTOM / height, 1 - 0.8 / width, _PLOT / height)
    _bars(figure.add_axes(place), groups, suite)
    return save(figure, path)


def _groups(
    rows: tuple[Row, ...], columns: list[Column]
) -> list[tuple[str, int, list[tuple[Column, list[float]]]]]:
    """(family, workloads, what each system with a result there reaches), the best first."""
    groups = []
    for family in sorted({row.family for row in rows}):
        own = [row for row in rows if row.family == family]
        reached = [(column, values) for column in columns if (values := fractions(own, column))]
        if reached:
            groups.append((family, len(own), reached))
    return sorted(groups, key=lambda group: -geometric_mean(group[2][0][1]))


def _bars(
    axes: Axes, groups: list[tuple[str, int, list[tuple[Column, list[float]]]]], suite: Suite
) -> None:
    paint = colours(suite.columns)
    place = 0.0
    ticks = []
    for family, count, reached in groups:
        ticks.append((place + (len(reached) - 1) / 2, f"{family} ({count})"))
        for column, values in reached:
            mean = geometric_mean(values)
            axes.bar(place, mean, width=0.86, color=paint[column], alpha=0.75)
            xs = [place + 0.6 * ((i + 0.5) / len(values) - 0.5) for i in range(len(values))]
            axes.scatter(xs, sorted(values), s=3, color=INK, alpha=0.55, linewidths=0, zorder=3)
            place += 1
        place += 1
    axes.axhline(1, color="black", linewidth=1)
    axes.set_xticks([x for x, _ in ticks], [name for _, name in ticks])
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")
    axes.set_xlim(-1, max(place - 1, _FEWEST))
    highest = max(max(values) for _, _, reached in groups for _, values in reached)
    axes.set_ylim(0, max(1.05, highest * 1.04) if highest > _SMALL else highest * 1.1)
    axes.set_ylabel("fraction of the floor")
