"""Where a product's sums are in the registers of a warp, and the memory that they leave through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# The corner of shared memory in which a warp turns its sums: rows, and floats of a row, of which
# the last eight keep neighbouring rows on different banks.
CORNER_ROWS, CORNER_PITCH = 16, 40
CORNER_COLUMNS = 32  # of sums that a warp's corner takes at a time, at most
QUAD = 4  # neighbours that a thread stores


@dataclass(frozen=True, slots=True)
class SumLayout:
    """Sums of blocks of some rows by some columns, block after block along the columns.

    Attributes:
        warp: threads.
        rows: rows of a block, and of the corner of shared memory that a warp has.
        columns: columns of a block.
        registers: registers of a thread for a block.
        run: length of a run of these registers that are neighbours along the columns.
        pitch: sums from one row of the corner to the next, some of them padding.
        place: lane and register -> row and column in the block.
    """

    warp: int
    rows: int
    columns: int
    registers: int
    run: int
    pitch: int
    place: Callable[[Any, int], tuple[Any, Any]]


def _place_of_mma(lane: Any, register: int) -> tuple[Any, Any]:
    """Row and column, in a block of NVIDIA's mma sums, of a lane's register."""
    return lane // 4 + register // 2 * 8, lane % 4 * 2 + register % 2


MMA_SUMS = SumLayout(32, CORNER_ROWS, 8, 4, 2, CORNER_PITCH, _place_of_mma)
"""Of NVIDIA's instructions: pairs of neighbours, eight columns apart, of two rows of every 16."""


def turned_sums(columns: int) -> SumLayout:
    """The sums of a transposed product: 16 columns of NVIDIA's blocks are rows, rows columns.

    Args:
        columns: columns of the instruction that are stored together as rows; a multiple of eight.
    """
    registers = columns // MMA_SUMS.columns * MMA_SUMS.registers

    def place(lane: Any, register: int) -> tuple[Any, Any]:
        block, within = divmod(register, MMA_SUMS.registers)
        row, column = _place_of_mma(lane, within)
        return block * MMA_SUMS.columns + column, row

    pitch = CORNER_ROWS + QUAD
    return SumLayout(MMA_SUMS.warp, columns, CORNER_ROWS, registers, 1, pitch, place)
