"""The vectors of a coded product's block: all, or some that are multiplied with the same matrix.

Where each vector has a matrix of its own, blocks come in slots: all rows of a matrix times the
vectors of a slot. Of one vector a slot is known from its number, and which matrix it is from one
load; of several, a list tells both that a kernel made ahead
(:mod:`tvm_tile.schedule.tensor_cores.grouping`). Blocks of empty slots leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.build.leaving import leaving
from tvm_tile.graph.expression import digits
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.tensor_cores.limits import in_register
from tvm_tile.schedule.tensor_cores.parameters import views
from tvm_tile.schedule.tensor_cores.part import RowTable
from tvm_tile.schedule.tensor_cores.place import Boxed, GroupRows, Place, Side, raster_place
from tvm_tile.tile.coded.few_vectors import CodedTile

_RASTER = 1024  # vectors of slots that are walked before the next rows of their matrices


@dataclass(frozen=True, slots=True)
class VectorSlot:
    """Vectors of a block.

    Attributes:
        rows: the vectors, as rows of the product.
        origin: first values of their axes.
        group: number of their matrix; ``None`` where there is one matrix.
    """

    rows: Side
    origin: Place
    group: Any | None


def find_slot(
    found: CodedMatch,
    tile: CodedTile,
    buffers: Mapping[str, Any],
    block: Any,
    table: RowTable | None,
) -> tuple[VectorSlot, Any]:
    """The vectors of a block, and its number among those that have the matrix' rows.

    Args:
        found: the product.
        tile: how to compute it.
        buffers: the function's parameters by name.
        block: its number.
        table: which vectors are in slots; ``None`` where one is, or all are in the only one.
    """
    left, groups, group = found.found.product.left, found.found.product.groups, found.found.group
    if groups is None or group is None:
        zeros = {axis.name: tirx.const(0) for axis in left.free}
        whole = Boxed(left, tuple(axis.extent for axis in left.free), left.extent)
        return VectorSlot(whole, zeros, None), block
    each = tile.grid // tile.slots
    if table is None:
        number, place = ib.Bind(block // each), ib.Bind(block % each)
        extents = [axis.extent for axis in groups.rows]
        first = {name: ib.Bind(own) for name, own in digits(number, groups.rows, extents)}
        seen = views(group.tensors, found.found.shapes, buffers)
        own = in_register(tirx.Cast("int32", group.at(first, (), seen)))
        return VectorSlot(Boxed(left, (1,) * len(left.free), 1), first, own), place
    raster = min(tile.slots, max(1, _RASTER // found.slot))
    slot, place, _ = raster_place(block, tile.slots, each, raster)
    origin = table.origin(groups, slot)
    ib.evaluate(leaving(origin[groups.held] > 0))
    return VectorSlot(GroupRows(groups, table.order), origin, origin[groups.axis.name]), place
