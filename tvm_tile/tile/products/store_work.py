"""What a block does with its sums before the store."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tvm_tile.tile.cost import SECTOR
from tvm_tile.tile.time import WAVEFRONT, Part
from tvm_tile.tile.units.sum_layout import CORNER_COLUMNS, QUAD, SumLayout

SUM_BYTES = 4


@dataclass(frozen=True, slots=True)
class StoreWork:
    """Work of a kernel on each sum before it is stored.

    Attributes:
        operations: arithmetic in floating point; a function counts as several.
        is_wide: whether four neighbours are stored at once.
        is_ragged: whether rows end within four neighbours, each of which has a branch then.
        read_bytes: bytes of the tensors that are read beside the operands, such as residuals and
            biases, once.
        loads: tensors of which each sum's place reads an element.
        sums: how many sums make an element, for which all of this is done once.
    """

    operations: int = 0
    is_wide: bool = True
    is_ragged: bool = False
    read_bytes: int = 0
    loads: int = 0
    sums: int = 1

    def storing(self, warps: int, each: float) -> tuple[float, float]:
        """Arithmetic of all warps, and what they load and store outside of shared memory.

        Args:
            warps: warps that store.
            each: sums of a thread.

        Returns:
            Instructions of warps for arithmetic, one for each sum's conversion included, and for
            loads and stores, of four neighbours where these lie together.
        """
        wide = QUAD if self.is_wide else 1
        each /= self.sums
        return warps * each * (self.operations + 1), warps * each / wide * (self.loads + 1)

    def stored(self, size: float, run: float) -> float:
        """Bytes in whole sectors that are stored of outputs of ``size`` bytes.

        Where neighbours are stored one by one, a warp's runs of ``run`` bytes begin anywhere.
        """
        return size if self.is_wide else size * (1 + SECTOR / run)


BARE = StoreWork()


def store_part(
    work: StoreWork, layout: SumLayout, shape: tuple[int, int, int], size: float, tiles: float
) -> Part:
    """What a block does with the sums of a tile: lay them down and take them up, in corners.

    A repetition is a corner of each warp: a few columns of its rows (``tensor_cores/store.py``).

    Args:
        work: work on each sum.
        layout: layout of the sums in registers and on their way out.
        shape: warps that store, and rows and columns of each.
        size: bytes of all outputs.
        tiles: tiles that the outputs are made of.
    """
    warps, rows, columns = shape
    across = math.gcd(columns, CORNER_COLUMNS)
    corners = rows // layout.rows * (columns // across)
    held = layout.rows * across / layout.warp  # sums of a thread
    element = size / tiles / (warps * rows * columns)  # bytes, or less where tiles overhang
    operations, moves = work.storing(warps, held)
    trips = held if work.is_ragged else 1  # a branch waits for its own loads
    return Part(
        repeats=corners,
        fills=work.read_bytes / tiles / corners,
        stores=work.stored(size, across * element) / tiles / corners,
        operations=operations,
        moves=moves + warps * (held / layout.run + held / QUAD),
        wavefronts=2 * warps * layout.rows * across * SUM_BYTES / WAVEFRONT,
        loads=trips if work.loads else 0,
        exchanges=1,
    )
