"""Lists of the tiles of keys that rows see, where a mask is known when a kernel is made.

A mask of documents, a prefix, or blocks that a user chose leaves each tile of rows some tiles of
keys, which need not be neighbours. A table says which, and in which of them every row sees every
key, so that nothing is to be hidden there::

    table[place] = tile of rows, count, 2 * tile of keys + is whole, 2 * tile of keys + ..., 0, 0

The tiles of rows that see the most come first, as :class:`Rounds` has them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

GRANULE = 64
"""Rows, and keys, of what the tiles of a table are multiples of."""
HEAD = 2
"""Numbers of a row of a table in front of its tiles of keys."""


@dataclass(frozen=True, slots=True)
class KeyTiles:
    """The size of a table's tiles, and how many of them are listed.

    Attributes:
        rows: rows of a tile of rows.
        keys: keys of a tile of keys.
        lengths: how many tiles of keys each tile of rows sees, one at least, the most first.
        parts: in how many of all of them some keys are hidden.
    """

    rows: int
    keys: int
    lengths: tuple[int, ...]
    parts: int

    @property
    def share_of_parts(self) -> float:
        """The share of the listed tiles in which some keys are hidden."""
        return self.parts / sum(self.lengths)

    @property
    def width(self) -> int:
        """Numbers of a row of the table."""
        return self.lengths[0] + HEAD


@dataclass(frozen=True, slots=True, eq=False)
class Granules:
    """A mask by granules.

    Attributes:
        seen: whether any row of a granule sees any of its keys: granules of rows by those of keys.
        whole: whether all see all.
    """

    seen: np.ndarray
    whole: np.ndarray

    def tiles(self, rows: int, keys: int) -> tuple[KeyTiles, np.ndarray]:
        """The tiles of a size in whole granules, and their table, int32."""
        seen, whole = (
            list(_joined(own, rows, keys, of))
            for own, of in ((self.seen, np.any), (self.whole, np.all))
        )
        own = np.array(seen), np.array(whole)
        own[0][~own[0].any(1), 0] = True  # what sees nothing walks through one tile
        counts = own[0].sum(1)
        order = np.argsort(-counts, kind="stable")
        table = np.zeros((len(order), int(counts.max()) + HEAD), np.int32)
        for place, tile in enumerate(order):
            listed = np.flatnonzero(own[0][tile])
            table[place, 0], table[place, 1] = tile, len(listed)
            table[place, HEAD : HEAD + len(listed)] = 2 * listed + own[1][tile, listed]
        parts = int((own[0] & ~own[1]).sum())
        lengths = tuple(int(count) for count in counts[order])
        return KeyTiles(rows, keys, lengths, parts), table


def _joined(granules: np.ndarray, rows: int, keys: int, of: Any) -> Iterator[np.ndarray]:
    """What holds of any, or of all, granules of each tile, one tile of rows at a time."""
    down, across = rows // GRANULE, keys // GRANULE
    sizes = [
        -(-n // step) * step - n for n, step in zip(granules.shape, (down, across), strict=True)
    ]
    padded = np.pad(granules, [(0, sizes[0]), (0, sizes[1])], constant_values=False)
    for first in range(0, len(padded), down):
        yield of(padded[first : first + down].reshape(down, -1, across), axis=(0, 2))
