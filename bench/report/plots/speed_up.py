"""Speed-up of ours for every workload: the bar is against the fastest peer, dots against each."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report.data import Column, Row, Suite, natural
from bench.report.plots.style import Header, colours, gpu, mark, ratio_axis, save

_ROW = 0.165
_GAP = 0.62
_FIRST_GAP = 0.35
_BOTTOM = 0.3
_PLOT = 3.6
_LETTER = 0.078
_MAX_COLUMNS = 3
_FASTER, _SLOWER = "#bcd6ee", "#e3d3c4"


def draw(suite: Suite, dtype: str, path: Path) -> Path | None:
    """A panel for each family, workloads sorted by the bar; log scale, a line at 1."""
    ours = next(iter(suite.ours), None)
    rows = suite.of_dtype(dtype)
    others = [c for c in suite.others if ours and any(r.speed_up(ours, c) for r in rows)]
    if ours is None or not others:
        return None
    panels = _panels(rows, ours, others)
    stacks = _stack(panels)
    note = f"How many times faster {ours} is than each system (marks) and than the fastest peer "
    note += "(bars). Log scale; right of the line ours is faster."
    title = f"{suite.name}: speed-up of {ours}, {dtype}, {gpu(suite)}"
    header = Header(title, note, others, suite)
    margins = [
        0.35 + _LETTER * max(len(row.name) for _, own in stack for row in own) for stack in stacks
    ]
    width = max(sum(margins) + len(stacks) * _PLOT + 0.2, 9.5)
    top = header.height(width) + _FIRST_GAP - _GAP
    tallest = max(sum(len(own) * _ROW + _GAP for _, own in stack) for stack in stacks)
    figure = Figure(figsize=(width, top + tallest + _BOTTOM))
    header.draw(figure)
    gains = [gain for row in rows for c in others if (gain := row.speed_up(ours, c))]
    limits = (min([*gains, 0.8]) / 1.12, max([*gains, 1.25]) * 1.12)
    plot_width = (width - 0.2 - sum(margins)) / len(stacks)
    left = -plot_width
    for margin, stack in zip(margins, stacks, strict=True):
        left += plot_width + margin
        down = top
        for family, own in stack:
            down += _GAP
            axes = _axes(figure, left, down, plot_width, len(own) * _ROW)
            _panel(axes, own, suite, ours, others)
            every = sum(row.family == family for row in rows)
            count = str(every) if every == len(own) else f"{len(own)} of {every}"
            axes.set_title(f"{family} ({count})", pad=4)
            ratio_axis(axes, *limits)
            down += len(own) * _ROW
    return save(figure, path)


def _panels(
    rows: tuple[Row, ...], ours: Column, others: list[Column]
) -> list[tuple[str, list[Row]]]:
    """Families with their comparable workloads, the best for ours first."""
    shown = [row for row in rows if any(row.speed_up(ours, c) for c in others)]
    shown.sort(key=lambda row: (-_hardest(row, ours, others), natural(row.name)))
    families = sorted({row.family for row in shown})
    return [(family, [row for row in shown if row.family == family]) for family in families]


def _hardest(row: Row, ours: Column, others: list[Column]) -> float:
    """The speed-up over the fastest peer, or where none is right over the fastest other."""
    peers = [gain for c in others if c.is_peer and (gain := row.speed_up(ours, c))]
    return min(peers or [gain for c in others if (gain := row.speed_up(ours, c))])


def _stack(panels: list[tuple[str, list[Row]]]) -> list[list[tuple[str, list[Row]]]]:
    """Panels in columns of about equal height, the largest first."""
    stacks: list[list[tuple[str, list[Row]]]] = [[] for _ in panels[:_MAX_COLUMNS]]
    heights = [0.0] * len(stacks)
    for panel in sorted(panels, key=lambda panel: -len(panel[1])):
        lowest = heights.index(min(heights))
        stacks[lowest].append(panel)
        heights[lowest] += len(panel[1]) * _ROW + _GAP
    return stacks


def _axes(figure: Figure, left: float, down: float, width: float, height: float) -> Axes:
    """Axes at a place in inches from the top left."""
    wide, high = figure.get_size_inches()
    bottom = high - down - height
    return figure.add_axes((left / wide, bottom / high, width / wide, height / high))


def _panel(axes: Axes, rows: list[Row], suite: Suite, ours: Column, others: list[Column]) -> None:
    paint = colours(suite.columns)
    for place, row in enumerate(rows):
        hardest = _hardest(row, ours, others)
        axes.plot([1, hardest], [place, place], color=_FASTER if hardest > 1 else _SLOWER,
                  linewidth=6, solid_capstyle="butt")  # fmt: skip
    for column in reversed(others):
        points = [(g, i) for i, row in enumerate(rows) if (g := row.speed_up(ours, column))]
        if points:
            xs, ys = zip(*points, strict=True)
            axes.scatter(xs, ys, s=19, color=paint[column], zorder=3,
                         marker=mark(column), edgecolors="white", linewidths=0.4)  # fmt: skip
    axes.axvline(1, color="black", linewidth=1)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), [row.name for row in rows], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
