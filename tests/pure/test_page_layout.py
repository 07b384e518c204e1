"""Boxes do not overlap, lines go down and end at their boxes, and deep graphs stay narrow."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from page_reports import transformer

from tvm_tile.report.page.layers import ranks
from tvm_tile.report.page.layout import lay_out

SIZE = 200.0, 60.0


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[tuple[int, int, int]]]:
    count = draw(st.integers(1, 40))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    drawn = draw(st.lists(pairs.filter(lambda pair: pair[0] < pair[1]), max_size=60, unique=True))
    return count, [(maker, taker, maker) for maker, taker in drawn]


def edges_of(count: int) -> list[tuple[int, int, int]]:
    """Those of a transformer's graph; box 0 is its input."""
    graph = transformer(count)
    return [(tensor, n + 1, tensor) for n, call in enumerate(graph.calls) for tensor in call.reads]


def ends(path: str) -> tuple[tuple[float, float], float]:
    """Where a line begins, and how far down it ends."""
    numbers = [float(number) for number in re.findall(r"-?\d+\.\d+", path)]
    return (numbers[0], numbers[1]), numbers[-1]


@given(graphs())
def test_boxes_are_apart_and_lines_go_from_bottom_to_top(
    graph: tuple[int, list[tuple[int, int, int]]],
) -> None:
    count, edges = graph
    found = lay_out(count, SIZE, edges)
    for (x, y), (other_x, other_y) in itertools.combinations(found.corners, 2):
        assert abs(x - other_x) >= SIZE[0] - 0.1 or abs(y - other_y) >= SIZE[1]
    assert all(-0.1 <= x <= found.width - SIZE[0] + 0.1 for x, _ in found.corners)
    assert all(0 <= y <= found.height - SIZE[1] for _, y in found.corners)
    for (maker, taker, _), line in zip(edges, found.lines, strict=True):
        (x, top), bottom = ends(line)
        assert top == pytest.approx(found.corners[maker][1] + SIZE[1], abs=0.1)
        assert bottom == pytest.approx(found.corners[taker][1], abs=0.1)
        assert found.corners[maker][0] <= x <= found.corners[maker][0] + SIZE[0]
        assert bottom > top


def test_a_box_is_below_all_that_it_takes_and_inputs_are_near_what_takes_them() -> None:
    assert ranks(4, [(0, 1), (1, 2), (0, 2)]) == (0, 1, 2, 0)
    assert ranks(4, [(0, 1), (1, 2), (3, 2)]) == (0, 1, 2, 1)


def test_a_chain_is_straight() -> None:
    found = lay_out(5, SIZE, [(n, n + 1, n) for n in range(4)])
    assert len({x for x, _ in found.corners}) == 1
    assert all("C" not in line for line in found.lines)


def test_a_thousand_boxes_stay_a_few_boxes_wide_though_branches_are_on_one_side() -> None:
    found = lay_out(1001, SIZE, edges_of(1000))
    assert found.width < 8 * SIZE[0]


def test_long_lines_of_one_value_share_a_lane_beside_all_boxes() -> None:
    count = 120
    edges = edges_of(count)
    found = lay_out(count + 1, SIZE, edges)
    right = max(x for x, _ in found.corners) + SIZE[0]
    lanes = [
        float(number)
        for (maker, taker, _), line in zip(edges, found.lines, strict=True)
        if maker == 0 and taker > 20
        for number in re.findall(r"H(\d+\.\d)", line)[:1]
    ]
    assert len(lanes) > 10
    assert len(set(lanes)) == 1
    assert right < lanes[0] < found.width
