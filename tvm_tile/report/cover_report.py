"""Tiles that run at open extents, and the time that these lose against the best ones, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tvm_tile.errors import InputError
from tvm_tile.graph.open_extents import Point, Symbol, variable
from tvm_tile.tile.cover import ends, grid


@dataclass(frozen=True, slots=True)
class OpenPoint:
    """Extents up to which a kernel was asked for its best tile.

    Attributes:
        bound: the greatest of them, one for each name of the :class:`CoverReport`.
        rule: name of the rule that wrote the best tile there.
        tile: the best tile there, as text.
        best_seconds: predicted seconds of that tile there, without the launch, which in graphs is
            hardly anything.
        served_by: position of the point whose tile runs there.
        seconds: predicted seconds, there, of the tile that runs.
    """

    bound: Point
    rule: str
    tile: str
    best_seconds: float
    served_by: int
    seconds: float

    @property
    def loss(self) -> float:
        """Share of time by which the tile that runs is slower than the best one: 0.1 is a tenth."""
        return self.seconds / self.best_seconds - 1


@dataclass(frozen=True, slots=True)
class CoverReport:
    """Tiles of a kernel, and the open extents at which each runs.

    Attributes:
        names: names of the kernel's variables for open extents.
        points: points of a grid of these extents, the greatest first, one or more.
    """

    names: tuple[str, ...]
    points: tuple[OpenPoint, ...]

    @property
    def worst(self) -> OpenPoint:
        """The point at which most time is lost."""
        return max(self.points, key=lambda point: point.loss)

    @property
    def ends(self) -> tuple[OpenPoint, ...]:
        """Bounds of tiles: :meth:`tile_of` the first one that holds a call's extents runs."""
        served_by = [point.served_by for point in self.points]
        places = ends([point.bound for point in self.points], served_by)
        return tuple(self.points[place] for place in places)

    def tile_of(self, point: OpenPoint) -> OpenPoint:
        """The point whose tile runs at a point: its ``rule`` and ``tile`` are what runs there."""
        return self.points[point.served_by]

    def at(self, extents: Point) -> OpenPoint:
        """The point of the grid whose bound stands for a call's extents, in the order of names and
        none greater than the greatest."""
        return next(
            point
            for point in reversed(self.points)
            if all(a <= b for a, b in zip(extents, point.bound, strict=True))
        )


@dataclass(frozen=True, slots=True)
class ModelTimes:
    """Predicted times of a model's kernels with tiles by extents, all calls of a run.

    Attributes:
        extents: extents of the run, in the order of the model's.
        seconds: seconds with the tiles that run.
        best_seconds: seconds with the best tile of each kernel there.
    """

    extents: Point
    seconds: float
    best_seconds: float

    @property
    def loss(self) -> float:
        """Share of time by which they are slower than with the best tiles: 0.1 is a tenth."""
        return self.seconds / self.best_seconds - 1


@dataclass(frozen=True, slots=True)
class ModelCover:
    """Tiles of a model's kernels, and the open extents at which each runs.

    Attributes:
        symbols: its open extents.
        kernels: name -> the cover of a kernel that has one, and how often a run calls it.
        other_seconds: predicted seconds of all other kernels in a run at the greatest extents,
            launches included; those that fell back count as nothing.
    """

    symbols: tuple[Symbol, ...]
    kernels: Mapping[str, tuple[CoverReport, int]]
    other_seconds: float

    @property
    def times(self) -> tuple[ModelTimes, ...]:
        """Times of a run at the points of a grid, from the least extents on.

        There are none if no kernel has tiles by extents.
        """
        return tuple(map(self.time_at, reversed(grid(self.symbols)))) if self.kernels else ()

    def time_at(self, extents: Point) -> ModelTimes:
        """Times of a run at any extents, which are rounded up to points of each kernel's grid.

        Args:
            extents: extents in the order of the model's.

        Raises:
            InputError: they are none of the model.
        """
        symbols = self.symbols
        values = zip(extents, symbols, strict=False)
        if len(extents) != len(symbols) or any(v not in symbol.values for v, symbol in values):
            wanted = ", ".join(map(str, symbols)) or "none"
            raise InputError(
                f"open extents of the model are {wanted}",
                ", ".join(map(str, extents)) or "none",
                "give a value of each, in this order",
            )
        found = [
            (cover.at(tuple(extents[place] for place in self._places(cover))), calls)
            for cover, calls in self.kernels.values()
        ]
        seconds = sum(point.seconds * calls for point, calls in found)
        return ModelTimes(extents, seconds, sum(p.best_seconds * calls for p, calls in found))

    def names(self, cover: CoverReport) -> tuple[str, ...]:
        """Names that the model has for the extents of a kernel."""
        return tuple(self.symbols[place].name for place in self._places(cover))

    def _places(self, cover: CoverReport) -> Iterator[int]:
        """Positions, among the model's open extents, of those of a kernel."""
        known = {variable(place, s.name): place for place, s in enumerate(self.symbols)}
        return (known[name] for name in cover.names)
