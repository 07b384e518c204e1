"""The fewest tiles that are nearly the best at every extent of a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tvm_tile.graph.open_extents import Symbol
from tvm_tile.tile.cover import cover, ends, grid

LOSS = 0.1


def random_times(seed: int) -> tuple[list[tuple[int]], list[list[float]]]:
    """A grid of one extent, and what tiles of steps of their own take at its points."""
    rng = np.random.default_rng(seed)
    points = [(int(n),) for n in sorted(rng.choice(4096, 12, replace=False) + 1, reverse=True)]
    steps = rng.integers(8, 512, len(points))
    start, each = rng.uniform(1, 3), rng.uniform(0.01, 0.1, len(points))

    def seconds(tile: int, n: int) -> float:
        return float(start + each[tile] * math.ceil(n / steps[tile]) * steps[tile] / 64)

    times = [
        [seconds(tile, n) if at >= tile else math.inf for at, (n,) in enumerate(points)]
        for tile in range(len(points))
    ]
    for at in range(len(points)):  # a point's own tile is the best there
        times[at][at] = min(times[tile][at] for tile in range(at + 1))
    return points, times


@pytest.mark.parametrize("seed", range(200))
def test_each_extent_has_a_tile_that_is_nearly_the_best(seed: int) -> None:
    points, times = random_times(seed)
    found = cover(points, times, LOSS)
    for at, tile in enumerate(found.serves):
        assert tile <= at  # made for this extent or a greater one
        assert times[tile][at] <= times[at][at] * (1 + LOSS)
        assert tile in found.tiles
    worst = max(times[t][at] / times[at][at] - 1 for at, t in enumerate(found.serves))
    assert found.loss == pytest.approx(worst)


@pytest.mark.parametrize("seed", range(50))
def test_there_are_no_fewer(seed: int) -> None:
    points, times = random_times(seed)
    found = cover(points, times, LOSS)
    count = len(points)
    good = [
        {at for at in range(count) if times[t][at] <= times[at][at] * (1 + LOSS)}
        for t in range(count)
    ]
    sets = range(1, 1 << count)
    fewest = min(
        bin(s).count("1")
        for s in sets
        if set().union(*(good[t] for t in range(count) if s >> t & 1)) == set(range(count))
    )
    assert len(found.tiles) <= fewest + 1


def test_a_grid_begins_at_the_greatest_and_ends_at_the_least_values() -> None:
    symbol = Symbol("n", 2, 512, 2)
    points = grid([symbol])
    assert points[0] == (512,)
    assert all(value in symbol.values for (value,) in points)
    assert list(points) == sorted(points, reverse=True)


def test_a_grid_of_several_extents_is_small() -> None:
    points = grid([Symbol("batch", 1, 64), Symbol("tokens", 1, 4096)])
    assert points[0] == (64, 4096)
    assert 12 <= len(points) <= 24
    for place in range(2):
        values = {point[place] for point in points}
        assert len(values) >= 3


@pytest.mark.parametrize("seed", range(100))
def test_the_first_end_that_holds_extents_has_the_tile_that_serves_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols = [Symbol("n", 1, int(rng.integers(2, 300))), Symbol("m", 2, 64, 2)]
    points = grid(symbols[: 1 + seed % 2])
    able = [
        [tile for tile, own in enumerate(points) if all(map(int.__le__, point, own))]
        for point in points
    ]
    serves = [int(rng.choice(tiles[:3])) for tiles in able]
    asked = ends(points, serves)
    assert asked[-1] == 0
    assert len(set(asked)) == len(asked) <= len(points)
    for point, tile in zip(points, serves, strict=True):
        first = next(end for end in asked if all(map(int.__le__, point, points[end])))
        assert serves[first] == tile


def test_neighbours_with_one_tile_have_one_end() -> None:
    points = [(64,), (32,), (16,), (8,), (4,)]
    assert ends(points, [0, 0, 0, 0, 0]) == (0,)
    assert ends(points, [0, 1, 1, 0, 0]) == (3, 1, 0)
    assert ends(points, [0, 1, 2, 3, 4]) == (4, 3, 2, 1, 0)
