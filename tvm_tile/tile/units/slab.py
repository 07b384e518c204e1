"""How a chunk of an operand lies in shared memory, and how wide its copies are.

A chunk is lines of 16-byte units. With the depth contiguous a line is one row at all its depths;
otherwise it is all rows at one depth. Units of a line change places by the line's number (a
swizzle), so that what a warp touches at once lies on all banks: eight units of neighbouring lines,
which it loads for the tensor cores, as well as eight neighbours of a line, which it copies there.
All methods take numbers as well as expressions of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from tvm_tile.graph.tile_graph import Axis
from tvm_tile.tile.units.product import Operand, Product

ELEMENT = 2  # bytes
UNIT = 8  # elements that the tensor cores' loads keep together
UNIT_BYTES = 16
FRAGMENT = 16  # rows, and depth, of what a warp loads at once
_BANKS = 8  # of a unit each
_NARROWEST_ASYNC = 2  # elements: 4 bytes
_LINES_ACROSS = 2  # of 16 bytes, of a unit that begins anywhere


@dataclass(frozen=True, slots=True)
class Chunk(ABC):
    """How one operand's chunk lies in a stage: as lines of units of 16 bytes.

    Attributes:
        rows: rows of the block's tile; columns for the right operand.
        depth: depth of the chunk, in elements.
        is_turned: whether rows, not the depth, are contiguous in global memory.
        width: elements of one copy.
        start: bytes into the stage.
    """

    rows: int
    depth: int
    is_turned: bool
    width: int
    start: int = field(default=0, kw_only=True)

    @property
    @abstractmethod
    def lines(self) -> int:
        """Lines of a chunk."""

    @property
    @abstractmethod
    def units(self) -> int:
        """Units of 16 bytes in a line."""

    @property
    @abstractmethod
    def is_by_element(self) -> bool:
        """Whether units begin anywhere, since fewer elements than a word lie side by side."""

    @property
    def line_bytes(self) -> int:
        """Bytes of a line."""
        return self.units * UNIT_BYTES

    @property
    def size(self) -> int:
        """Bytes of all lines."""
        return self.lines * self.line_bytes


@dataclass(frozen=True, slots=True)
class Slab(Chunk):
    """How one operand's chunk lies in a stage, for NVIDIA's tensor cores.

    Rows and depth are powers of two of at least 16, a copy has 1 to 8 elements, and a slab starts
    at a multiple of the bytes of 16 lines.
    """

    @property
    def lines(self) -> int:
        """Lines of a chunk."""
        return self.depth if self.is_turned else self.rows

    @property
    def units(self) -> int:
        """Units of 16 bytes in a line."""
        return (self.rows if self.is_turned else self.depth) // UNIT

    @property
    def is_by_element(self) -> bool:
        """Whether copies are too narrow for cp.async, and go through registers."""
        return self.width < _NARROWEST_ASYNC

    @property
    def copies(self) -> int:
        """Copies that bring a unit; loads of the lines it lies across, if it begins anywhere."""
        return _LINES_ACROSS if self.is_by_element else UNIT // self.width

    def offset(self, line: Any, unit: Any) -> Any:
        """Bytes into the stage to a unit."""
        spread = min(self.units, _BANKS)
        swizzled = unit ^ (line // (_BANKS // spread) % spread)
        return self.start + (line * self.units + swizzled) * UNIT_BYTES

    def element(self, thread: Any, copy: Any) -> Any:
        """The element of its unit that a thread's copy begins at, if a unit takes several.

        Threads whose units lie on the same banks take turns at the parts of these.
        """
        if self.is_by_element:
            return copy  # to a register; whole units are stored
        return (copy + thread // _BANKS) % (UNIT // self.width) * self.width

    def position(self, line: Any, unit: Any) -> tuple[Any, Any]:
        """Row and depth of a unit's first element."""
        return (unit * UNIT, line) if self.is_turned else (line, unit * UNIT)

    def fragment(self, lane: Any, row: Any, *, is_right: bool) -> Any:
        """Bytes to the unit that a lane points out for 16 rows by a depth of 16 (ldmatrix.x4).

        Its four 8-by-8 matrices go to a thread's registers one after the other. A left operand's
        are upper rows, lower rows, and both again eight deeper; a right one's, of which each
        instruction takes half, upper rows, these eight deeper, and the same of the lower rows.

        Args:
            lane: lane of the warp.
            row: the warp's first, a multiple of its rows.
            is_right: whether it is the right operand.
        """
        low, high = lane // 8 % 2, lane // 16
        lower, deeper = (high, low) if is_right else (low, high)
        if self.is_turned:
            return self.offset(lane % 8 + deeper * 8, row // UNIT + lower)
        return self.offset(row + lane % 8 + lower * 8, deeper)

    def moved(self, start: Any, row: int, depth: int) -> Any:
        """The result of :meth:`fragment`, ``row`` of the warp's rows and ``depth`` further.

        Both are multiples of 16: no swizzle differs within these lines, and no bit of the unit is
        set in both numbers.
        """
        line, unit = (depth, row // UNIT) if self.is_turned else (row, depth // UNIT)
        exchanged = start ^ (unit * UNIT_BYTES) if unit else start
        return exchanged + line * self.units * UNIT_BYTES if line else exchanged


def vector_width(operand: Operand, depth: Axis) -> int:
    """Elements that one copy can bring: 8, 4, 2 or 1, aligned and all inside or all outside.

    Tensors begin aligned. Copies start at multiples of the width along the contiguous axis.
    """
    index = operand.indices[-1]
    inner = depth if operand.is_depth_major else operand.free[-1]
    steps = [stride // operand.tensor.element_size for stride in operand.strides[:-1]]
    return math.gcd(
        UNIT_BYTES // operand.tensor.element_size,
        *steps,
        index.offset,
        inner.extent,
        operand.tensor.shape[-1],
    )


def leaves(product: Product, operand: Operand) -> list[tuple[bool, bool]]:
    """Whether indices lie below zero, or behind the last element, for each dimension."""
    axes = (*operand.free, *product.outer, *product.steps, product.depth)
    last = {axis.name: axis.extent - 1 for axis in axes}
    found = []
    for index, extent in zip(operand.indices, operand.tensor.shape, strict=True):
        highest = index.offset + sum(c * last[name] for name, c in index.terms)
        found.append((index.offset < 0, highest >= extent))
    return found
