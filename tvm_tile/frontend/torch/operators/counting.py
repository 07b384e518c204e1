"""What is found by counting: places in sorted sequences, histograms, repetitions, non-zeros."""

from __future__ import annotations

import math
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, constant, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.indexing import along, clamped
from tvm_tile.loops.keys import is_nan, rising_key


def _searchsorted(
    emit: Emit,
    sorted_sequence: relax.Expr,
    x: relax.Expr | float,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: relax.Expr | None,
) -> relax.Expr:
    """How many elements of the sequence come before each value."""
    if sorter is not None:
        axis = len(shape_of(sorted_sequence)) - 1
        sorted_sequence = along(emit, sorted_sequence, axis, sorter)
    is_right = right or side == "right"
    sequence, given = emit.promoted(sorted_sequence, x)
    given = emit.reshape(given, shape_of(given) or (1,))
    extent = shape_of(sequence)[-1]
    if not extent:
        return emit.full(0)

    def loops(data: te.Tensor, wanted: te.Tensor) -> te.Tensor:
        reduction = te.reduce_axis((0, extent), "k")
        is_shared = len(data.shape) == 1

        def count(*at: Any) -> Any:
            lead = () if is_shared else at[:-1]
            element, value = data(*lead, reduction.var), wanted(*at)
            own, limit = rising_key(element), rising_key(value)
            before = own <= limit if is_right else own < limit
            if "float" in str(data.dtype):
                before = tirx.any(before, is_nan(value))
            return te.sum(tirx.Cast("int32", before), axis=reduction)

        total = te.compute(wanted.shape, count, name="count")
        if out_int32:
            return total
        return te.compute(wanted.shape, lambda *at: total(*at).astype("int64"), name="widened")

    return emit.reshape(emit.te(loops, sequence, given, name="searchsorted"), emit.shape)


def _bucketize(
    emit: Emit, x: relax.Expr | float, boundaries: relax.Expr, out_int32: bool, right: bool
) -> relax.Expr:
    return _searchsorted(emit, boundaries, x, out_int32, right, None, None)


def _histc(emit: Emit, x: relax.Expr, bins: int, min: float, max: float) -> relax.Expr:
    """Counts of elements between two bounds; without bounds, between the least and the largest."""
    count = math.prod(shape_of(x))
    dtype = dtype_of(x)
    if not dtype.is_floating_point:
        raise Refusal(f"elements of type {dtype}")
    if not count:
        return emit.full(0)
    row = emit.reshape(x, (count,))
    bounds = [constant(min, dtype), constant(max, dtype)]
    if min == max and min != 0:
        bounds = [constant(min - 1, dtype), constant(max + 1, dtype)]
    elif min == max:
        least, most = emit(relax.op.min(row)), emit(relax.op.max(row))
        same = emit(relax.op.equal(least, most))
        one = constant(1, dtype)
        bounds = [
            emit(relax.op.where(same, emit(relax.op.subtract(least, one)), least)),
            emit(relax.op.where(same, emit(relax.op.add(most, one)), most)),
        ]

    def loops(data: te.Tensor, low: te.Tensor, high: te.Tensor) -> te.Tensor:
        reduction = te.reduce_axis((0, count), "k")

        def is_in(bin: Any) -> Any:
            value = data(reduction.var)
            place = (value - low()) * tirx.const(bins, str(data.dtype)) / (high() - low())
            number = tirx.min(tirx.floor(place), tirx.const(bins - 1, str(data.dtype)))
            inside = tirx.all(value >= low(), value <= high())
            return tirx.all(inside, number == bin.astype(str(data.dtype)))

        total = te.compute(
            (bins,),
            lambda b: te.sum(tirx.Cast("int32", is_in(b)), axis=reduction),
            name="counts",
        )
        return te.compute((bins,), lambda b: total(b).astype(str(data.dtype)), name="histogram")

    return emit.te(loops, row, *bounds, name="histogram")


def _repeat_interleave(emit: Emit, repeats: relax.Expr, output_size: int | None) -> relax.Expr:
    """Each number as often as is told; how many that are must be known (``output_size``)."""
    ends = emit(relax.op.cumsum(emit.cast(repeats, torch.int64), 0, "int64"))
    (count,) = shape_of(repeats)

    def loops(data: te.Tensor) -> te.Tensor:
        total = _passed(data, emit.shape[0])
        return te.compute(emit.shape, lambda i: clamped(total(i), count), name="numbers")

    return emit.cast(emit.te(loops, ends, name="repeat_interleave"), emit.dtype)


def _passed(ends: te.Tensor, count: int) -> te.Tensor:
    """How many of rising numbers are at most 0, 1, 2, ..."""
    among = te.reduce_axis((0, ends.shape[0]), "k")

    def passed(i: Any) -> Any:
        return te.sum(tirx.Cast("int64", ends(among.var) <= i), axis=among)

    return te.compute((count,), passed, name="passed")


def _nonzero_static(emit: Emit, x: relax.Expr, size: int, fill_value: int) -> relax.Expr:
    """The first places that are not 0, as many as are asked for, a row each."""
    shape = shape_of(x)
    if 0 in shape:
        return emit.full(fill_value)
    flags = emit.cast(emit.reshape(x, (math.prod(shape),)), torch.bool)
    ends = emit(relax.op.cumsum(emit.cast(flags, torch.int64), 0, "int64"))

    def loops(data: te.Tensor) -> te.Tensor:
        total = _passed(data, size)
        count = math.prod(shape)

        def place(row: Any, dimension: Any) -> Any:
            digits: list[Any] = []
            rest = total(row)
            for extent in reversed(shape):
                digits.insert(0, tirx.floormod(rest, tirx.const(extent, "int64")))
                rest = tirx.floordiv(rest, tirx.const(extent, "int64"))
            found = digits[0]
            for axis, digit in enumerate(digits):
                found = tirx.Select(dimension == axis, digit, found)
            return tirx.Select(total(row) < count, found, tirx.const(fill_value, "int64"))

        return te.compute(emit.shape, place, name="places")

    return emit.te(loops, ends, name="nonzero_static")


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_searchsorted, _ATEN.searchsorted.Tensor, _ATEN.searchsorted.Scalar),
    **overloads(_bucketize, _ATEN.bucketize.Tensor, _ATEN.bucketize.Scalar),
    _ATEN.histc.default: _histc,
    _ATEN.repeat_interleave.Tensor: _repeat_interleave,
    _ATEN.nonzero_static.default: _nonzero_static,
}
