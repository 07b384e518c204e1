"""Which operands are weights of products of few rows."""

import pytest

from tvm_tile.graph.tile_graph import Access, AffineIndex, Axis, Operator, Tensor
from tvm_tile.tile.few_rows.weight_layout import is_of_few_rows, is_weight


def along(axis: str, step: int = 1, offset: int = 0) -> AffineIndex:
    return AffineIndex(((axis, step),), offset)


def product(rows: int, weights: Access) -> Operator:
    """``y[m, n] = sum over k of x[m, k] * w``."""
    axes = (Axis("m", rows), Axis("n", 30), Axis("k", 20, is_reduce=True))
    x = Access(Tensor("x", (rows, 20), "float32"), (along("m"), along("k")))
    y = Access(Tensor("y", (rows, 30), "float32"), (along("m"), along("n")))
    return Operator("product", axes, (x, weights), y, 2)


def weights(*indices: AffineIndex, shape: tuple[int, ...], computed: bool = False) -> Access:
    return Access(Tensor("w", shape, "float32"), indices, computed)


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize(
    "read",
    [
        weights(along("n"), along("k"), shape=(30, 20)),
        weights(along("k"), along("n"), shape=(20, 30)),
    ],
)
def test_either_order(rows: int, read: Access) -> None:
    assert is_weight(product(rows, read), read)


@pytest.mark.parametrize(
    ("rows", "read"),
    [
        (17, weights(along("n"), along("k"), shape=(30, 20))),
        (1, weights(along("n"), along("k"), shape=(40, 20))),  # a part of it
        (1, weights(along("n"), along("k", 2), shape=(30, 40))),
        (1, weights(along("n", offset=1), along("k"), shape=(30, 20))),
        (1, weights(along("n"), along("k"), shape=(30, 20), computed=True)),
        (1, weights(along("n"), AffineIndex((("k", 1),), is_exact=False), shape=(30, 20))),
        (1, weights(along("n"), along("k"), AffineIndex(()), shape=(30, 20, 1))),
        (1, weights(along("k"), shape=(20,))),
        (5, weights(along("m"), along("k"), shape=(5, 20))),  # 30 columns read it
    ],
)
def test_what_is_none(rows: int, read: Access) -> None:
    assert not is_weight(product(rows, read), read)


def test_rows_are_all_but_the_last_extent() -> None:
    assert is_of_few_rows((2, 8, 4096))
    assert not is_of_few_rows((2, 9, 4096))
    assert not is_of_few_rows(None)
