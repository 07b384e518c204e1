"""Rows that a product's kernel computes and stores, as others take them, too."""

from __future__ import annotations

from pure.test_connect import NONE, OTHER, PRODUCT, ROWS, calls, only

from tvm_tile.tile.weld.call_graph import Group, taken_beyond
from tvm_tile.tile.weld.connect import connect_calls

# A norm behind a product, added to a residual; the next norm and product; the next residual.
SANDWICH = calls(
    (PRODUCT, ""), (ROWS, "a"), (ROWS, "b"), (PRODUCT, "c"), (PRODUCT, "d"), (ROWS, "eb")
)


class TestStoredRows:
    def test_the_first_group_that_takes_them_stores_them(self) -> None:
        asked: list[Group] = []

        def storing(group: Group) -> float:
            asked.append(group)
            return 2.0

        joined = connect_calls(SANDWICH, NONE, only((2, 3)), storing=storing)
        assert joined == ((1, 2, 3),)
        assert asked == [(1, 2, 3)]
        assert taken_beyond(SANDWICH, joined) == {0, 1, 3, 4}

    def test_not_where_that_saves_nothing(self) -> None:
        joined = connect_calls(SANDWICH, NONE, only((2, 3)), storing=lambda _: 1.0)
        assert joined == ((2, 3),)

    def test_not_where_others_take_them_before(self) -> None:
        early = calls(
            (PRODUCT, ""), (ROWS, "a"), (OTHER, "b"), (ROWS, "b"), (PRODUCT, "d"), (OTHER, "ce")
        )
        joined = connect_calls(early, NONE, only((3, 4)), storing=lambda _: 9.0)
        assert joined == ((3, 4),)
