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

from tvm_tile.tile.units.matrix_layout import MatrixLayout
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import UNIT_BYTES, Chunk, vector_width

_BANKS = 8  # of a unit each
LEAST_UNITS = 4  # of a line
_OF_AN_ADDRESS = 2  # registers
WORD = 4  # bytes, the least that is stored at once


@dataclass(frozen=True, slots=True)
class Panel(Chunk):
    """How one operand's chunk lies in a stage, for AMD's matrix cores.

    Its depth is 4, 8, 16 or 32 units; a copy is of one element, if it had fewer than a word.

    Attributes:
        element: bytes.
        runs: runs of a patch.
        handed_on: instruction whose sums of these rows, as its columns, are the next one's operand:
            each lane is to have units of neighbours; ``None``: lines are as rows are.
    """

    element: int
    runs: int
    handed_on: MatrixLayout | None = None

    @property
    def unit(self) -> int:
        """Elements of a unit, and of a run."""
        return UNIT_BYTES // self.element

    @property
    def lines(self) -> int:
        """Lines of a chunk, one a row."""
        return self.rows

    @property
    def units(self) -> int:
        """Units of 16 bytes in a line."""
        return self.depth // self.unit

    @property
    def is_by_element(self) -> bool:
        """Whether an element is loaded at a time."""
        return self.width == 1

    @property
    def patches(self) -> int:
        """Patches of the panel, each of which a thread loads at a time."""
        return self.size // UNIT_BYTES // self.runs

    @property
    def number(self) -> int:
        """Bytes of the numbers that loads leave in registers: words, or narrower elements."""
        return min(WORD, self.width * self.element)

    def registers(self, threads: int) -> int:
        """Registers of one of ``threads`` that have the panel on its way, with addresses."""
        turns = -(-self.patches // threads) * self.runs
        rows = self.unit if self.is_turned else 0  # where each row's part goes
        return turns * (UNIT_BYTES // self.number + _OF_AN_ADDRESS) + rows

    def offset(self, line: Any, unit: Any) -> Any:
        """Units into the stage to a unit of a line."""
        lines = max(1, _BANKS // self.units)  # on all banks together
        key = line // lines % self._spread_units
        key = key ^ self._spread(line) if self.is_turned else key
        place = line % lines * self.units + unit if lines > 1 else unit
        return self.start // UNIT_BYTES + line // lines * (lines * self.units) + (place ^ key)

    def line(self, row: Any) -> Any:
        """The line of a row."""
        return row if self.handed_on is None else self.handed_on.column(row)

    def moved(self, start: Any, line: int, unit: int) -> Any:
        """The result of :meth:`offset`, ``line`` lines and ``unit`` units further.

        Lines are a multiple of 16, and no bit is set in the numbers of both lines, or both units.
        """
        key = unit ^ (self._spread(line) if self.is_turned else 0)
        # Behind the units that change places, a compiler need not know the start to add.
        within, far = key % _BANKS, key // _BANKS * _BANKS + line * self.units
        exchanged = start ^ within if within else start
        return exchanged + far if far else exchanged

    def _spread(self, line: Any) -> Any:
        """Key that differs for lines a unit's elements apart, 4, 8 or 16, and for their doubles.

        Each of eight, with :meth:`offset`'s own key, gets another number. Lines 16 apart, which
        are loaded together, keep the upper bits of theirs.
        """
        eighth, units = line // 8, self._spread_units
        first = (eighth ^ (eighth // 8)) % 2
        return eighth // 2 % 2 + first * (16 // units) + eighth // 4 % 2 * (units // 2)

    @property
    def _spread_units(self) -> int:
        """Units of a line that change places with each other."""
        return min(self.units, _BANKS)

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
    """The panel of an operand's tile; patches are as deep as leaves one to every thread."""
    element = operand.tensor.element_size
    unit = UNIT_BYTES // element
    runs = 1
    if not operand.is_depth_major:
        deepest = max(WORD // element, rows * depth // unit // threads)
        runs = min(unit, 1 << deepest.bit_length() - 1)
    width = vector_width(operand, product.depth)
    width = width if width * element >= WORD else 1
    return Panel(rows, depth, not operand.is_depth_major, width, element, runs)
