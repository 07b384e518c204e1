"""Where the tiles of an axis lie, if data tell: rows in groups, each with a matrix of its own.

Of a product ``y[s, n] = sum over k of x[s, k] * w[ids[s], n, k]`` no order among the rows ``s``
matters. So those of equal ``ids`` may be computed side by side, as a dense tile against one matrix,
wherever they lie (PIT, SOSP'23, section 3.1): an expert's tokens, say.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from tvm_tile.graph.tile_graph import Axis

_DEVIATIONS = 8  # of a group's size from its mean, beyond which it is taken to be never


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows that share the value of an index that is data.

    A table of *slots* says which rows make a tile: of a group that begins behind ``first`` rows of
    others, tile ``t`` is in slot ``group + first // size + t``. No two tiles share a slot, as
    ``first // size + ceil(count / size) <= 1 + (first + count) // size``, so that each group's are
    known from its own begin and end alone; slots between these are empty.

    Attributes:
        axis: the groups; not an axis of the output.
        rows: axes of the output that number the rows, the last the fastest.
    """

    axis: Axis
    rows: tuple[Axis, ...]

    @property
    def place(self) -> Axis:
        """Places of rows in a list in which those of a group are side by side; of a tile the
        first."""
        return Axis(f"{self.axis.name}.place", self.count)

    @property
    def held(self) -> str:
        """Name of the number of a tile's rows, as of an axis."""
        return f"{self.axis.name}.held"

    @property
    def count(self) -> int:
        """Rows of all groups."""
        return math.prod(axis.extent for axis in self.rows)

    def slots(self, size: int) -> int:
        """Slots for tiles of ``size`` rows, whatever the groups are."""
        return self.axis.extent + self.count // size

    def tiles(self, size: int) -> float:
        """Tiles of ``size`` rows, on the average, where each row's group is any one alike."""
        return expected_tiles(self.count, self.axis.extent, size)

    def neighbours(self, size: int) -> int:
        """Slots that are walked before the next columns: about as many as a group fills, whose
        tiles then read the same columns of its matrix at about the same time."""
        return max(1, -(-self.count // (self.axis.extent * size)))

    @property
    def met(self) -> float:
        """Groups of one row or more, on the average, where each row's group is any one alike."""
        return self.tiles(self.count)


@functools.lru_cache(maxsize=1 << 10)
def expected_tiles(rows: int, groups: int, size: int) -> float:
    """Tiles of ``size`` rows that groups of random sizes fill, on the average.

    Args:
        rows: rows, each of any group alike.
        groups: number of groups.
        size: most rows of a tile, which are of one group.
    """
    if groups == 1:
        return math.ceil(rows / size)
    mean, spread = rows / groups, math.sqrt(rows / groups)
    share = 1 / groups
    low = max(1, math.floor(mean - _DEVIATIONS * spread))
    high = min(rows, math.ceil(mean + _DEVIATIONS * (spread + 1)))
    total = 0.0
    for count in range(low, high + 1):
        ways = math.lgamma(rows + 1) - math.lgamma(count + 1) - math.lgamma(rows - count + 1)
        chance = ways + count * math.log(share) + (rows - count) * math.log1p(-share)
        total += math.exp(chance) * math.ceil(count / size)
    return groups * total
