"""The fewest tiles that are nearly the best at every extent of a range.

Roller's tiles hardly depend on the outer extents, but which one is best does: of a product of 17
rows another one than of 4,000. A kernel of open extents is several, each made for all extents up to
a bound of its own; at a call's extents one of them runs. Bounds are points of a grid, and a bound
serves what lies between it and the next lower point that has one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.graph.open_extents import Point, Symbol

# Extents up to which the best tiles of a range are asked for, as shares of its greatest one: its
# halves and, where a step is still many tiles, what lies between them; and its least one.
_SHARES = (1.0, 0.75, 0.5, 0.375, 0.25, 0.1875, *(0.5**halving for halving in range(3, 8)), 0.0)
_MOST_POINTS = 24  # of all symbols

MAX_LOSS = 0.02
"""By how much a tile may take longer than the best one at its extent, where nobody says: 2 %.

Measured losses are greater than predicted ones, and smaller ones cost hardly any compile time."""


@dataclass(frozen=True, slots=True)
class Cover:
    """Tiles, and the points of the grid at which each runs.

    Attributes:
        tiles: positions of the grid's points, from the greatest extents on, whose tiles are kept.
        serves: for each point of the grid, the position of the tile that runs there.
        loss: largest share of time by which that tile is slower than the point's own; 0.1 is a
            tenth.
        worst: the position of the point where it does.
    """

    tiles: tuple[int, ...]
    serves: tuple[int, ...]
    loss: float
    worst: int


def grid(symbols: Sequence[Symbol]) -> tuple[Point, ...]:
    """Points up to which tiles are asked for, from the greatest extents on.

    Of several symbols fewer values of each are taken.
    """
    lines = [_values(symbol) for symbol in symbols]
    while math.prod(map(len, lines)) > _MOST_POINTS:
        longest = max(range(len(lines)), key=lambda i: len(lines[i]))
        lines[longest] = lines[longest][::2]
    return tuple(itertools.product(*lines))


def _values(symbol: Symbol) -> list[int]:
    """Values of a symbol at which tiles are asked for, the greatest first."""
    wanted = (symbol.high * share for share in _SHARES)
    values = (max(symbol.low, -(-int(v) // symbol.step) * symbol.step) for v in wanted)
    return sorted(set(values), reverse=True)


def between(points: Sequence[Point]) -> tuple[Point, ...]:
    """Points of one extent that lie between those of a grid, three for each two, in its order.

    Which tile runs may change where none is asked for: at a few rows more than a whole turn of the
    multiprocessors, another one of those that are there is faster.
    """
    found: list[Point] = []
    for (high,), (low,) in itertools.pairwise(points):
        inner = {low + (high - low) * quarter // 4 for quarter in (1, 2, 3)} - {low}
        found.extend((value,) for value in sorted(inner, reverse=True))
    return tuple(found)


def cover(points: Sequence[Point], times: Sequence[Sequence[float]], loss: float) -> Cover:
    """The fewest tiles, none of which takes longer than the best one by more than ``loss``.

    A point's own tile is the best one there. Each step keeps the tile that serves most of the
    points that nothing serves yet, which for one extent are neighbours. (Covering sets is hard for
    several, where the result may have a tile more than it need.)

    Args:
        points: the grid's, the greatest extents first.
        times: times of each point's tile at each point; infinite where it cannot run, which is
            wherever an extent is greater.
        loss: 0.1 is a tenth.
    """
    count = len(points)
    good = [
        {at for at in range(count) if times[tile][at] <= times[at][at] * (1 + loss)}
        for tile in range(count)
    ]
    left, kept = set(range(count)), list[int]()
    while left:
        first = min(left)
        able = [tile for tile in range(count) if first in good[tile]]
        best = max(able, key=lambda tile: (len(good[tile] & left), -tile))
        kept.append(best)
        left -= good[best]
    serves = tuple(min(kept, key=lambda tile: (times[tile][at], tile)) for at in range(count))
    tiles = tuple(sorted(set(serves)))
    losses = [times[serves[at]][at] / times[at][at] - 1 for at in range(count)]
    worst = max(range(count), key=lambda at: losses[at])
    return Cover(tiles, serves, losses[worst], worst)


def ends(points: Sequence[Point], serves: Sequence[int]) -> tuple[int, ...]:
    """Points at which tiles end: the first of them that holds a call's extents has its tile run.

    A point is left out where the next one that is asked about holds it, too, and has the same tile.

    Args:
        points: the grid's, the greatest extents first.
        serves: positions of tiles as in :class:`Cover`.

    Returns:
        Positions of points, the greatest extents last.
    """
    kept = [0]
    for at in range(1, len(points)):
        holds = all(a <= b for a, b in zip(points[at], points[kept[-1]], strict=True))
        if not holds or serves[at] != serves[kept[-1]]:
            kept.append(at)
    return tuple(reversed(kept))
