"""Which item a persistent block takes when, so that all blocks end at about the same time."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.tile.tile import Tile


@dataclass(frozen=True, slots=True)
class Rounds:
    """Items, tiles of batches, that blocks take in turns.

    Tiles that are equally long are taken one after the other, batch by batch. Where they are not,
    as under a causal mask, the longest come first, so that the last ones, at whose end blocks wait
    for each other, are short; and every other turn goes through the blocks backwards: who had the
    longest of one turn has the shortest of the next.

    Attributes:
        lengths: steps of each tile of a batch.
        batches: number of batches, all of which have these tiles.
        grid: blocks.
        together: neighbouring batches, a divisor of all, that are walked through together, one tile
            of each and then the next: what they read is in the second-level cache meanwhile.
    """

    lengths: tuple[int, ...]
    batches: int
    grid: int
    together: int = 1

    @property
    def items(self) -> int:
        """Items of all batches."""
        return len(self.lengths) * self.batches

    @property
    def is_level(self) -> bool:
        """Whether all tiles are equally long."""
        return min(self.lengths) == max(self.lengths)

    @property
    def most_turns(self) -> int:
        """How many items the block takes that takes the most."""
        return -(-self.items // self.grid)

    def turns(self, block: Any) -> Any:
        """How many items a block takes.

        Args:
            block: its number, or an expression of integers.
        """
        last = self._position(self.items // self.grid, block)
        return (self.items - last + self.grid - 1) // self.grid

    def item(self, turn: Any, block: Any) -> Any:
        """The number of the item that a block takes in a turn."""
        return self._position(turn, block) + turn * self.grid

    def place(self, item: Any) -> tuple[Any, Any]:
        """Batch and tile of an item."""
        tiles = len(self.lengths)
        if self.together == 1:
            batch, place = item // tiles, item % tiles
        else:
            group, within = item // (tiles * self.together), item % (tiles * self.together)
            batch, place = group * self.together + within % self.together, within // self.together
        return batch, tiles - 1 - place if self._grow else place

    @property
    def longest(self) -> int:
        """Steps of the block that has the most of them."""
        number = np.arange(self.items)
        _, tile = self.place(number)
        steps = np.zeros(-(-self.items // self.grid) * self.grid, int)
        steps[: self.items] = np.array(self.lengths)[tile]
        by_turn = steps.reshape(-1, self.grid)
        if not self.is_level:
            by_turn[1::2] = by_turn[1::2, ::-1].copy()
        return int(by_turn.sum(axis=0).max())

    @property
    def _grow(self) -> bool:
        """Whether later tiles of a batch are longer than earlier ones."""
        return self.lengths[-1] > self.lengths[0]

    def _position(self, turn: Any, block: Any) -> Any:
        """A block's position among those of a turn."""
        return block if self.is_level else block + turn % 2 * (self.grid - 1 - 2 * block)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkingTile(Tile):
    """A tile of attention, whose blocks take tiles of rows through the keys.

    Attributes:
        rows: rows of a block, one a query.
        keys: keys of a step.
        depth: depth of the first product, rounded up to a multiple that the unit takes.
        columns: columns of the second product, rounded up likewise.
        rounds: order in which blocks take tiles of rows, and of which batches.
        seekers: threads that look together for the keys that an item's rows see, where numbers in
            memory say which; 0 where there are none.
    """

    rows: int
    keys: int
    depth: int
    columns: int
    rounds: Rounds
    seekers: int = 0

    @property
    def seen_bytes(self) -> int:
        """Bytes of shared memory for what they find, and for what is found for each item."""
        pairs = (self.seekers + 1) * self.rounds.most_turns if self.seekers else 0
        return pairs * 2 * 4  # of int32

    @property
    def grid(self) -> int:
        """Blocks of the kernel."""
        return self.rounds.grid

    def describe(self) -> str:
        """Extents of blocks and steps, for people."""
        return f"block {self.rows} rows by {self.columns}, {self.keys} keys a step"


def balanced(rounds: Rounds, size: int, capacity: int) -> Rounds:
    """``rounds`` with as many batches together, and of up to an eighth fewer blocks, as leave the
    busiest block the least to do.

    Turns that go back and forth only make up for each other where a batch's tiles are about as many
    as blocks, or a part of these.

    Args:
        rounds: rounds in which batches follow one another.
        size: bytes that the blocks of a batch share.
        capacity: bytes of the cache that are theirs.
    """
    if rounds.is_level:
        return rounds
    most = max(1, min(rounds.batches, capacity // size))
    counts = [n for n in range(1, most + 1) if rounds.batches % n == 0]
    grids = range(rounds.grid, rounds.grid - rounds.grid // 8 - 1, -1)
    pairs = itertools.product(grids, counts)
    return min((replace(rounds, grid=g, together=n) for g, n in pairs), key=lambda r: r.longest)


def walked_steps(tile: WalkingTile, device: Device) -> float:
    """Steps of a block that counts: the longest where each has a multiprocessor, else the mean."""
    lengths = tile.rounds.lengths
    is_alone = tile.grid <= device.multi_processor_count
    return max(lengths) if is_alone else sum(lengths) / len(lengths)
