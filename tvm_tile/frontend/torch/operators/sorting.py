"""Sorting, and what is found by order: ``topk``, medians, modes.

NaN is the largest value and elements that are equal keep their order, as in PyTorch's stable sort.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, axis_of, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.indexing import along
from tvm_tile.loops.keys import is_nan, rising_key
from tvm_tile.loops.sorting import first_in_order

Pair = tuple[relax.Expr | None, relax.Expr | None]


def _sort(
    emit: Emit, x: relax.Expr, dim: int, descending: bool, stable: bool | None = None
) -> Pair:
    """Every sort here is stable."""
    return _sorted(emit, x, dim, None, descending=descending)


def _topk(emit: Emit, x: relax.Expr, k: int, dim: int, largest: bool, sorted: bool) -> Pair:
    """Sorted, be it asked for or not."""
    return _sorted(emit, x, dim, k, descending=largest)


def _sorted(emit: Emit, x: relax.Expr, dim: int, count: int | None, *, descending: bool) -> Pair:
    """The first ``count`` elements in order (all where ``None``), and their places."""
    rows, axis = _rows(emit, x, dim)
    if count is None:
        count = shape_of(rows)[axis]
    values, places = first_in_order(emit.builder, rows, axis, count, is_descending=descending)
    return _shaped(emit, values, places)


def _rows(emit: Emit, x: relax.Expr, dim: int) -> tuple[relax.Expr, int]:
    """A tensor of one dimension or more, and the dimension counted from the front."""
    shape = shape_of(x)
    return emit.reshape(x, shape or (1,)), axis_of(dim, len(shape))


def _with_values(emit: Emit, rows: relax.Expr, axis: int, places: relax.Expr) -> Pair:
    """The elements at some places of each row, and the places, in the results' shapes."""
    return _shaped(emit, along(emit, rows, axis, places), places)


def _shaped(emit: Emit, values: relax.Expr, places: relax.Expr) -> Pair:
    """Values and places in the shapes of the node's results."""
    found = tuple(
        emit.reshape(value, tuple(like.shape))
        for value, like in zip((values, places), emit.results, strict=True)
    )
    return found[0], found[1]


def _places_of_ranks(
    emit: Emit,
    x: relax.Expr,
    axis: int,
    rank: Callable[[Any, Any], Any],
    count: int,
) -> relax.Expr:
    """Where in its row the element is that has a rank: int64, ``count`` along ``axis``.

    Every element's rank is counted, and every place looks for the element that has its rank::

        for i, k: ranks[i] += key(A[k]) < key(A[i]) or key(A[k]) == key(A[i]) and k < i
        for j, i: B[j] += i if ranks[i] == rank(j) else 0

    Args:
        emit: writes the loops.
        x: of one dimension or more.
        axis: along which rows run.
        rank: from the count of a row's NaN (``None`` of integers) and the number of a result
            along ``axis`` to the rank of the element that is looked for.
        count: how many results there are along ``axis``.
    """
    extent = shape_of(x)[axis]
    is_float = dtype_of(x).is_floating_point

    def loops(data: te.Tensor) -> te.Tensor:
        def key(at: Sequence[Any], k: Any) -> Any:
            return rising_key(data(*at[:axis], k, *at[axis + 1 :]))

        before = te.reduce_axis((0, extent), "k")

        def comes_before(*at: Any) -> Any:
            k, i = before.var, at[axis]
            other, own = key(at, k), key(at, i)
            first = tirx.any(other < own, tirx.all(other == own, k < i))
            return te.sum(tirx.Cast("int32", first), axis=before)

        ranks = te.compute(data.shape, comes_before, name="ranks")
        undefined = _count_of_nan(data, axis) if is_float else None
        among = te.reduce_axis((0, extent), "i")

        def place(*at: Any) -> Any:
            i = among.var
            wanted = rank(
                None if undefined is None else undefined(*at[:axis], *at[axis + 1 :]), at[axis]
            )
            found = ranks(*at[:axis], i, *at[axis + 1 :]) == wanted
            number = tirx.Select(found, tirx.Cast("int64", i), tirx.const(0, "int64"))
            return te.sum(number, axis=among)

        shape = [*data.shape[:axis], count, *data.shape[axis + 1 :]]
        return te.compute(shape, place, name="places")

    return emit.te(loops, x, name="places_of_ranks")


