"""Tiles for reductions without reuse: how many threads share one sum, and how many sums a block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.tile.adding import adding_work
from tvm_tile.tile.asked import (
    FEW_IN_FLIGHT,
    asked_bytes,
    box_of,
    in_flight,
    loads_of,
    meeting,
    operations_of,
    present_blocks,
)
from tvm_tile.tile.powers import power_of_two
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.rows.walk import vector_of_sum
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work

_SHORT = 4  # points of a sum whose thread would have too few loads in flight
_SHARE = 6  # points of a row that are worth a thread, where there are rows enough
_LEAST_LANES = 4  # of a row: together they read a sector or so
_REGISTERS_BESIDES = 6  # of a thread
_OF_A_SUM = 7  # of a window's, with loads in flight
_LEAST_PART = 4  # points of a thread that are worth a second kernel


@dataclass(frozen=True, slots=True)
class ReduceTile(Tile):
    """A reduction's launch shape.

    Attributes:
        form: ``"window"``, ``"row"`` or ``"column"``; see :mod:`tvm_tile.schedule.s_tir.reduction`.
        outputs: results in all.
        outputs_per_block: results of a block.
        outputs_per_thread: neighbouring results of a thread (window only).
        vector: neighbouring points of its sum that a thread loads at once (row only).
        parts: blocks that share one sum, whose results a second kernel adds up.
        laps: times that the threads of a block go on to further results (window only).
        threads_per_output: threads that share one sum.
    """

    form: str
    outputs: int
    outputs_per_block: int
    outputs_per_thread: int
    threads_per_output: int
    laps: int = 1
    vector: int = 1
    parts: int = 1

    @property
    def grid(self) -> int:
        """Blocks of the kernel."""
        return -(-self.outputs * self.parts // self.outputs_per_block)

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        sums = self.outputs_per_block // (self.outputs_per_thread * self.laps)
        return sums * self.threads_per_output

    def describe(self) -> str:
        """The tile in one line, for people."""
        parts = f", {self.parts} parts" if self.parts > 1 else ""
        vector = f", {self.vector} points a load" if self.vector > 1 else ""
        return (
            f"{self.outputs_per_block} outputs a block, {self.outputs_per_thread} a thread, "
            f"{self.threads_per_output} threads an output{vector}{parts}"
        )


def _registers(tile: ReduceTile, device: Device) -> int:
    """Registers of a thread: its sums or its vector, and what it reads ahead."""
    own = 2 * min(tile.vector, VECTOR_BYTES // 4)
    if tile.form == "window":
        own = _OF_A_SUM * tile.outputs_per_thread
    return max(register_use(device).least, _REGISTERS_BESIDES + own)


def construct_window(
    operator: Operator, device: Device, scene: Scene = AMID, after: Operator | None = None
) -> tuple[ReduceTile, ...]:
    """One thread a sum, or a few neighbouring sums where they share loads and threads abound.

    Tiles vary the sums of a thread and the threads of a block; the best one comes first.
    ``scene`` is where the kernel runs, ``after`` what is made of the sums before it is stored.
    """
    outputs, depth = operator.outputs, operator.depth
    last = [axis for axis in operator.spatial_axes if axis.extent > 1][-1:]
    per_thread = 1
    if last and depth > 1:
        # Enough threads to fill half of the device must remain.
        wanted = device.multi_processor_count * device.max_threads_per_multi_processor // 4
        fits = [n for n in (4, 2) if last[0].extent % n == 0 and outputs // n >= wanted]
        per_thread = fits[0] if fits else 1
    threads = 128 if outputs // per_thread >= 128 * device.multi_processor_count else 64
    laps = _laps(outputs, threads, device) if per_thread == 1 and depth <= _SHORT else 1
    best = ReduceTile("window", outputs, threads * per_thread * laps, per_thread, 1, laps)
    others = [
        replace(best, outputs_per_block=t * n, outputs_per_thread=n, laps=1)
        for n in (1, 2, 4)
        for t in (64, 128, 256)
        if not last or last[0].extent % n == 0
    ]
    tiles = (best, *(tile for tile in others if tile != best))
    return ranked((_told(tile, operator, device, after) for tile in tiles), device, scene)


def _laps(outputs: int, threads: int, device: Device) -> int:
    """Results of a thread that are not neighbours, so that it has several loads in flight.

    Only whole laps: a test for the end in each would keep the loads apart.
    """
    wanted = device.multi_processor_count * device.max_threads_per_multi_processor
    return next((n for n in (4, 2) if outputs % (n * threads) == 0 and outputs // n >= wanted), 1)


def construct_reduction(
    operator: Operator, device: Device, scene: Scene = AMID, after: Operator | None = None
) -> tuple[ReduceTile, ...]:
    """Threads across the reduction where its elements are neighbours, else across the outputs.

    Tiles have more or fewer threads an output; the best one comes first. ``scene`` is where the
    kernel runs, ``after`` what is made of the sums before it is stored.
    """
    outputs, depth = operator.outputs, operator.depth
    largest = max(operator.reads, key=lambda read: read.tensor.size)
    contiguous = largest.contiguous_axis
    spatial = {axis.name for axis in operator.spatial_axes if axis.extent > 1}
    resident = device.multi_processor_count * device.max_threads_per_multi_processor // 2
    if contiguous in spatial and outputs >= device.warp_size:
        across = device.warp_size
        wanted = max(1, resident // max(1, outputs))
        parts = power_of_two(
            min(wanted, max(1, depth // 4), device.max_threads_per_block // across)
        )
        most = device.max_threads_per_block // across
        tiles = [
            ReduceTile("column", outputs, across, 1, threads) for threads in _around(parts, 1, most)
        ]
        return _in_parts(tiles, operator, device, scene, after)
    # Several short rows share a warp: each thread has loads in flight, and few partial sums meet.
    vector = vector_of_sum(operator)
    loads = depth // vector
    lanes = min(
        device.warp_size, max(_LEAST_LANES, power_of_two(loads // max(2, _SHARE // vector)))
    )
    wanted = max(lanes, resident // max(1, outputs))
    parts = max(lanes, power_of_two(min(wanted, max(1, loads // 2), device.max_threads_per_block)))
    tiles = [
        ReduceTile(
            *("row", outputs, _rows_of_a_block(outputs, threads, device), 1, threads), vector=vector
        )
        for threads in _around(parts, _LEAST_LANES, device.max_threads_per_block)
    ]
    return _in_parts(tiles, operator, device, scene, after)


def _in_parts(
    tiles: Sequence[ReduceTile],
    operator: Operator,
    device: Device,
    scene: Scene,
    after: Operator | None,
) -> tuple[ReduceTile, ...]:
    """The tiles, and each with its sums split over as many blocks as is best, best first."""
    told, depth = [_told(tile, operator, device, after) for tile in tiles], operator.depth
    for tile in tiles:
        numbers = [
            n
            for n in range(2, 2 * device.multi_processor_count)
            if depth % n == 0 and depth >= n * tile.threads_per_output * _LEAST_PART
        ]
        split = (replace(tile, parts=n, vector=math.gcd(tile.vector, depth // n)) for n in numbers)
        told += ranked((_told(own, operator, device, after) for own in split), device, scene, 1)
    return ranked(told, device, scene)


def _told(
    tile: ReduceTile, operator: Operator, device: Device, after: Operator | None
) -> ReduceTile:
    """A tile with its registers and what its kernels do."""
    tile = replace(tile, registers=_registers(tile, device))
    return replace(tile, work=work_of(tile, operator, device, after))


def work_of(
    tile: ReduceTile, operator: Operator, device: Device, after: Operator | None = None
) -> Work:
    """What a reduction does: its threads go along their sums, meet, and store.

    ``after`` is what is made of the sums, where that is not they themselves: it may be several
    elements of each, such as those of a row that the sum normalizes. The kernel's last part makes
    it, one element of a thread at a time.
    """
    warps = -(-tile.block_size // device.warp_size)
    size = operator.write.tensor.size
    block = box_of(operator.spatial_axes, min(tile.outputs_per_block, operator.outputs))
    end = Part(
        stores=asked_bytes(operator.write, block | box_of(operator.reduce_axes, 1)),
        moves=warps * tile.laps * tile.outputs_per_thread,
    )
    read, written = operator.traffic - size, size
    if after is not None and tile.parts == 1:
        end = _made(after, operator, tile, device)
        known = {own.tensor.name for own in operator.reads}
        read += sum(o.tensor.size for o in _others(after, operator) if o.tensor.name not in known)
        written = after.write.tensor.size
    return Work(
        blocks=tile.grid,
        resident=present_blocks(device, tile),
        warps=warps,
        parts=(
            _along(tile, operator, device),
            meeting(tile, tile.threads_per_output, device, is_across=tile.form == "column"),
            end,
        ),
        read=read,
        written=tile.parts * written,
        then=(_adding(tile, operator, device, after),) if tile.parts > 1 else (),
    )


def _along(tile: ReduceTile, operator: Operator, device: Device) -> Part:
    """Threads go along their sums.

    The loads of a window are all on their way at once, as are those of a few iterations of a loop
    along a row or a column. Where what a window reads may be padding, a branch is around each load,
    and the next one waits for it.
    """
    warps = -(-tile.block_size // device.warp_size)
    lap = tile.vector * tile.threads_per_output
    pieces = -(-operator.depth // tile.parts // lap)
    is_tested = operator.depth % (tile.parts * lap) > 0
    ahead = in_flight(pieces, tile.vector, is_tested=is_tested)
    ahead = pieces if tile.form == "window" else ahead
    points = tile.vector * ahead
    own = box_of(operator.spatial_axes, tile.outputs_per_thread)
    own |= box_of(operator.reduce_axes, points)
    block = box_of(operator.spatial_axes, min(tile.outputs_per_block, operator.outputs))
    block |= box_of(operator.reduce_axes, points * tile.threads_per_output)
    summed = {axis.name for axis in operator.reduce_axes if axis.extent > 1}
    # What does not change along a sum is loaded once, ahead of it.
    reads = [r for r in operator.reads if not summed or not r.axes.isdisjoint(summed)]
    is_padded = tile.form == "window" and any(read.is_computed for read in reads)
    loads = [
        (loads_of(read, own, tile.vector), _lines(read, tile, operator, device.warp_size))
        for read in reads
    ]
    return Part(
        repeats=pieces / ahead,
        fills=sum(asked_bytes(read, block) for read in reads),
        operations=warps
        * tile.laps
        * tile.outputs_per_thread
        * points
        * operations_of(operator, device),
        moves=warps * tile.laps * sum(count for count, _ in loads),
        # The first-level cache answers a load line by line.
        wavefronts=warps * tile.laps * sum(count * lines for count, lines in loads),
        loads=tile.laps * tile.outputs_per_thread * points if is_padded else 1,
    )


def _lines(read: Access, tile: ReduceTile, operator: Operator, warp: int) -> float:
    """Lines of the first-level cache in which one load of a warp's threads lies."""
    size = read.tensor.element_size
    along = min(warp, tile.threads_per_output) if tile.form == "row" else 1
    address = np.zeros(warp, np.int64)
    lanes = np.arange(warp)
    for axes, rest in (
        (operator.reduce_axes, lanes % along * tile.vector),
        (operator.spatial_axes, lanes // along * tile.outputs_per_thread),
    ):
        for axis in reversed(axes):
            address += rest % axis.extent * read.strides.get(axis.name, 0) * size
            rest = rest // axis.extent
    reached = len(np.unique(address // WAVEFRONT))
    width = max(1, min(tile.vector, VECTOR_BYTES // size))
    return max(reached, len(np.unique(address)) * width * size / WAVEFRONT)


def _adding(tile: ReduceTile, operator: Operator, device: Device, after: Operator | None) -> Work:
    """What the kernel does that adds parts of sums, and makes elements of each, if of any several.

    A thread that has added a sum makes all of its elements.
    """
    added = adding_work(tile.parts, operator.write.tensor.size, device)
    if after is None or after.points <= operator.outputs:
        return added
    threads = min(int(added.warps) * device.warp_size, tile.outputs)
    made = _made(after, operator, ReduceTile("window", tile.outputs, threads, 1, 1), device)
    read = sum(other.tensor.size for other in _others(after, operator))
    return replace(
        added,
        parts=(*added.parts, made),
        read=added.read + read,
        written=after.write.tensor.size,
    )


def _others(after: Operator, operator: Operator) -> list[Access]:
    """What is read to make something of sums, but for these."""
    return [read for read in after.reads if read.tensor.name != operator.write.tensor.name]


def _made(after: Operator, operator: Operator, tile: ReduceTile, device: Device) -> Part:
    """Elements that are made of the sums, one behind the other by the threads that have a sum."""
    threads = tile.block_size // tile.threads_per_output
    active = -(-threads // device.warp_size)  # warps
    made = tile.outputs_per_block * max(1.0, after.points / operator.outputs)  # of a block
    own = made / threads
    together, others = min(own, FEW_IN_FLIGHT), _others(after, operator)
    share = made * together / own
    return Part(
        repeats=own / together,
        fills=share * sum(read.tensor.element_size for read in others),
        stores=share * after.write.tensor.element_size,
        operations=active * together * operations_of(after, device),
        moves=active * together * (len(others) + 1),
        loads=1 if others else 0,
    )


def _rows_of_a_block(outputs: int, threads: int, device: Device) -> int:
    """Rows of a block, so that warps are whole and all multiprocessors have work."""
    whole_warps = device.warp_size // threads
    return power_of_two(
        max(1, whole_warps, min(256 // threads, outputs // device.multi_processor_count))
    )


def _around(best: int, least: int, most: int) -> list[int]:
    """``best`` and its multiples by powers of two, the nearest first."""
    factors = (1, 2, 0.5, 4, 0.25, 8, 0.125)
    return [int(best * f) for f in factors if least <= best * f <= most and best * f >= 1]
