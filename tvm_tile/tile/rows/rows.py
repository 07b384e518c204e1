"""Tiles for chains of reductions over the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.powers import power_of_two
from tvm_tile.tile.tile import Tile


@dataclass(frozen=True, slots=True)
class RowTile(Tile):
    """Rows that threads share.

    Attributes:
        rows: number of rows.
        rows_per_block: rows that the threads of a block share out.
        threads_per_row: threads of a block that share a row.
        parts: blocks that share a row.
        are_neighbours: whether the threads of a warp are on different rows, whose elements lie side
            by side in memory, as they are where a thread has a row of its own; else on one row.
    """

    rows: int
    rows_per_block: int
    threads_per_row: int
    parts: int = field(default=1, kw_only=True)
    are_neighbours: bool = field(default=False, kw_only=True)

    @property
    def grid(self) -> int:
        """Blocks of the kernel, or of the main one of several."""
        return -(-self.rows // self.rows_per_block) * self.parts

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.rows_per_block * self.threads_per_row

    def describe(self) -> str:
        """The tile in one line, for people."""
        return f"{self.rows_per_block} rows a block, {self.threads_per_row} threads a row"


def construct_rows(
    output: Operator, reductions: list[Operator], row_axes: frozenset[str], device: Device
) -> tuple[RowTile, ...]:
    """Threads of a row by its length and by how many rows there are to fill the device.

    ``row_axes`` names the output's axes that tell rows apart. The best tile comes first; then the
    same with one row a block.
    """
    rows = math.prod(axis.extent for axis in output.axes if axis.name in row_axes)
    length = max(output.points // rows, *(op.depth for op in reductions))
    resident = device.multi_processor_count * device.max_threads_per_multi_processor // 2
    traffic = output.traffic + max(op.traffic for op in reductions)
    seconds = traffic / device.memory(MemoryLevel.GLOBAL).bandwidth
    stage = device.times.rows.stage_cycles / device.clock
    latency = stage * (len(reductions) + 1)
    predicted = max(seconds, latency) + device.launch_latency
    if any(op.depth == 1 for op in reductions):
        # Of a sum of one element TVM tells one thread only, not those that share the row.
        return (RowTile(rows, 64, 1, seconds=predicted, are_neighbours=True),)
    if _rows_are_neighbours(reductions) and rows >= device.warp_size:
        # Neighbouring threads read neighbouring rows, and share each where rows are few.
        most = device.max_threads_per_block // device.warp_size
        parts = power_of_two(min(most, length // 4, resident // rows))
        if parts > 1:
            return (RowTile(rows, device.warp_size, parts, seconds=predicted, are_neighbours=True),)
        threads = 64 if rows < 64 * device.multi_processor_count else 128
        return (RowTile(rows, threads, 1, seconds=predicted, are_neighbours=True),)
    wanted = max(
        device.warp_size, min(device.max_threads_per_block, length // 4, resident // max(1, rows))
    )
    threads = power_of_two(wanted)
    per_block = max(1, min(128 // threads, rows // device.multi_processor_count))
    return tuple(
        RowTile(rows, n, threads, seconds=predicted) for n in dict.fromkeys((per_block, 1))
    )


def _rows_are_neighbours(reductions: list[Operator]) -> bool:
    """Whether the elements that lie side by side in memory belong to different rows."""
    for op in reductions:
        largest = max(op.reads, key=lambda read: read.tensor.size)
        summed = {axis.name for axis in op.reduce_axes if axis.extent > 1}
        if not largest.contiguous_axes or not summed.isdisjoint(largest.contiguous_axes):
            return False
    return True
