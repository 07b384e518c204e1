"""How a chunk of an operand goes through registers to shared memory, and how it lies there.

In shared memory a chunk is lines of 16-byte units along the depth, one a row (of the right operand,
column), however the operand is stored: what lanes feed the matrix instructions with are whole
units. With the depth contiguous, a thread loads a unit and stores it. Otherwise it loads a patch,
some runs of 16 bytes along the rows at neighbouring depths, and stores it turned.

Units change places by their line's number (a swizzle), so that eight lanes which the memory serves
at once touch all banks: those that load neighbouring lines, those that store neighbouring units,
and those that store eight lines apart, as turned patches are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tile.tile.product import Operand, Product
from tvm_tile.tile.slab import UNIT_BYTES, vector_width

_BANKS = 8  # of a unit each
WORD = 4  # bytes, the least that is stored at once


@dataclass(frozen=True, slots=True)
class Panel:
    """One operand's chunk in a stage.

    Attributes:
        rows: of the block's tile; of the right operand, columns.
        depth: of the chunk, in elements: 4 or 8 units.
        element: bytes.
        is_turned: whether rows, not the depth, are contiguous in global memory.
        width: elements of one load; one, if fewer than a word.
        runs: of a patch.
        start: units into the stage.
    """

    rows: int
    depth: int
    element: int
    is_turned: bool
    width: int
    runs: int
    start: int = 0

    @property
    def unit(self) -> int:
        """Elements of a unit, and of a run."""
        return UNIT_BYTES // self.element

    @property
    def units(self) -> int:
        """Of a line."""
        return self.depth // self.unit

    @property
    def size(self) -> int:
        """Bytes."""
        return self.rows * self.depth * self.element

    @property
    def patches(self) -> int:
        """That threads load one at a time."""
        return self.size // UNIT_BYTES // self.runs

    @property
    def number(self) -> int:
        """Bytes of the numbers that loads leave in registers: words, or narrower elements."""
        return min(WORD, self.width * self.element)

    def offset(self, line: Any, unit: Any) -> Any:
        """Units into the stage to a unit of a line."""
        lines = _BANKS // self.units  # on all banks together
        key = line // lines % self.units
        key = key ^ self._spread(line) if self.is_turned else key
        place = line % lines * self.units + unit if lines > 1 else unit
        return self.start + line // lines * _BANKS + (place ^ key)

    def moved(self, start: Any, line: int, unit: int) -> Any:
        """What :meth:`offset` gave, so many lines and units further.

        Lines are a multiple of 16, and no bit is set in the numbers of both lines, or both units.
        """
        key = unit ^ (self._spread(line) if self.is_turned else 0)
        exchanged = start ^ key if key else start
        return exchanged + line * self.units if line else exchanged

    def _spread(self, line: Any) -> Any:
        """What tells lines apart that are a unit's elements, 4, 8 or 16, and their doubles apart.

        Each of eight, with :meth:`offset`'s own key, gets another number. Lines 16 apart, which
        are loaded together, keep the upper bits of theirs.
        """
        eighth = line // 8
        first = (eighth ^ (eighth // 8)) % 2
        return eighth // 2 % 2 + first * (16 // self.units) + eighth // 4 % 2 * (self.units // 2)

    def position(self, patch: Any) -> tuple[Any, Any]:
        """Row and depth of a patch's first element.

        Patches that share units are neighbours, then those along the contiguous axis.
        """
        if not self.is_turned:
            return patch // self.units, patch % self.units * self.unit
        parts = self.unit // self.runs
        across = self.rows // self.unit
        part = patch % parts * self.runs if parts > 1 else 0
        rest = patch // parts
        return rest % across * self.unit, rest // across * self.unit + part


def panel_of(product: Product, operand: Operand, rows: int, depth: int, threads: int) -> Panel:
    """That of an operand's tile; patches as deep as leave one to every thread."""
    element = operand.tensor.element_size
    unit = UNIT_BYTES // element
    runs = 1
    if not operand.is_depth_major:
        runs = min(unit, max(WORD // element, rows * depth // unit // threads))
    width = vector_width(operand, product.depth)
    width = width if width * element >= WORD else 1
    return Panel(rows, depth, element, not operand.is_depth_major, width, runs)
