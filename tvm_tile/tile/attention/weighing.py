"""What blocks that walk through the keys of attention do besides multiplying, as counts.

The instructions are those of ``schedule/attention/rows.py``, which is the same for every unit, and
of the sums' way out (``schedule/tensor_cores/store.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.tile.attention.chain import Chain
from tvm_tile.tile.attention.rounds import WalkingTile
from tvm_tile.tile.cost import SECTOR
from tvm_tile.tile.time import WAVEFRONT, Part
from tvm_tile.tile.units.sum_layout import CORNER_COLUMNS, QUAD

FLOAT = 4  # bytes of a number in shared memory
# Instructions of a thread. A weight takes a maximum, a scale, an exponential (four) and a sum; a
# row of a tile the growth of its maximum, the exponential of that, and its new maximum and sum; an
# element of a mask or a bias is widened and added, and the score is scaled by itself.
EXPONENTIAL, DIVISION = 4, 10
_OF_A_WEIGHT, _OF_A_ROW, _OF_A_BIAS = 3 + EXPONENTIAL, 4 + EXPONENTIAL, 3


@dataclass(frozen=True, slots=True)
class WeighingCounts:
    """Instructions that make weights of scores in registers, and results of sums.

    Attributes:
        chain: the chain that is computed.
        tile: how blocks walk.
        lanes: threads that share a row.
        warp: threads of a warp.
    """

    chain: Chain
    tile: WalkingTile
    lanes: int
    warp: int

    @property
    def exchanges(self) -> int:
        """Shuffles, one behind the other, until all threads of a row know what one does."""
        return (self.lanes - 1).bit_length() if self.chain.has_softmax else 0

    @property
    def operations(self) -> float:
        """Instructions of all warps that make packed weights of a tile's scores."""
        made = self.chain.operations
        each: float = _OF_A_WEIGHT if made is None else made
        each += _OF_A_BIAS * self.chain.asked
        scores = self.tile.rows * self.tile.keys / self.warp
        return scores * each + scores / 2 + self._of_rows(_OF_A_ROW)

    @property
    def scaling(self) -> float:
        """Instructions of all warps that scale the sums to a new maximum."""
        sums = self.tile.rows * self.tile.columns / self.warp
        return sums if self.chain.has_softmax else 0.0

    @property
    def division(self) -> float:
        """Instructions of all warps that divide the sums, and pack results in pairs."""
        packed = self.tile.rows * self.tile.columns / 2 / self.warp
        return self._of_rows(DIVISION) + self.scaling + packed

    def _of_rows(self, each: int) -> float:
        """Instructions for what is known of rows; a shuffle comes with an operation."""
        rows = self.tile.rows * self.lanes / self.warp
        return rows * (each + 2 * self.exchanges) if self.chain.has_softmax else 0.0

    @property
    def sizes(self) -> tuple[float, float]:
        """Rows of a block, and keys of a step, that there are in the mean."""
        rows, keys = self.chain.first.left.extent, self.chain.keys.extent
        return rows / -(-rows // self.tile.rows), keys / -(-keys // self.tile.keys)

    @property
    def row_bytes(self) -> tuple[int, int, int]:
        """Bytes of a query or a key, of a key's values, and of the sectors of a row's results."""
        chain = self.chain
        columns, size = chain.second.right.extent, chain.second.write.tensor.element_size
        element = chain.first.left.tensor.element_size
        result = -(-columns * size // SECTOR) * SECTOR
        return chain.first.depth.extent * element, columns * element, result

    def beside(self, steps: float) -> tuple[Part, ...]:
        """Loads of what lies beside the scores, in each of so many steps; nothing without one.

        They are asked for when the scores are there, all of a tile together, an element at a time.
        """
        element = self.chain.first.left.tensor.element_size
        scores = self.tile.rows * self.tile.keys
        steps *= self.chain.asked
        own = Part(repeats=steps, fills=scores * element, moves=scores / self.warp, loads=1)
        return (own,) if steps else ()

    def leaving(self, items: float, run: int) -> Part:
        """What is done behind the last key: sums are divided, turned in memory, and stored.

        Args:
            items: how often a block does it.
            run: neighbouring sums that a thread puts into shared memory at once.
        """
        sums = self.tile.rows * self.tile.columns
        corners = -(-self.tile.columns // CORNER_COLUMNS)  # one behind the other
        return Part(
            repeats=items,
            stores=self.sizes[0] * self.row_bytes[2],
            operations=self.division,
            moves=(sums / run + 2 * sums / QUAD) / self.warp,
            wavefronts=2 * sums * FLOAT / WAVEFRONT,
            exchanges=self.exchanges + corners,
        )
