"""Which rows of a tile a warp's registers hold."""

from __future__ import annotations

from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.tensor_cores.store import SumStore
from tvm_tile.tile.sum_layout import CORNER_ROWS
from tvm_tile.tile.warpgroup_tile import WarpgroupTile


def store_sums(store: SumStore, tile: WarpgroupTile, sums: Any, thread: Any, origin: Place) -> None:
    """Store the sums of one consumer thread.

    Args:
        store: what becomes of them.
        tile: how they lie.
        sums: the thread's registers, instruction by instruction.
        thread: its number among all consumers' threads.
        origin: first values of the tile's axes.
    """
    for instruction in range(tile.instructions):
        row = ib.Bind(_first_row(tile, thread // 32, instruction))
        held = instruction * tile.width // 2
        store.write(sums, held, row, (0, tile.width), thread, origin)


def keep_sums(store: SumStore, tile: WarpgroupTile, sums: Any, thread: Any) -> None:
    """Put the sums of one consumer thread into the block's part, which is the store's memory."""
    warp, lane = ib.Bind(thread // 32), ib.Bind(thread % 32)
    for instruction in range(tile.instructions):
        first = ib.Bind(_first_row(tile, warp, instruction))

        def at(row: Any, column: Any, first: Any = first) -> list[Any]:
            return [first + row, column]

        store.lay_down(sums, instruction * tile.width // 2, tile.width, lane, at)


def _first_row(tile: WarpgroupTile, warp: Any, instruction: int) -> Any:
    """The first, in the tile, of the 16 rows that a warp holds of an instruction's 64."""
    group = 0 if tile.alternates else warp // 4
    return (group * tile.instructions + instruction) * 64 + warp % 4 * CORNER_ROWS
