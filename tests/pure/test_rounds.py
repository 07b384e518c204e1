"""Items in turns: each is taken once, the longest first, and no block has much more than others."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_tile.tile.attention.rounds import Rounds, balanced


def steps_of_blocks(rounds: Rounds) -> list[int]:
    return [
        sum(
            rounds.lengths[rounds.place(rounds.item(turn, block))[1]]
            for turn in range(rounds.turns(block))
        )
        for block in range(rounds.grid)
    ]


@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=12),
    groups=st.integers(1, 5),
    together=st.integers(1, 4),
    grid=st.integers(1, 40),
)
def test_each_item_is_taken_once(lengths: list[int], groups: int, together: int, grid: int) -> None:
    batches = groups * together
    grid = min(grid, len(lengths) * batches)
    rounds = Rounds(tuple(lengths), batches, grid, together)
    taken = [
        rounds.place(rounds.item(turn, block))
        for block in range(grid)
        for turn in range(rounds.turns(block))
    ]
    assert sorted(taken) == [(b, t) for b in range(batches) for t in range(len(lengths))]
    assert rounds.longest == max(steps_of_blocks(rounds))
    assert rounds.longest >= -(-sum(lengths) * batches // grid)


def test_equal_tiles_are_taken_in_order() -> None:
    rounds = Rounds((3,) * 4, 5, 6)
    assert [rounds.item(turn, 2) for turn in range(rounds.turns(2))] == [2, 8, 14]
    assert [rounds.place(item) for item in range(5)] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]


def test_the_longest_come_first() -> None:
    growing, shrinking = Rounds((1, 2, 3), 4, 2, 2), Rounds((3, 2, 1), 4, 2, 2)
    assert [growing.place(item) for item in range(4)] == [(0, 2), (1, 2), (0, 1), (1, 1)]
    assert [shrinking.place(item)[1] for item in range(4)] == [0, 0, 1, 1]
    assert growing.place(6) == (2, 2)


def test_blocks_are_balanced() -> None:
    """In plain order each of 132 blocks would have the same one of 22 tiles in all its turns."""
    lengths = tuple(range(1, 23))
    for batches, together in ((60, 1), (60, 6), (64, 8), (66, 3)):
        rounds = Rounds(lengths, batches, 132, together)
        mean = sum(lengths) * batches / 132
        assert mean <= rounds.longest <= mean + 22


def test_what_shares_the_cache() -> None:
    """A group of 8 has 256 items, two turns of 128 blocks, and so many again of another order."""
    rounds = Rounds(tuple(range(1, 33)), 64, 132)
    for capacity, most in ((0, 1), (25, 12), (1000, 64)):
        chosen = balanced(rounds, 2, 2 * capacity)
        assert chosen.together <= most
        assert 64 % chosen.together == 0
        options = [replace(rounds, together=n) for n in (1, 2, 4, 8, 16, 32, 64) if n <= most]
        assert chosen.longest == min(option.longest for option in options)
    assert balanced(rounds, 2, 50).longest < 1.05 * sum(rounds.lengths) * 64 / 132
    level = Rounds((3, 3), 6, 4)
    assert balanced(level, 1, 100) == level


@pytest.mark.parametrize("rows", [4096, 8192, 16384])
@pytest.mark.parametrize("depth", [64, 128, 256])
def test_long_causal_rows_are_shared_evenly(rows: int, depth: int) -> None:
    """Sizes of FlashAttention-3's figures, whose heads have about as many tiles as there are
    multiprocessors, a half or a quarter; only few batches fit into the cache together."""
    lengths, batches, size = (
        range(rows // 128, 0, -1),
        16384 // rows * 2048 // depth,
        4 * rows * depth,
    )
    plain = Rounds(tuple(lengths), batches, 132)
    found, mean = balanced(plain, size, 30 << 20), sum(lengths) * batches / 132
    assert found.longest < 1.06 * mean
    assert 7 / 8 * 132 <= found.grid <= 132
    assert found.longest == max(steps_of_blocks(found))
    worst = max(replace(plain, together=n).longest for n in (1, 2, 4) if n * size <= 30 << 20)
    assert worst > 1.02 * mean
