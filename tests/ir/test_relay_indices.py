"""Relay's operators on indices and orders, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relay_operators import Known, equal, run

pytestmark = pytest.mark.bank(4)

_RNG = np.random.default_rng(0)
_X = _RNG.standard_normal((3, 5, 2)).astype("float32")
_TAKE = {"mode": "clip", "axis": None, "batch_dims": 0}


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_take(dtype: str, axis: int | None) -> None:
    for indices in (np.array([[0, 1], [1, 0]]), np.array(1), np.array([0])):
        found = run("take", _X, indices.astype(dtype), **{**_TAKE, "axis": axis})
        equal(found, np.take(_X, indices, axis))


def test_modes_of_take() -> None:
    indices = np.array([-7, -1, 0, 4, 5, 12], "int32")
    for mode in ("clip", "wrap"):
        found = run("take", _X, indices, **{**_TAKE, "axis": 1, "mode": mode})
        equal(found, np.take(_X, indices, 1, mode=mode))
    inside = indices[2:4]
    equal(run("take", _X, inside, **{**_TAKE, "axis": 1, "mode": "fast"}), _X[:, inside])
    flags = np.array([True, False])
    equal(run("take", flags, np.array([1, 0, 1]), **{**_TAKE, "axis": 0}), flags[[1, 0, 1]])
    nothing = np.zeros((0,), "int64")
    equal(run("take", _X, nothing, **{**_TAKE, "axis": 1}), _X[:, :0])


@pytest.mark.parametrize(("axis", "batches"), [(1, 1), (-1, 1), (2, 2), (1, -1)])
def test_take_of_batches(axis: int, batches: int) -> None:
    count = 1 if batches == -1 else batches
    shape = (*_X.shape[:count], 4)
    indices = _RNG.integers(-1, 3, shape)
    found = run("take", _X, indices, mode="wrap", axis=axis, batch_dims=batches)
    rows = _X.reshape(-1, *_X.shape[count:])
    expected = [
        np.take(row, own, axis % 3 - count, mode="wrap")
        for row, own in zip(rows, indices.reshape(-1, 4), strict=True)
    ]
    equal(found, np.stack(expected).reshape(*_X.shape[:count], *expected[0].shape))


def test_gather() -> None:
    indices = _RNG.integers(0, 5, (3, 4, 2))
    equal(run("gather", _X, indices, axis=1), np.take_along_axis(_X, indices, 1))
    few = indices[:2, :, :1].astype("int32")
    equal(run("gather", _X, few, axis=1), np.take_along_axis(_X[:2, :, :1], indices[:2, :, :1], 1))
    with pytest.raises(ValueError, match="indices of"):
        run("gather", _X, np.zeros((4, 1, 1), "int64"), axis=1)


def test_gather_nd() -> None:
    indices = np.stack([_RNG.integers(0, 3, (2, 4)), _RNG.integers(0, 5, (2, 4))])
    equal(run("gather_nd", _X, indices, batch_dims=0, index_rank=None), _X[tuple(indices)])
    one = _RNG.integers(0, 5, (1, 3, 4)).astype("int32")
    found = run("gather_nd", _X, one, batch_dims=1, index_rank=1)
    equal(found, _X[np.arange(3)[:, None], one[0]])


def test_advanced_indices() -> None:
    rows, columns = np.array([[0], [2]], "int32"), np.array([1, 4, 0], "int64")
    equal(run("adv_index", [_X, rows, columns]), _X[rows, columns])
    equal(run("adv_index", [_X, rows]), _X[rows])
    equal(run("adv_index", [_X, np.int64(2), columns - 5]), _X[2, columns - 5])


@pytest.mark.parametrize("name", ["scatter_elements", "scatter", "scatter_add"])
@pytest.mark.parametrize("reduction", ["update", "add", "mul", "min", "max"])
def test_scatter_elements(name: str, reduction: str) -> None:
    indices = np.array([[[0, 3], [0, -1]], [[4, 1], [4, 2]]], "int64")
    updates = _RNG.standard_normal(indices.shape).astype("float32")
    attributes = {"axis": 1}
    if name == "scatter_elements":
        attributes["reduction"] = reduction  # type: ignore[assignment]
    else:
        reduction = "add" if name == "scatter_add" else "update"
    joins: dict[str, Any] = {
        "add": np.add,
        "mul": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
    }
    expected = _X.copy()
    for place, index in np.ndenumerate(indices):
        at = (place[0], index, place[2])
        new = updates[place]
        expected[at] = new if reduction == "update" else joins[reduction](expected[at], new)
    equal(run(name, _X, indices, updates, **attributes), expected, 1e-6)


def test_scatters_that_are_refused() -> None:
    indices, updates = np.zeros((1, 1, 1), "int64"), np.zeros((1, 1, 1), "float32")
    with pytest.raises(NotImplementedError, match="mean"):
        run("scatter_elements", _X, indices, updates, axis=0, reduction="mean")
    with pytest.raises(ValueError, match="updates of"):
        run("scatter_elements", _X, indices, updates[0], axis=0, reduction="update")


@pytest.mark.parametrize("mode", ["update", "add"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "float16"])
def test_scatter_nd(mode: str, dtype: str) -> None:
    x = (_X * 9).astype(dtype)
    indices = np.array([[0, 2, 0, 1], [4, 1, 4, 0]], "int32")
    updates = (_RNG.standard_normal((4, 2)) * 9).astype(dtype)
    expected = x.copy()
    for place in range(4):
        at = tuple(indices[:, place])
        expected[at] = updates[place] + (expected[at] if mode == "add" else 0)
    found = run("scatter_nd", x, indices, updates, mode=mode)
    equal(found, expected, 1e-2 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    indices = np.array([[0, 3, -1], [2, 4, 1]], "int32")
    found = run(
        "one_hot",
        indices,
        Known(2, "int32"),
        Known(0, "int32"),
        depth=4,
        axis=axis,
        dtype="float32",
    )
    places = np.arange(4).reshape([4 if i == axis % 3 else 1 for i in range(3)])
    expected = np.where(np.expand_dims(indices, axis) == places, 2, 0)
    equal(found, expected.astype("float32"))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_sequence_mask(axis: int, dtype: str) -> None:
    lengths = np.arange(_X.shape[1 - axis]).astype(dtype)
    steps = np.arange(_X.shape[axis])
    kept = steps[:, None] < lengths if axis == 0 else steps < lengths[:, None]
    found = run("sequence_mask", _X, lengths, mask_value=-1.5, axis=axis)
    equal(found, np.where(kept[:, :, None], _X, np.float32(-1.5)))


@pytest.mark.parametrize(
    ("dtype", "rises", "axis"),
    [
        ("float32", True, 0),
        ("float32", False, -1),
        ("int8", True, -1),
        ("uint8", False, 0),
        ("float16", True, -1),
        ("int64", False, 0),
    ],
)
def test_orders(dtype: str, rises: bool, axis: int) -> None:
    x = _RNG.permutation(40).reshape(5, 8).astype(dtype)
    order = np.argsort(x if rises else -x.astype("int64"), axis)
    values = np.take_along_axis(x, order, axis)
    attributes = {"axis": axis, "is_ascend": rises}
    equal(run("sort", x, **attributes, dtype=""), values)
    equal(run("argsort", x, **attributes, dtype="int32"), order.astype("int32"))
    equal(run("argsort", x, **attributes, dtype="float32"), order.astype("float32"))
    first = np.arange(3)
    both = run("topk", x, k=3, ret_type="both", dtype="int64", **attributes)
    equal(both[0], values.take(first, axis))
    equal(both[1], order.take(first, axis))
    equal(run("topk", x, k=3, ret_type="values", dtype="", **attributes), both[0])
    places = run("dyn.topk", x, Known([3]), ret_type="indices", dtype="", k=None, **attributes)
    equal(places, both[1].astype("int32"))
    equal(run("topk", x, k=0, ret_type="values", dtype="", **attributes), values)


def test_equal_elements_keep_their_order() -> None:
    x = np.array([1, 0, 1, 0, 1], "float32")
    for rises, order in ((True, [1, 3, 0, 2, 4]), (False, [0, 2, 4, 1, 3])):
        found = run("argsort", x, axis=0, is_ascend=rises, dtype="int32")
        equal(found, np.array(order, "int32"))


def test_unravel_index() -> None:
    indices = np.array([22, 14, 0, 59], "int32")
    found = run("unravel_index", indices, Known([3, 4, 5], "int32"))
    equal(found, np.array(np.unravel_index(indices, (3, 4, 5)), "int32"))
    found = run("unravel_index", np.int64(22), Known([3, 4, 5], "int64"))
    equal(found, np.array([1, 0, 2], "int64"))


def test_sparse_to_dense() -> None:
    expected = np.full((4, 5), 0.5, "float32")
    indices = np.array([[0, 1], [3, 4], [2, 2]], "int32")
    values = np.array([1, 2, 3], "float32")
    expected[tuple(indices.T)] = values
    found = run("sparse_to_dense", indices, values, np.float32(0.5), output_shape=(4, 5))
    equal(found, expected)
    row = np.zeros(4, "float32")
    row[[1, 3]] = 7
    found = run("sparse_to_dense", np.array([1, 3]), np.float32(7), output_shape=(4,))
    equal(found, row)
    row[3] = 0
    equal(run("sparse_to_dense", np.int32(1), np.float32(7), output_shape=(4,)), row)


def test_invert_permutation() -> None:
    x = np.array([2, 0, 3, 1], "int32")
    equal(run("invert_permutation", x), np.argsort(x).astype("int32"))


@pytest.mark.parametrize("is_right", [False, True])
def test_search_sorted(is_right: bool) -> None:
    side: Any = "right" if is_right else "left"
    rows = np.sort(_RNG.integers(0, 5, (3, 8)).astype("float32"), 1)
    values = _RNG.integers(-1, 6, (3, 4)).astype("float32")
    found = run("searchsorted", rows, values, right=is_right, dtype="int64")
    expected = [np.searchsorted(row, v, side) for row, v in zip(rows, values, strict=True)]
    equal(found, np.stack(expected))
    found = run("searchsorted", rows[0], values, right=is_right, dtype="int32")
    equal(found, np.searchsorted(rows[0], values, side).astype("int32"))
    found = run("searchsorted", rows[0], values[0, 0], right=is_right, dtype="int32")
    equal(found, np.asarray(np.searchsorted(rows[0], values[0, 0], side), "int32"))
