"""Predicted time over open extents as a drawing (SVG): what runs, beside the best tile at each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.graph.open_extents import Point
from tvm_tile.report.cover_report import CoverReport, ModelCover
from tvm_tile.report.screen import svg

# All in pixels.
_MARGIN, _LEFT, _TITLE, _LINE, _GAP = 16, 64, 24, 14, 22
_WIDTH, _HEIGHT = 960, 130  # of a picture
_STEPS = (1, 2, 5)  # of an axis, times powers of ten
_LEAST_SPAN = 2.5  # from the bottom of an axis to its top, which has one of the steps on it then
_ROOM = 1.05  # above and below the lines
_STYLE = """
  .at { font-size: 11px; text-anchor: middle; fill: #444 }
  .time { font-size: 11px; text-anchor: end; fill: #444 }
  .frame { fill: none; stroke: #444 }
  .tick { stroke: #444; stroke-width: 0.5; stroke-dasharray: 2 4 }
  .end { stroke: #444; stroke-dasharray: 6 4 }
  .runs, .best { fill: none; stroke-width: 2 }
  .runs { stroke: #1f5fa8 }
  .best { stroke: #b3261e; stroke-dasharray: 5 4 }
"""


@dataclass(frozen=True, slots=True)
class _Column:
    """Extents from those of the column on the left to its own, and what is predicted at these.

    Attributes:
        extents: its own.
        tile: number of the tile that runs; ``None`` for several kernels.
        seconds: predicted seconds of the tile that runs.
        best_seconds: predicted seconds of the best tile.
        told: text for who points at the column.
    """

    extents: Point
    tile: int | None
    seconds: float
    best_seconds: float
    told: str


@dataclass(frozen=True, slots=True)
class _Picture:
    """Data that one pair of lines is drawn from.

    Attributes:
        title: above it.
        names: names of the extents.
        columns: the least extents first, one or more.
    """

    title: str
    names: tuple[str, ...]
    columns: tuple[_Column, ...]

    @property
    def height(self) -> int:
        """The height of the picture with its title and its axes, in pixels."""
        return _TITLE + _HEIGHT + _LINE * len(self.names) + _GAP


def draw_cover(model: ModelCover, how: str) -> str:
    """An SVG with a picture of all kernels that have tiles by open extents, then one of each.

    A column is a point of the grid of extents, and stands for those between it and the next lower
    one. The solid line is what runs, the dashed one the best tile at each point, on a logarithmic
    axis; colours are tiles, and upright lines where one ends. To point at a column names its tiles.

    Args:
        model: model times of a report.
        how: times are ``"predicted"`` or ``"estimated"``.

    Returns:
        The text of an SVG file.
    """
    pictures = list(_pictures(model))
    title = f"Time over open extents, {how}, behind launches. Solid: tiles that run. "
    title += "Dashed: the best tile at each extent." if pictures else "No kernel has any."
    parts, top = [svg.text(_MARGIN, _MARGIN + _TITLE / 2, title)], _MARGIN + _TITLE
    for picture in pictures:
        parts += _drawn(picture, top)
        top += picture.height
    return svg.document(_LEFT + _WIDTH + 2 * _MARGIN, top + _MARGIN, _STYLE, parts)


def _pictures(model: ModelCover) -> Iterator[_Picture]:
    """The picture of all kernels together, then one of each."""
    names = tuple(symbol.name for symbol in model.symbols)
    columns = [
        _Column(time.extents, None, time.seconds, time.best_seconds, "") for time in model.times
    ]
    if columns:
        title = f"all of these kernels in a run: {_most(names, columns)}"
        yield _Picture(title, names, tuple(columns))
    for name, (cover, calls) in model.kernels.items():
        columns, names = list(_columns(cover)), model.names(cover)
        title = f"{name}, of {calls} calls one: {_most(names, columns)}"
        yield _Picture(title, names, tuple(columns))


def _columns(cover: CoverReport) -> Iterator[_Column]:
    """Columns of a kernel's picture, the least extents first."""
    for point in reversed(cover.points):
        runs = cover.tile_of(point)
        told = f"runs: {runs.rule}, {runs.tile}\nbest: {point.rule}, {point.tile}"
        yield _Column(point.bound, point.served_by, point.seconds, point.best_seconds, told)


def _most(names: Sequence[str], columns: Sequence[_Column]) -> str:
    """Words for the largest share of time that the tiles lose, and at which extents."""
    worst = max(columns, key=lambda column: column.seconds / column.best_seconds)
    lost = f"{100 * (worst.seconds / worst.best_seconds - 1):.1f} %"
    return f"{lost} lost at most, at {_list(names, worst.extents)}"


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis of seconds.

    Attributes:
        low: seconds at the bottom.
        high: seconds at the top.
        top: top of the axis, in pixels.
    """

    low: float
    high: float
    top: float

    @classmethod
    def of(cls, columns: Sequence[_Column], top: float) -> _Axis:
        """The axis that has all columns on it."""
        times = [time for column in columns for time in (column.seconds, column.best_seconds)]
        room = max(_ROOM, math.sqrt(_LEAST_SPAN * min(times) / max(times)))
        return cls(min(times) / room, max(times) * room, top)

    def y(self, seconds: float) -> float:
        """Height of a time, in pixels from the top."""
        share = math.log(seconds / self.low) / math.log(self.high / self.low)
        return self.top + _HEIGHT * (1 - share)

    def ticks(self) -> list[float]:
        """Round numbers of seconds on it, one or more."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)))
        values = (step * 10**decade for decade in decades for step in _STEPS)
        return [value for value in values if self.low <= value <= self.high]


def _drawn(picture: _Picture, top: int) -> Iterator[str]:
    """A picture below its title."""
    columns, wide = picture.columns, _WIDTH / len(picture.columns)
    left, first = _MARGIN + _LEFT, top + _TITLE
    axis = _Axis.of(columns, first)
    yield svg.text(left, top + _TITLE / 2, picture.title)
    for place, column in enumerate(columns):
        told = f"{_list(picture.names, column.extents)}\n{_times(column)}\n{column.told}"
        fill = "white" if column.tile is None else svg.colour(column.tile, 92)
        yield svg.box(left + place * wide, first, wide, _HEIGHT, fill=fill, told=told)
    for seconds in axis.ticks():
        y = axis.y(seconds)
        yield svg.path(f"M{left} {y:.1f} h{_WIDTH}", "tick")
        yield svg.text(left - 6, y, f"{seconds * 1e6:.3g} us", "time")
    for place, (own, other) in enumerate(itertools.pairwise(columns), start=1):
        if own.tile != other.tile:
            x = left + place * wide
            yield svg.path(f"M{x:.1f} {first} v{_HEIGHT}", "end")
    yield _line("runs", [axis.y(column.seconds) for column in columns], left, wide)
    yield _line("best", [axis.y(column.best_seconds) for column in columns], left, wide)
    yield svg.box(left, first, _WIDTH, _HEIGHT, kind="frame")
    yield from _extents(picture, first + _HEIGHT, wide)


def _extents(picture: _Picture, top: float, wide: float) -> Iterator[str]:
    """The extents below the columns, a line for each name."""
    for line, name in enumerate(picture.names):
        y = top + _LINE * (line + 0.5)
        yield svg.text(_MARGIN + _LEFT - 6, y, name, "time")
        for place, column in enumerate(picture.columns):
            x = _MARGIN + _LEFT + (place + 0.5) * wide
            yield svg.text(x, y, str(column.extents[line]), "at")


def _line(kind: str, heights: Sequence[float], left: float, wide: float) -> str:
    """Steps, one as wide as each column."""
    steps = (f"V{y:.1f} H{left + (place + 1) * wide:.1f}" for place, y in enumerate(heights))
    return svg.path(f"M{left} {heights[0]:.1f} {' '.join(steps)}", kind)


def _times(column: _Column) -> str:
    """Words for the times of a column."""
    return f"{column.seconds * 1e6:.2f} us, at best {column.best_seconds * 1e6:.2f} us"


def _list(names: Sequence[str], extents: Point) -> str:
    """Extents with their names, such as ``"n = 4, h = 8"``."""
    return ", ".join(f"{name} = {extent}" for name, extent in zip(names, extents, strict=True))
