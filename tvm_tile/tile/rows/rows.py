"""Tiles for chains of reductions over the same rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import Operator, Tensor
from tvm_tile.tile.asked import (
    BANKS,
    WORD,
    asked_bytes,
    box_of,
    in_flight,
    meeting,
    operations_of,
    present_blocks,
)
from tvm_tile.tile.powers import power_of_two
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.time import AMID, Part, Scene, Work, kept_bytes


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
    output: Operator,
    reductions: list[Operator],
    row_axes: frozenset[str],
    device: Device,
    scene: Scene = AMID,
) -> tuple[RowTile, ...]:
    """Threads of a row by its length and by how many rows there are to fill the device, best first.

    ``row_axes`` names the output's axes that tell rows apart, ``scene`` is where the kernel runs.
    """
    told = (
        replace(tile, work=work_of(tile, output, reductions, row_axes, device))
        for tile in _tiles(output, reductions, row_axes, device)
    )
    return ranked(told, device, scene)


def _tiles(
    output: Operator, reductions: list[Operator], row_axes: frozenset[str], device: Device
) -> tuple[RowTile, ...]:
    """The tiles, which say nothing of their work yet."""
    rows = math.prod(axis.extent for axis in output.axes if axis.name in row_axes)
    length = max(output.points // rows, *(op.depth for op in reductions))
    resident = device.multi_processor_count * device.max_threads_per_multi_processor // 2
    if any(op.depth == 1 for op in reductions):
        # Of a sum of one element TVM tells one thread only, not those that share the row.
        return (RowTile(rows, 64, 1, are_neighbours=True),)
    if _rows_are_neighbours(reductions) and rows >= device.warp_size:
        # Neighbouring threads read neighbouring rows, and share each where rows are few.
        most = device.max_threads_per_block // device.warp_size
        parts = power_of_two(min(most, length // 4, resident // rows))
        if parts > 1:
            return (RowTile(rows, device.warp_size, parts, are_neighbours=True),)
        threads = 64 if rows < 64 * device.multi_processor_count else 128
        return (RowTile(rows, threads, 1, are_neighbours=True),)
    wanted = max(
        device.warp_size, min(device.max_threads_per_block, length // 4, resident // max(1, rows))
    )
    threads = power_of_two(wanted)
    per_block = max(1, min(128 // threads, rows // device.multi_processor_count))
    return tuple(RowTile(rows, n, threads) for n in dict.fromkeys((per_block, 1)))


def work_of(
    tile: RowTile,
    output: Operator,
    reductions: Sequence[Operator],
    row_axes: frozenset[str],
    device: Device,
) -> Work:
    """What a chain of reductions does whose rows are read again in each stage.

    Its threads go along their rows and meet, for one reduction after another, and go along them
    once more to store. What an earlier stage has read is near, in the multiprocessor's own cache,
    if the rows of all its blocks fit there. Else the second-level cache has what it can keep of the
    rows of all blocks that run at a time, and the rest comes from memory again.
    """
    resident = present_blocks(device, tile)
    made = {op.write.tensor for op in reductions}
    read = {
        read.tensor: read.elements(op.extents) * read.tensor.element_size
        for op in (*reductions, output)
        for read in op.reads
        if read.tensor not in made
    }
    rows = sum(read.values()) / -(-tile.rows // tile.rows_per_block)
    is_near = resident * rows <= device.shared_memory_per_multi_processor
    together = rows * min(tile.grid, max(1, resident) * device.multi_processor_count)
    lost = 0.0 if is_near else max(0.0, 1 - kept_bytes(device) / together)
    parts, known, again = list[Part](), set(made), 0.0
    met = set[Tensor]()
    for op in (*reductions, output):
        parts.append(_along(tile, op, row_axes, known, device))
        if op is not output:
            across = tile.are_neighbours
            parts.append(meeting(tile, tile.threads_per_row, device, is_across=across))
        own = {access.tensor for access in op.reads}
        again += lost * sum(read[tensor] for tensor in own & met)
        met |= own & set(read)
        known |= own if is_near else set()
    size = output.write.tensor.size
    return Work(
        blocks=tile.grid,
        resident=resident,
        warps=-(-tile.block_size // device.warp_size),
        parts=tuple(parts),
        read=sum(read.values()),
        written=size,
        again=again,
    )


def _along(
    tile: RowTile,
    op: Operator,
    row_axes: frozenset[str],
    known: Iterable[Tensor],
    device: Device,
) -> Part:
    """How threads go along their rows in one stage, a few loads on their way at once.

    Args:
        tile: how they share them.
        op: the stage: a reduction, or the last one.
        row_axes: names of the last stage's axes that tell rows apart.
        known: tensors that are near.
        device: the device that it is made for.
    """
    warps = -(-tile.block_size // device.warp_size)
    inner = [a for a in op.axes if (a.is_reduce if op.reduce_axes else a.name not in row_axes)]
    outer = [axis for axis in op.axes if axis not in inner]
    length = math.prod(axis.extent for axis in inner)
    pieces = -(-length // tile.threads_per_row)
    ahead = in_flight(pieces, 1, is_tested=length % tile.threads_per_row > 0)
    box = box_of(outer, tile.rows_per_block) | box_of(inner, ahead * tile.threads_per_row)
    names = {axis.name for axis in inner if axis.extent > 1}
    reads = [read for read in op.reads if not names or not read.axes.isdisjoint(names)]
    far = [read for read in reads if read.tensor not in known]
    near = sum(asked_bytes(read, box) for read in reads if read.tensor in known)
    is_stored = not op.reduce_axes
    return Part(
        repeats=pieces / ahead,
        fills=sum(asked_bytes(read, box) for read in far),
        stores=asked_bytes(op.write, box) if is_stored else 0,
        operations=warps * ahead * operations_of(op, device),
        moves=warps * ahead * (len(reads) + is_stored),
        wavefronts=near / (BANKS * WORD),
        loads=1 if far else 0,
        exchanges=1 if near else 0,
    )


def _rows_are_neighbours(reductions: list[Operator]) -> bool:
    """Whether the elements that lie side by side in memory belong to different rows."""
    for op in reductions:
        largest = max(op.reads, key=lambda read: read.tensor.size)
        summed = {axis.name for axis in op.reduce_axes if axis.extent > 1}
        if not largest.contiguous_axes or not summed.isdisjoint(largest.contiguous_axes):
            return False
    return True
