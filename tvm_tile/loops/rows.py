"""Rows of tensors, in loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tvm import relax, tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Rows


def number(value: int) -> Any:
    """An index: 64 bits, which TVM narrows where 32 will do."""
    return tirx.IntImm("int64", value)


@contextmanager
def each_element(name: str, extents: Sequence[int]) -> Iterator[list[Any]]:
    """A block of this name for each element of a tensor of one axis or more: its axes."""
    with ib.grid(*map(number, extents)) as found, ib.sblock(name):
        loops = [found] if isinstance(found, tirx.Var) else list(found)
        pairs = zip(extents, loops, strict=True)
        yield [ib.axis.spatial(number(extent), loop) for extent, loop in pairs]


def as_rows(
    builder: relax.BlockBuilder, x: relax.Expr, axis: int | None
) -> tuple[relax.Expr, Rows]:
    """A tensor and its rows along ``axis``; all its elements as one row where that is ``None``.

    Raises:
        ValueError: the shape is not static, or there is no such axis.
    """
    shape = tuple(int(extent) for extent in x.ty.shape)
    if axis is None and len(shape) != 1:
        shape = (math.prod(shape),)
        x = builder.emit(relax.op.reshape(x, list(shape)))
    place = 0 if axis is None else axis
    if not -len(shape) <= place < len(shape):
        raise ValueError(f"a tensor of {len(shape)} dimensions has no axis {axis}")
    return x, Rows(shape, place % len(shape))


def shape_of(rows: Rows) -> list[Any]:
    """The shape of a tensor, as the type of a buffer has it."""
    return [number(extent) for extent in rows.shape]


def index_of(rows: Rows, row: Any, place: Any) -> list[Any]:
    """Indices of one element: of the row of this number, at this place."""
    outer, inner = row, None
    if rows.inner > 1:
        outer, inner = (
            tirx.floordiv(row, number(rows.inner)),
            tirx.floormod(row, number(rows.inner)),
        )
    before = _digits(outer, rows.shape[: rows.axis])
    behind = rows.shape[rows.axis + 1 :]
    after = [number(0) for _ in behind] if inner is None else _digits(inner, behind)
    return [*before, place, *after]


def _digits(flat: Any, shape: Sequence[int]) -> list[Any]:
    """Position along each dimension of a flat position."""
    found: list[Any] = []
    for place, extent in reversed(list(enumerate(shape))):
        is_first = math.prod(shape[:place]) == 1
        found.append(flat if is_first else tirx.floormod(flat, number(extent)))
        flat = number(0) if is_first else tirx.floordiv(flat, number(extent))
    return found[::-1]


def call_loops(
    builder: relax.BlockBuilder,
    loops: tirx.PrimFunc,
    name: str,
    arguments: Sequence[relax.Expr],
    types: Sequence[relax.TensorType],
) -> tuple[relax.Expr, ...]:
    """Emit a call of ``loops``; its outputs, which are of these types."""
    function = builder.add_func(loops, name)
    out = types[0] if len(types) == 1 else list(types)
    result = builder.emit(relax.call_tir(function, list(arguments), out))
    if len(types) == 1:
        return (result,)
    places = range(len(types))
    return tuple(builder.emit(relax.TupleGetItem(result, place)) for place in places)
