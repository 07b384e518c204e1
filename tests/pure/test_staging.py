"""Sharing a staging copy: every element once, at most an element a thread in a round."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.tile.staging import share_copy

REGIONS = st.lists(st.integers(1, 40), min_size=1, max_size=5).map(tuple)
THREADS = st.sampled_from([32, 64, 88, 169, 224, 256, 512])


def copy_rounds(extents: tuple[int, ...], threads: int) -> int:
    """Elements that a thread copies at most."""
    dimension, part = share_copy(extents, threads)
    return math.prod(extents[:dimension]) * -(-extents[dimension] // part)


@given(region=REGIONS, threads=THREADS)
def test_a_round_fits_the_threads_and_the_rounds_cover_the_region(
    region: tuple[int, ...], threads: int
) -> None:
    dimension, part = share_copy(region, threads)
    assert 1 <= part <= region[dimension]
    assert part * math.prod(region[dimension + 1 :]) <= threads
    rounds = copy_rounds(region, threads)
    per_round = part * math.prod(region[dimension + 1 :])
    assert rounds * per_round >= math.prod(region)
    # Fewer than one part of each outer place is idle in its last round.
    assert rounds <= math.prod(region[:dimension]) * -(-region[dimension] // part)


@pytest.mark.parametrize(
    ("region", "threads", "expected", "rounds"),
    [
        ((16,), 32, (0, 16), 1),
        ((4, 30, 16), 448, (1, 15), 8),  # 28 rows would fit; 15 leave no rest in as many rounds
        ((1, 1, 13, 13), 224, (2, 13), 1),  # along rows, not images, though all would fit
        ((1, 16, 13, 13), 176, (2, 13), 16),  # a plane at a time
        ((1, 1, 48, 89), 249, (2, 2), 24),
        ((1, 1, 35, 10), 186, (2, 18), 2),  # the last round has a rest
        ((64, 3000), 256, (1, 250), 768),
    ],
)
def test_examples(
    region: tuple[int, ...], threads: int, expected: tuple[int, int], rounds: int
) -> None:
    assert share_copy(region, threads) == expected
    assert copy_rounds(region, threads) == rounds
