"""Ends of a product's axes in a call of open extents.

A kernel is made for the greatest extents; a call needs the output's elements within its own. Of an
axis along which these end earlier, the limit says where: kernels leave out the tiles behind it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import sym, tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tile_graph import AffineIndex, Axis
from tvm_tile.schedule.tensor_cores.epilogue import Epilogue
from tvm_tile.tile.units.product import Operand, Product

Limits = Mapping[str, Any]
"""Name of an axis -> how many of its values a call needs, int32; of all others all."""


def limits_of(
    epilogue: Epilogue, shape: Sequence[int], extents: Sequence[Any], axes: Sequence[Axis]
) -> Limits:
    """The limits of a product's axes.

    Args:
        epilogue: stores the sums, in an output of which neighbouring dimensions may be one.
        shape: shape of the output, as callers know it.
        extents: extents of the output in a call: numbers, or expressions.
        axes: axes of the product.
    """
    found: dict[str, Any] = {}
    sizes = {axis.name: axis.extent for axis in axes}
    known = _regrouped(shape, extents, [int(e) for e in epilogue.buffer.ty.shape])
    for index, extent in zip(epilogue.indices, known, strict=True):
        limit = None if extent is None else _limit(index, extent, epilogue.element.axes, sizes)
        if limit is not None:
            found[limit[0]] = tirx.Cast("int32", limit[1])
    return found


def limited(extent: int, limit: Any) -> Any:
    """How many values of an axis a call needs: all, if there is no limit."""
    return extent if limit is None else limit


def _regrouped(shape: Sequence[int], extents: Sequence[Any], wanted: Sequence[int]) -> list[Any]:
    """Open extents of a shape some of whose neighbouring dimensions are one; ``None`` for others.

    Of dimensions that are one, only the first that is not 1 may be open; if others are, nothing is
    known of them.
    """
    found: list[Any] = []
    at = 0
    for size in wanted:
        group: list[int] = []
        while at < len(shape) and math.prod(shape[i] for i in group) < size:
            group.append(at)
            at += 1
        if math.prod(shape[i] for i in group) != size:
            return [None] * len(wanted)
        group = [i for i in group if shape[i] > 1]
        is_open = [not isinstance(extents[i], tirx.IntImm) for i in group]
        inner = math.prod(shape[i] for i in group[1:])
        is_known = is_open[:1] == [True] and not any(is_open[1:])
        found.append(extents[group[0]] * inner if is_known else None)
    return found


def _limit(
    index: Any, extent: Any, axes: Mapping[Any, AffineIndex], sizes: Mapping[str, int]
) -> tuple[str, Any] | None:
    """The axis that an index is all of, or the first digits of, and its limit."""
    if isinstance(index, tirx.FloorDiv) and isinstance(index.b, tirx.IntImm):
        inner = _limit(index.a, extent * int(index.b), axes, sizes)
        return inner
    if not isinstance(index, tirx.Var) or index not in axes:
        return None
    own = axes[index]
    terms = [(name, c) for name, c in own.terms if sizes[name] > 1]
    if own.offset or not terms:
        return None
    name, step = max(terms, key=lambda term: term[1])
    if min(c for _, c in terms) < 1:
        return None
    return name, sym.Analyzer().simplify((extent + (step - 1)) // step)


def bound_limits(limits: Limits) -> Limits:
    """Limits as registers of the kernel that is being written."""
    return {name: in_register(limit) for name, limit in limits.items()}


def in_register(value: Any) -> Any:
    """An int32 as a load of a register, unless it is a number.

    TVM's passes put expressions in the place of the variables that are bound to them, and take long
    over quotients by these; of a load they know nothing.
    """
    if isinstance(value, int):
        return value
    register = ib.alloc_buffer((1,), "int32", scope="local")
    ib.buffer_store(register, value, [0])
    return register[0]


def zero_register(dtype: str = "int32") -> Any:
    """A register of a thread, of one number, that begins at zero."""
    register = ib.alloc_buffer((1,), dtype, scope="local")
    ib.buffer_store(register, tirx.const(0, dtype), [0])
    return register


def count_boxes(axes: Sequence[Axis], box: Sequence[int], limits: Limits) -> list[Any]:
    """Tiles of a box along each axis in a call."""
    pairs = zip(axes, box, strict=True)
    return [_count_parts(axis.extent, limits.get(axis.name), size) for axis, size in pairs]


def _count_parts(extent: int, limit: Any, size: int) -> Any:
    """How many tiles of a size cover all values that a call needs; one is needed always."""
    return in_register((limited(extent, limit if extent > size else None) + (size - 1)) // size)


def count_rows(operand: Operand, size: int, limits: Limits) -> list[Any]:
    """Tiles of rows along each free axis in a call; one number where these are walked as one."""
    if operand.is_depth_major:
        whole = math.prod(axis.extent for axis in operand.free)
        return [_count_parts(whole, count_all(operand.free, limits), size)]
    return count_boxes(operand.free, (*(1 for _ in operand.free[:-1]), size), limits)


def count_all(axes: Sequence[Axis], limits: Limits) -> Any:
    """Values of axes that are walked as one, the last the fastest, up to the last that a call
    needs."""
    whole = math.prod(axis.extent for axis in axes)
    wide = [axis for axis in axes if axis.extent > 1]
    if not wide or wide[0].name not in limits:
        return whole
    return limits[wide[0].name] * (whole // wide[0].extent)


def count_tiles(
    product: Product, rows: Sequence[Any], columns: Sequence[Any], limits: Limits
) -> Any:
    """Tiles of all batches in a call, given those along the axes."""
    total = count_all(product.batch, limits)
    for count in (*rows, *columns):
        total = total * count
    return total
