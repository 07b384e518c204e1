"""Time to a kernel against the kernel's speed, for the operators that MetaSchedule tuned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.report.compare import geometric_mean
from bench.report.data import Column, Row, Suite
from bench.report.plots.style import INK, Header, colours, gpu, mark, ratio_axis, save

TUNED = Column("metaschedule", "")
_WIDTH, _PLOT = 9.5, 4.3
_LEFT, _RIGHT, _BOTTOM = 0.65, 0.2, 0.5


@dataclass(frozen=True, slots=True)
class Round:
    """Totals since tuning began, and the seconds that the best kernel so far takes."""

    trials: int
    seconds: float
    best_s: float


@dataclass(frozen=True, slots=True)
class History:
    """How the tuning of one operator went.

    Attributes:
        workload: its name in the suite.
        dtype: its dtype.
        rounds: in order; those before the first valid kernel left out.
    """

    workload: str
    dtype: str
    rounds: tuple[Round, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel: seconds to get it, and its speed relative to the fastest known."""

    seconds: float
    speed: float
    trials: int = 0


def read_histories(folder: Path) -> tuple[History, ...]:
    """Those of ``*.history.json``; a file that is not one is skipped."""
    found = (_history(path) for path in sorted(folder.glob("*.history.json")))
    return tuple(history for history in found if history is not None and history.rounds)


def _history(path: Path) -> History | None:
    """A file is an object of ``workload``, ``dtype`` and ``rounds``.

    Each round is an object of ``trials``, ``valid`` and ``seconds``, all since the start, and
    ``best_s``, the best kernel so far; a round without a valid kernel has no ``best_s``.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        rounds = tuple(
            Round(int(entry["trials"]), float(entry["seconds"]), float(entry["best_s"]))
            for entry in content["rounds"]
            if entry.get("best_s") and entry.get("seconds")
        )
        return History(str(content["workload"]), str(content["dtype"]), rounds)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def draw(suite: Suite, histories: tuple[History, ...], path: Path) -> Path | None:
    """Seconds on a log axis; 1 is the fastest kernel that any system has for the operator."""
    rows = [row for row in suite.rows if row.ms(TUNED)]
    points = {column: _points(rows, column) for column in suite.columns}
    shown = [column for column in suite.columns if points[column]]
    if not rows or not any(column.is_ours for column in shown):
        return None
    curves = [line for row in rows if (line := curve(row, histories))]
    dtypes = ", ".join(dict.fromkeys(row.dtype for row in rows))
    title = f"Compile time against speed, tuned operators of {suite.name} ({len(rows)}), {dtypes}"
    note = "Small marks: operators. Large marks: geometric means."
    if curves:
        note += " Lines: MetaSchedule's best so far, with the number of trials."
    header = Header(f"{title}, {gpu(suite)}", note, shown, suite)
    height = header.height(_WIDTH) + 0.1 + _PLOT + _BOTTOM
    figure = Figure(figsize=(_WIDTH, height))
    header.draw(figure)
    place = (_LEFT / _WIDTH, _BOTTOM / height, 1 - (_LEFT + _RIGHT) / _WIDTH, _PLOT / height)
    axes = figure.add_axes(place)
    paint = colours(suite.columns)
    _lines(axes, curves, paint.get(TUNED, INK))
    for column in reversed(shown):
        _scatter(axes, points[column], paint[column], mark(column))
    seconds = [p.seconds for own in (*points.values(), *curves) for p in own]
    ratio_axis(axes, min(seconds) / 1.5, max(seconds) * 1.5)
    axes.set_ylim(0, 1.06)
    axes.set_xlabel("seconds from the model to a kernel that is ready to run")
    axes.set_ylabel("speed relative to the fastest known")
    return save(figure, path)


def _lines(axes: Axes, curves: list[list[Point]], colour: str) -> None:
    """Each operator's line thin, the geometric mean of all thick with its numbers of trials."""
    for curve in curves:
        axes.plot([p.seconds for p in curve], [p.speed for p in curve], color=colour,
                  linewidth=0.8, alpha=0.5)  # fmt: skip
    means = mean_curve(curves)
    axes.plot([p.seconds for p in means], [p.speed for p in means], color=colour, linewidth=2.5,
              marker=".", markersize=9)  # fmt: skip
    for point in means:
        axes.annotate(str(point.trials), (point.seconds, point.speed), (-6, 4), fontsize=8.5,
                      textcoords="offset points", ha="right", color=INK, zorder=6)  # fmt: skip


def mean_curve(curves: list[list[Point]]) -> list[Point]:
    """Geometric means after as many trials as the first rounds have, twice as many, and so on.

    An operator whose search ended earlier stays at its last kernel.
    """
    if not curves:
        return []
    trials = max(curve[0].trials for curve in curves)
    last = max(curve[-1].trials for curve in curves)
    steps = []
    while 0 < trials < last:
        steps.append(trials)
        trials *= 2
    means = []
    for step in (*steps, last):
        points = [next((p for p in own if p.trials >= step), own[-1]) for own in curves]
        seconds = geometric_mean([p.seconds for p in points])
        means.append(Point(seconds, geometric_mean([p.speed for p in points]), step))
    return means


def _points(rows: list[Row], column: Column) -> list[Point]:
    points = []
    for row in rows:
        ms = row.ms(column)
        seconds = row.cells[column].compile_s if ms else None
        if ms and seconds:
            points.append(Point(seconds, _fastest_ms(row) / ms))
    return points


def curve(row: Row, histories: tuple[History, ...]) -> list[Point]:
    """The history on the bench's scale: its last kernel is the one that the bench measured."""
    ms = row.ms(TUNED)
    for history in histories:
        if (history.workload, history.dtype) == (row.workload, row.dtype) and ms:
            end = _fastest_ms(row) / ms * history.rounds[-1].best_s
            return [Point(r.seconds, end / r.best_s, r.trials) for r in history.rounds]
    return []


def _fastest_ms(row: Row) -> float:
    return min(ms for column in row.cells if (ms := row.ms(column)))


def _scatter(axes: Axes, points: list[Point], colour: str, marker: str) -> None:
    xs, ys = [p.seconds for p in points], [p.speed for p in points]
    axes.scatter(xs, ys, s=16, color=colour, marker=marker, alpha=0.6, linewidths=0, zorder=3)
    axes.scatter(geometric_mean(xs), geometric_mean(ys), s=130, color=colour, marker=marker,
                 edgecolors=INK, linewidths=1, zorder=5)  # fmt: skip
