"""Which axes stages that divide the same elements otherwise have in common."""

from __future__ import annotations

import pytest
from operators import access, axes, index, matmul, row_sum

from tvm_tile.graph.tile_graph import AffineIndex, Operator
from tvm_tile.tile.rows.common_axes import common_extents, find_divisions, in_order

AT_I, AT_J, AT_K = (index(**{axis: 1}) for axis in "ijk")


@pytest.mark.parametrize(
    ("stages", "common"),
    [
        ([(2, 8, 4, 80), (2, 32, 8, 10)], (2, 8, 4, 8, 10)),
        ([(5, 768), (5, 12, 64), (5, 768)], (5, 12, 64)),
        ([(24,), (2, 12), (6, 4)], (2, 3, 4)),
        ([(7, 11), (7, 11)], (7, 11)),
        ([(1, 6, 1), (6,)], (6,)),
        ([(1,), ()], ()),
        ([(4, 6), (6, 4)], None),  # an axis ends amid another
        ([(4, 6), (4, 3)], None),
        ([(0, 6), (0, 2, 3)], None),
    ],
)
def test_common_extents(stages: list[tuple[int, ...]], common: tuple[int, ...] | None) -> None:
    assert common_extents(stages) == common


def names(op: Operator) -> str | None:
    order = in_order(op)
    return None if order is None else "".join(axis.name for axis in order)


def stored(*reads: tuple[AffineIndex, ...]) -> Operator:
    """``Y[i, j] = f(A[...], B[...], ...)`` of six by six elements."""
    found = tuple(access("ABC"[n], (6,) * len(r), *r) for n, r in enumerate(reads))
    return Operator("f", axes("", i=6, j=6), found, access("Y", (6, 6), AT_I, AT_J), 1)


def test_order_is_that_of_the_largest_tensor() -> None:
    assert names(row_sum(3, 5)) == "ik"
    assert names(stored((AT_I, AT_J), (AT_J,))) == "ij"
    assert names(stored((AT_J, AT_I), (AT_J,))) == "ji"
    assert (
        names(stored((AT_J, AT_I), (AT_I, AT_J))) == "ij"
    )  # that of the loops, where there are two
    turned = access("X", (5, 3), AT_K, AT_I)
    over_rows = Operator("sum", axes("k", i=3, k=5), (turned,), access("Y", (3,), AT_I), 1)
    assert names(over_rows) == "ki"


def test_no_order() -> None:
    divided = AffineIndex((("i", 1),), is_exact=False)
    for op in (
        stored((AT_I,)),
        stored((AT_I, AT_I)),
        stored((divided, AT_J)),
        stored(),
        matmul(4, 5, 6),
    ):
        assert in_order(op) is None


def test_dimensions_that_are_several_axes() -> None:
    both = index(i=4, j=1)
    wide = access("A", (3, 24), AT_K, both)
    write = access("Y", (3, 6, 4), AT_K, AT_I, AT_J)
    op = Operator("f", axes("", k=3, i=6, j=4), (wide, access("G", (24,), both)), write, 1)
    assert find_divisions([op]) == {"A": ((3,), (6, 4)), "G": ((6, 4),)}
    # Not where a part is read, two are one, or others divide it otherwise.
    for other in (index(1, i=4, j=1), index(i=1, j=4), index(i=4)):
        read = Operator("g", op.axes, (access("G", (24,), other),), write, 1)
        assert find_divisions([read]) == {}
        assert "G" not in find_divisions([op, read])
