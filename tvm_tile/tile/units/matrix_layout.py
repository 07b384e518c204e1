"""Which elements of a matrix instruction's operands and sums each lane of a wave holds.

AMD's instructions (MFMA, WMMA) multiply M rows by M columns. ``left`` and ``right`` are held alike:
a lane has one row, and neighbours of the depth. Sources: the ISA references of CDNA 3 and 4
(chapter "Matrix Arithmetic Instructions"), of RDNA 3 and 4 ("WMMA").

The kernels give the instruction the product's columns as its rows and the other way round, so that
a lane's sums are neighbours along the product's columns. And they give it the depth in any order
that both operands share: a lane loads units of 16 bytes along the depth, of which one instruction
may take only a part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm_tile.device.device import MatrixInstruction
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.units.slab import UNIT_BYTES

# Neighbours of the sums that a lane holds, and lanes that hold the same of an operand.
_KINDS = {"mfma": (4, 1), "wmma.gfx11": (1, 2), "wmma.gfx12": (8, 1)}


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """How an instruction's operands and sums lie in the registers of a wave.

    Attributes:
        size: rows of the left operand, and as many columns of the right one.
        depth: depth of one instruction.
        element: bytes of an operand's element.
        wave: lanes.
        run: sums of a lane that are neighbours along the product's columns.
        copies: lanes that hold the same elements of an operand.
    """

    size: int
    depth: int
    element: int
    wave: int
    run: int
    copies: int

    @property
    def sums(self) -> int:
        """Registers of a lane for the sums of an instruction."""
        return self.size * self.size // self.wave

    @property
    def held(self) -> int:
        """Elements of an operand that a lane gives an instruction."""
        return self.size * self.depth * self.copies // self.wave

    @property
    def units(self) -> int:
        """Units that a lane loads of a row at once."""
        return max(1, self.held * self.element // UNIT_BYTES)

    @property
    def instructions(self) -> int:
        """Instructions that take what is loaded at once."""
        return self.units * UNIT_BYTES // (self.held * self.element)

    @property
    def step(self) -> int:
        """Units of a row that all lanes together load at once."""
        return self.units * self._groups

    @property
    def _groups(self) -> int:
        """Lanes that hold different depths of one row."""
        return self.wave // self.size // self.copies

    def operand(self, lane: Any) -> tuple[Any, Any]:
        """A lane's row (of the right operand, column), and the first of its units of a step."""
        group = lane // self.size * self.units if self._groups > 1 else 0
        return lane % self.size, group

    def column(self, neighbour: Any) -> Any:
        """The product's column, of block after block, that is to stand for one of its own.

        A lane's registers, of one block after the other, then hold sums of whole units of
        neighbours: the operand of a product that is summed along these (:meth:`neighbour`).
        """
        lanes, unit = self.wave // self.size, UNIT_BYTES // self.element
        group = neighbour // unit % lanes
        register = neighbour // (unit * lanes) * unit + neighbour % unit
        block, held = register // self.sums, register % self.sums
        across = held // self.run * (self.run * lanes) + group * self.run + held % self.run
        return block * self.size + across

    def neighbour(self, lane: Any, register: Any) -> Any:
        """The column that :meth:`column` gives the place whose sum a lane has in a register."""
        lanes, unit = self.wave // self.size, UNIT_BYTES // self.element
        return register // unit * (unit * lanes) + lane // self.size * unit + register % unit

    def place(self, lane: Any, register: int) -> tuple[Any, Any]:
        """Row and column of the product whose sum a lane has in a register."""
        lanes = self.wave // self.size
        column = register // self.run * self.run * lanes + register % self.run
        return lane % self.size, lane // self.size * self.run + column


def layout_of(instruction: MatrixInstruction, wave: int) -> MatrixLayout | None:
    """The layout of one of AMD's instructions; ``None`` of any other."""
    kind = _KINDS.get(instruction.intrinsic)
    rows, _, depth = instruction.shape
    size = element_size(instruction.in_dtype)
    return None if kind is None else MatrixLayout(rows, depth, size, wave, *kind)
