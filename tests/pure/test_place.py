"""List schedules: which vEUs rTasks and resident weights go to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from roperators import plain

from tvm_tile.plan.execution_plan import Placement, ROperator, RTasks
from tvm_tile.plan.place import Placer, homes, placements, spread
from tvm_tile.plan.ways import Kinds, Way

OPERATOR = ROperator("o", (plain(4, 1e-6),), (0,), (1,), 2e-6)


def way(tasks: int, seconds: float, resident: int = 0) -> Way:
    return Way(0, 1, tasks, seconds, 0, resident)


@given(
    busy=st.lists(st.floats(0, 20), min_size=1, max_size=12),
    tasks=st.integers(1, 60),
    seconds=st.floats(0.5, 5),
)
def test_spreading_ends_as_soon_as_one_by_one(
    busy: list[float], tasks: int, seconds: float
) -> None:
    counts = spread(np.array(busy), tasks, seconds)
    assert counts.sum() == tasks
    until = list(busy)
    for _ in range(tasks):
        first = until.index(min(until))
        until[first] += seconds
    ends = max(b + c * seconds for b, c in zip(busy, counts, strict=True) if c)
    assert ends <= max(u for u, b in zip(until, busy, strict=True) if u > b) * (1 + 1e-6)


def test_spreading_keeps_to_the_most_of_each() -> None:
    assert spread(np.zeros(4), 6, 1.0, np.array([1, 0, 5, 2])).tolist() == [1, 0, 3, 2]
    assert spread(np.zeros(2), 6, 1.0, np.array([1, 2])).tolist() == [1, 2]
    assert spread(np.array([np.inf, 0.0]), 3, 1.0).tolist() == [0, 3]


def test_neighbours_with_equal_counts_are_one_placement() -> None:
    assert placements(3, np.array([2, 2, 0, 1])) == (
        Placement(RTasks(3, 0, 4), 0, 2),
        Placement(RTasks(3, 4, 5), 3, 1),
    )


def test_weights_read_at_once_stay_apart_even_where_others_hold_less() -> None:
    operators = tuple(replace(OPERATOR, weights=number) for number in range(3))
    ways = tuple(way(2, 1e-6, resident=size) for size in (100_000, 1000, 1000))
    found = homes(operators, ways, np.array([9, 0, 0]), num_veus=4, room=200_000)
    assert found is not None
    assert [found[number].tolist() for number in range(3)] == [
        [1, 1, 0, 0],
        [0, 0, 1, 1],
        [1, 1, 0, 0],
    ]


def test_weights_have_no_home_where_the_room_is_taken() -> None:
    operators = tuple(replace(OPERATOR, weights=number) for number in range(3))
    ways = (way(4, 1.0, resident=100),) * 3
    steps = np.arange(3)
    assert homes(operators, ways, steps, num_veus=4, room=300) is not None
    assert homes(operators, ways, steps, num_veus=4, room=299) is None


def test_the_longest_go_first_between_barriers() -> None:
    ways = (way(1, 1.0), way(1, 1.0), way(1, 2.0))
    placer = Placer((OPERATOR,) * 3, ways, ((), (), ()), {}, num_veus=2, flag_seconds=8e-7)
    assert placer.with_barriers([[0, 1, 2]], 0.5).seconds == 2.0
    assert placer.with_barriers([[0], [1, 2]], 0.5).seconds == 3.5


def test_with_flags_a_chain_runs_beside_a_long_one() -> None:
    ways = (way(1, 3.0), way(1, 1.0), way(1, 1.0))
    placer = Placer((OPERATOR,) * 3, ways, ((), (), (1,)), {}, num_veus=2, flag_seconds=8e-7)
    assert placer.with_barriers([[0, 1], [2]], 0.0).seconds == 4.0
    assert placer.with_flags([[0, 1], [2]]).seconds == pytest.approx(3.0)
    waits = replace(placer, dependences=((), (), (0,)))
    assert waits.with_flags([[0, 1], [2]]).seconds == pytest.approx(4.0 + 8e-7)


def test_weights_stay_for_the_kind_that_reads_them_most() -> None:
    other = replace(OPERATOR, body=1)
    operators = (
        replace(OPERATOR, weights=5),
        *(replace(other, weights=5),) * 3,
        *(replace(OPERATOR, weights=6),) * 2,
        replace(OPERATOR, weights=7),
    )
    kinds = Kinds.count(operators)
    assert kinds.of == (0, 1, 1, 1, 0, 0, 0)
    assert kinds.weights == ((6,), (5,))
    more = Kinds.count((*operators, replace(OPERATOR, weights=5)))
    assert more.weights == ((6,), (5,))
