"""Position of the largest or the smallest element of a row: one plain reduction of integers.

The first of equal elements is found, and NaN wins, as in PyTorch and NumPy. Loops of an argmax over
32-bit values::

    for i, k: best[i] = min(best[i], key(A[i, k]) << 32 | k)
    for i:    B[i] = best[i] & 0xFFFFFFFF

A key of 64 bits leaves no room for a place, so that there are two reductions::

    for i, k: best[i] = max(best[i], key(A[i, k]))
    for i, k: B[i] = min(B[i], k if key(A[i, k]) == best[i] else 2**31 - 1)

TVM's own reduce pairs of a value and an index, of which no schedule rule of ours is, and give -1
for a row of NaN or of the least value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import relax, te, tirx

from tvm_tile.loops.keys import first_key, key_bits, winning_key

_PLACES = 0xFFFFFFFF


def argument_of_largest(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.argmax`` as loops."""
    return _argument(builder, call, largest=True)


def argument_of_smallest(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.argmin`` as loops."""
    return _argument(builder, call, largest=False)


def _argument(builder: relax.BlockBuilder, call: relax.Call, *, largest: bool) -> relax.Expr:
    """Loops of argmax or argmin."""
    x, axis = call.args[0], call.attrs.axis
    shape = [int(extent) for extent in x.ty.shape]
    name = "argmax" if largest else "argmin"
    write = _packed if key_bits(str(x.ty.dtype)) == 32 else _in_two_steps
    if axis is None or not shape:
        # One row of all: schedule rules look for what tells rows apart.
        shape, place = [1, math.prod(shape)], 1
        x = builder.emit(relax.op.reshape(x, shape))
    else:
        place = int(axis) % len(shape)
    if not shape[place]:
        raise ValueError(f"{name} of no elements")

    def loops(data: te.Tensor) -> te.Tensor:
        return write(data, place, name, largest=largest)

    found = builder.call_te(loops, x, primfunc_name_hint=name)
    if len(call.ty.shape) == len(shape) - 1:
        return found
    return relax.op.reshape(builder.emit(found), call.ty.shape)


def _packed(rows: te.Tensor, axis: int, name: str, *, largest: bool) -> te.Tensor:
    """Positions by one reduction: key and position in one integer."""

    def packed(value: Any, place: Any) -> Any:
        key = tirx.Cast("int64", first_key(value, largest=largest))
        # Of 32 bits, whose loops count with no more, and without a sign.
        own = tirx.Cast("int64", tirx.Cast("uint32", tirx.Cast("int32", place)))
        return (key << tirx.const(32, "int64")) | own

    best = _reduced(rows, axis, te.min, packed, f"{name}_best")
    places = tirx.const(_PLACES, "int64")
    return te.compute(best.shape, lambda *at: best(*at) & places, name=name)


def _in_two_steps(rows: te.Tensor, axis: int, name: str, *, largest: bool) -> te.Tensor:
    """Positions by two reductions: the best key, then the first place that has it."""

    def key(value: Any, _: Any) -> Any:
        return winning_key(value, largest=largest)

    best = _reduced(rows, axis, te.max, key, f"{name}_best")

    def first(value: Any, place: Any, *at: Any) -> Any:
        is_best = winning_key(value, largest=largest) == best(*at)
        return tirx.Select(is_best, tirx.Cast("int32", place), tirx.max_value("int32"))

    place = _reduced(rows, axis, te.min, first, f"{name}_place", with_position=True)
    return te.compute(place.shape, lambda *at: tirx.Cast("int64", place(*at)), name=name)


def _reduced(
    rows: te.Tensor,
    axis: int,
    reduce: Callable[..., Any],
    element: Callable[..., Any],
    name: str,
    *,
    with_position: bool = False,
) -> te.Tensor:
    """``reduce`` of ``element(value, place)``, or of ``element(value, place, *position)``."""
    shape = [*rows.shape[:axis], *rows.shape[axis + 1 :]]
    along = te.reduce_axis((0, rows.shape[axis]), "k")

    def body(*at: Any) -> Any:
        value = rows(*at[:axis], along.var, *at[axis:])
        given = (value, along.var, *at) if with_position else (value, along.var)
        return reduce(element(*given), axis=along)

    return te.compute(shape, body, name=name)