def _count_of_nan(data: te.Tensor, axis: int) -> te.Tensor:
    among = te.reduce_axis((0, data.shape[axis]), "n")

    def count(*at: Any) -> Any:
        value = data(*at[:axis], among.var, *at[axis:])
        return te.sum(tirx.Cast("int32", is_nan(value)), axis=among)

    return te.compute([*data.shape[:axis], *data.shape[axis + 1 :]], count, name="undefined")


def _kthvalue(emit: Emit, x: relax.Expr, k: int, dim: int, keepdim: bool) -> Pair:
    rows, axis = _rows(emit, x, dim)
    places = _places_of_ranks(emit, rows, axis, lambda *_: tirx.const(k - 1, "int32"), 1)
    return _with_values(emit, rows, axis, places)


def _median(emit: Emit, x: relax.Expr, dim: int, keepdim: bool, *, skips_nan: bool) -> Pair:
    """The lower one of two medians; NaN where there is one, or where there is nothing else."""
    rows, axis = _rows(emit, x, dim)
    extent = shape_of(rows)[axis]
    if not extent:
        raise Refusal("a median of no elements")
    if len(shape_of(rows)) == 1:  # so that there is something that tells rows apart
        rows, axis = emit.reshape(rows, (1, extent)), 1

    def rank(undefined: Any, _: Any) -> Any:
        if undefined is None:
            return tirx.const((extent - 1) // 2, "int32")
        if skips_nan:
            return tirx.floordiv(tirx.max(extent - undefined - 1, 0), 2)
        first_nan = extent - undefined
        return tirx.Select(undefined > 0, first_nan, tirx.const((extent - 1) // 2, "int32"))

    places = _places_of_ranks(emit, rows, axis, rank, 1)
    if len(emit.results) == 1:
        return emit.reshape(along(emit, rows, axis, places), emit.shape), None
    return _with_values(emit, rows, axis, places)


def _median_of_all(emit: Emit, x: relax.Expr, *, skips_nan: bool) -> relax.Expr | None:
    flat = emit.reshape(x, (math.prod(shape_of(x)),))
    return _median(emit, flat, 0, False, skips_nan=skips_nan)[0]


def _mode(emit: Emit, x: relax.Expr, dim: int, keepdim: bool) -> Pair:
    """The most frequent value, the smallest of several, and its last place."""
    rows, axis = _rows(emit, x, dim)
    extent = shape_of(rows)[axis]
    if not extent:
        raise Refusal("a mode of no elements")

    def loops(data: te.Tensor) -> te.Tensor:
        def key(at: Sequence[Any], k: Any) -> Any:
            return rising_key(data(*at[:axis], k, *at[axis + 1 :]))

        def reduced(name: str, reduce: Any, value: Callable[..., Any], count: int) -> te.Tensor:
            reduction = te.reduce_axis((0, extent), "k")
            shape = [*data.shape[:axis], count, *data.shape[axis + 1 :]]
            return te.compute(
                shape, lambda *at: reduce(value(at, reduction.var), axis=reduction), name=name
            )

        def of(table: te.Tensor, at: Sequence[Any], k: Any) -> Any:
            return table(*at[:axis], k, *at[axis + 1 :])

        often = reduced(
            "often",
            te.sum,
            lambda at, k: tirx.Cast("int32", key(at, k) == key(at, at[axis])),
            extent,
        )
        most = reduced("most", te.max, lambda at, k: of(often, at, k), 1)
        largest = tirx.max_value(str(key([0] * len(data.shape), 0).ty.dtype))

        def candidate(at: Sequence[Any], k: Any) -> Any:
            return tirx.Select(of(often, at, k) == of(most, at, 0), key(at, k), largest)

        least = reduced("least", te.min, candidate, 1)

        def place(at: Sequence[Any], k: Any) -> Any:
            found = key(at, k) == of(least, at, 0)
            return tirx.Select(found, tirx.Cast("int64", k), tirx.const(-1, "int64"))

        return reduced("place", te.max, place, 1)

    return _with_values(emit, rows, axis, emit.te(loops, rows, name="mode"))


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_sort, _ATEN.sort.default, _ATEN.sort.stable),
    _ATEN.topk.default: _topk,
    _ATEN.kthvalue.default: _kthvalue,
    _ATEN.median.dim: partial(_median, skips_nan=False),
    _ATEN.median.default: partial(_median_of_all, skips_nan=False),
    _ATEN.nanmedian.dim: partial(_median, skips_nan=True),
    _ATEN.nanmedian.default: partial(_median_of_all, skips_nan=True),
    _ATEN.mode.default: _mode,
}
