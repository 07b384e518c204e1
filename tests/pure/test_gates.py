"""Cells' tiles, and which operators are one cell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tvm_tile.device import find_device
from tvm_tile.tile.few_rows.gates import (
    GateProduct,
    Gates,
    GatesTile,
    construct_gates,
    resident_offsets,
)
from tvm_tile.tile.weld.gate_groups import GateNode, Role, group_gates, order_units

H200 = find_device("nvidia/h200")
ROLES = {"p": Role.PRODUCT, "e": Role.EACH, "s": Role.PART, "o": Role.OTHER}


def nodes(*described: str) -> list[GateNode]:
    """Each by the letter of its role and the numbers of its operands: ``"e01"``."""
    return [GateNode(ROLES[text[0]], tuple(map(int, text[1:].split(",") if text[1:] else ())))
            for text in described]  # fmt: skip


LSTM = Gates((GateProduct(4, 256, 4), GateProduct(4, 256, 4)), 256, 1, 60, 8192)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 700), st.sampled_from([2, 4])),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 300),
    st.integers(1, 16),
)
def test_every_sum_is_added_up_once(
    products: list[tuple[int, int, int]], units: int, vectors: int
) -> None:
    gates = Gates(tuple(GateProduct(*own) for own in products), units, vectors, 20, 100)
    for tile in construct_gates(gates, H200, 1000):
        assert (tile.grid - 1) * tile.units < units <= tile.grid * tile.units
        assert tile.block_size == 32 * sum(part.warps for part in tile.products)
        assert tile.units * vectors <= tile.block_size
        for part, product in zip(tile.products, gates.products, strict=True):
            groups = part.warps * 32 // part.lanes
            rows = tile.units * product.gates
            assert (part.turns - 1) * groups * part.rows < rows <= part.turns * groups * part.rows
            reached = part.lanes * product.vector * part.loads
            assert (part.steps - 1) * reached < product.depth <= part.steps * reached


def test_choices_of_an_lstm() -> None:
    found = construct_gates(LSTM, H200, 1000)
    assert len({(tile.grid, tile.block_size) for tile in found}) == len(found)
    assert {tile.grid for tile in found} >= {8, 13, 16, 20, 26, 32, 64, 128, 256}
    assert [tile.seconds for tile in found] == sorted(tile.seconds for tile in found)
    assert construct_gates(LSTM, H200, 3) == found[:3]


def tile_of(gates: Gates, grid: int, threads: int) -> GatesTile:
    found = construct_gates(gates, H200, 1000)
    return next(tile for tile in found if (tile.grid, tile.block_size) == (grid, threads))


def test_fewer_blocks_take_longer() -> None:
    times = [tile_of(LSTM, grid, 256).seconds for grid in (128, 32, 8)]
    assert times == sorted(times)


def test_large_weights_take_as_long_as_reading_them() -> None:
    product = GateProduct(1, 8192, 2)
    gates = Gates((product, product), 28672, 1, 20, 100_000)
    best = construct_gates(gates, H200, 1)[0]
    assert 1 <= best.seconds * H200.read_bandwidth / gates.weights < 1.6


def test_too_many_rows() -> None:
    assert construct_gates(Gates(LSTM.products, 256, 17, 60, 0), H200, 10) == ()


def test_weights_that_stay_lie_in_vectors() -> None:
    gates = Gates((GateProduct(3, 35, 4), GateProduct(1, 64, 4)), 10, 1, 1, 1)
    assert resident_offsets(gates, 3) == (0, 1264, 2032)


@pytest.mark.parametrize(
    ("described", "groups"),
    [
        # Two products and their sum.
        (("p", "p", "e0,1"), ((0, 1, 2),)),
        # One product: with parts, and without.
        (("p", "s0", "e1"), ((0, 1, 2),)),
        (("p", "e0", "e1"), ()),
        # Products that do not meet.
        (("p", "p", "e0", "e1"), ()),
        # A product of what the others make.
        (("p", "p", "e0,1", "p2", "p2", "e3,4", "e5,2"), ((0, 1, 2), (3, 4, 5, 6))),
        # Out, and back in again.
        (("p", "p", "e0,1", "o2", "e2,3", "e4"), ((0, 1, 2),)),
        # What feeds the group only joins it; what feeds others, too, does not.
        (("o", "s0", "p", "p", "e2,3", "e4,1"), ((1, 2, 3, 4, 5),)),
        (("o", "s0", "p", "p", "e2,3", "e4,1", "o1"), ((2, 3, 4, 5),)),
    ],
)
def test_groups(described: tuple[str, ...], groups: tuple[tuple[int, ...], ...]) -> None:
    assert group_gates(nodes(*described)) == groups


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_groups_can_be_computed_one_behind_the_other(data: st.DataObject) -> None:
    program = []
    for number in range(data.draw(st.integers(1, 14))):
        role = data.draw(st.sampled_from(list(Role)))
        operands = st.lists(st.integers(0, number - 1), max_size=3) if number else st.just([])
        program.append(GateNode(role, tuple(dict.fromkeys(data.draw(operands)))))
    groups = group_gates(program)
    order = order_units(program, groups)
    assert sorted(number for unit in order for number in unit) == list(range(len(program)))
    done: set[int] = set()
    for unit in order:
        own = set(unit)
        for number in unit:
            outside = set(program[number].operands) - own
            assert outside <= done
            if program[number].role is Role.PRODUCT:
                assert not own & set(program[number].operands)
        done |= own
    assert set(groups) <= set(order)
