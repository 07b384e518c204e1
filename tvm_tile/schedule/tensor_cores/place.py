"""Values of a product's axes for a position in one of its tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place as Place
from tvm_tile.graph.expression import digits, quotient, remainder
from tvm_tile.graph.expression import value_of as value_of
from tvm_tile.graph.positions import Grouped
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.tile.units.product import Operand


class Side(Protocol):
    """The rows, or the columns, of a tile."""

    def at(self, position: Any, origin: Place) -> tuple[Place, list[Any]]:
        """Values of the side's axes at a position, and the conditions for them to be any.

        Args:
            position: position in the tile.
            origin: the tile's first values.
        """
        ...

    def inside(self, position: Any, origin: Place, count: int = 1, number: Any = 0) -> Place:
        """Values of the side's axes at a position, or at the last one where there are none.

        So elements may be loaded at any position, and nothing branches between loads.

        Args:
            position: position in the tile, the first of ``count`` neighbours that keep together.
            origin: the tile's first values.
            count: number of these neighbours.
            number: number of one of these neighbours.
        """
        ...

    def keeps_together(self, count: int) -> bool:
        """Whether ``count`` neighbours from a multiple of it on all are in the output or none is.

        They then also are neighbours along one axis.
        """
        ...


@dataclass(frozen=True, slots=True)
class Boxed:
    """A side whose tile is a box of its axes.

    Attributes:
        operand: operand that has the rows, or columns.
        box: their extents in the tile.
        size: positions of the tile, of which the box may fill fewer.
    """

    operand: Operand
    box: tuple[int, ...]
    size: int

    def at(self, position: Any, origin: Place) -> tuple[Place, list[Any]]:
        """Values of the free axes at a position of the box; conditions for them to be any."""
        free, box = self.operand.free, self.box
        place = {name: origin[name] + digit for name, digit in digits(position, free, box)}
        fits = [
            place[axis.name] < axis.extent
            for axis, extent in zip(free, box, strict=True)
            if axis.extent % extent
        ]
        if math.prod(box) < self.size:
            fits.append(position < math.prod(box))
        return place, fits

    def inside(self, position: Any, origin: Place, count: int = 1, number: Any = 0) -> Place:
        """Values of the free axes at a position of the box, each at most its last one."""
        place, _ = self.at(position, origin)
        last = {axis.name: axis.extent - 1 for axis in self.operand.free}
        if self.operand.free:
            last[self.operand.free[-1].name] -= count - 1
        inside = {name: ib.min(value, last[name]) for name, value in place.items()}
        if self.operand.free:
            inside[self.operand.free[-1].name] += number
        return inside

    def of_elements(self, sums: int) -> Boxed:
        """The side of elements that so many sums make, neighbours along the last axis."""
        if sums == 1:
            return self
        operand = replace(self.operand, free=self.operand.free[:-1])
        return Boxed(operand, self.box[:-1], self.size // sums)

    def keeps_together(self, count: int) -> bool:
        """Whether the side has one axis, whose extents in tensor and tile ``count`` divides."""
        free = self.operand.free
        return len(free) == 1 and free[0].extent % count == 0 and self.box[0] % count == 0


@dataclass(frozen=True, slots=True)
class Flat:
    """A side whose axes are walked as one, the last the fastest.

    Attributes:
        axes: axes of the product.
        size: positions of a tile.
        first: number of the tile's first position.
    """

    axes: tuple[Axis, ...]
    size: int
    first: Any

    def at(self, position: Any, origin: Place) -> tuple[Place, list[Any]]:
        """Values of the axes at a position from ``first`` on; conditions for them to be any."""
        extents = [axis.extent for axis in self.axes]
        number = self.first + position
        fits = [number < math.prod(extents)] if math.prod(extents) % self.size else []
        return dict(digits(number, self.axes, extents)), fits

    def inside(self, position: Any, origin: Place, count: int = 1, number: Any = 0) -> Place:
        """Values of the axes at a position from ``first`` on, or at the last one there is."""
        extents = [axis.extent for axis in self.axes]
        first = ib.min(self.first + position, math.prod(extents) - count)
        return dict(digits(first + number, self.axes, extents))

    def of_elements(self, sums: int) -> Flat:
        """The side of elements that so many sums make, neighbours along the last axis."""
        if sums == 1:
            return self
        return Flat(self.axes[:-1], self.size // sums, ib.Bind(self.first // sums))

    def keeps_together(self, count: int) -> bool:
        """Whether ``count`` divides the extent of the last axis."""
        return bool(self.axes) and self.axes[-1].extent % count == 0


@dataclass(frozen=True, slots=True)
class GroupRows:
    """A side of rows in groups: those of a list, as far as a tile's go.

    Attributes:
        groups: the groups; a tile's origin has its first place in the list, and its rows' number,
            at least one.
        order: the list; a buffer.
    """

    groups: Grouped
    order: Any

    def at(self, position: Any, origin: Place) -> tuple[Place, list[Any]]:
        """Values of the axes at a position, or at the last one; the condition for it to be any."""
        first, count = origin[self.groups.place.name], origin[self.groups.held]
        own = ib.Bind(self.order[first + ib.min(position, count - 1)])
        axes = self.groups.rows
        return dict(digits(own, axes, [axis.extent for axis in axes])), [position < count]

    def inside(self, position: Any, origin: Place, count: int = 1, number: Any = 0) -> Place:
        """Values of the axes at a position, or at the last one: none keeps together with others."""
        return self.at(position, origin)[0]

    def keeps_together(self, count: int) -> bool:
        """Whether neighbours in the list are neighbours: never, if there are several."""
        return count == 1


def raster_place(index: Any, rows: Any, columns: Any, group: int) -> tuple[Any, Any, Any]:
    """Tile of rows, of columns, and batch: ``group`` tiles of rows before the next of columns.

    Blocks that run together then share their columns, and their rows, in the second-level cache.
    """
    tiles = rows * columns
    batch = ib.Bind(quotient(index, tiles))
    within = ib.Bind(remainder(index, tiles))
    first = ib.Bind(quotient(within, group * columns) * group)
    rest = ib.Bind(remainder(within, group * columns))
    if not isinstance(rows, int):
        size = ib.min(rows - first, group)
        return ib.Bind(first + remainder(rest, size)), ib.Bind(quotient(rest, size)), batch
    size = group if rows % group == 0 else ib.Bind(ib.min(rows - first, group))
    return ib.Bind(first + rest % size), ib.Bind(rest // size), batch


def linear(operand: Operand, indices: Sequence[Any]) -> Any:
    """Elements from the start of an operand's tensor."""
    total: Any = tirx.const(0, "int32")
    for index, stride in zip(indices, operand.strides, strict=True):
        total = total + index * (stride // operand.tensor.element_size)
    return total
