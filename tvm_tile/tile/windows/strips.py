"""Tiles for sliding windows, pooling and depthwise convolution: how long a thread's strips are.

An input element meets a few outputs only, so a kernel lives from moving it once and cheaply. Each
thread sums a strip of outputs along an axis that slides, and reads each row of the input that its
windows hold once, into registers. Longer strips read less and give fewer threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.tile.cost import SECTOR, arithmetic_slots, written_sectors
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.residency import given_blocks, nameable_registers
from tvm_tile.tile.tile import near_ties, ranked
from tvm_tile.tile.time import AMID, Part, Scene, Work
from tvm_tile.tile.windows.accesses import (
    START_OPERATIONS,
    block_bytes,
    warp_sectors,
    warp_wavefronts,
)
from tvm_tile.tile.windows.vectors import Vectors, vectors_of
from tvm_tile.tile.windows.window import Window, WindowTile, window_of

_MAX_UNROLLED = 1400  # operations of a thread: its code should stay in the instruction cache
_COLUMNS = (1, 2, 4)
_THREADS = (128, 256)
_FEW_THREADS = 64  # of a block, where the device would not be full with more

_REGISTERS_BESIDES = 8
_ROWS_IN_FLIGHT = 2  # of a thread: as many does the compiler load before it adds the first
_DIVISION = 14  # instructions of a division, which branches, counted in machine code
# Up to so many times the best one's no difference is to be trusted.
_NEAR_TIE = 1.1


def construct_strips(
    operator: Operator,
    device: Device,
    traffic: int,
    *,
    count: int | None = None,
    divides: bool = False,
    sources: tuple[Access | None, ...] = (),
    scene: Scene = AMID,
) -> tuple[WindowTile, ...]:
    """Tiles, best first; empty if nothing slides.

    Args:
        operator: the sum. The element types of its reads are those in memory; its write is there.
        device: the device that the tiles are made for.
        traffic: bytes that cross global memory at least.
        count: the most tiles that are wanted; ``None``: all.
        divides: whether sums are divided, or treated so, before they are stored. A division
            branches, where it meets denormals, and the compiler reads no row ahead of a branch.
        sources: tensors that slide, as they lie in memory, as :func:`vectors_of` takes them;
            without, each element is read and stored by itself.
        scene: where the kernel runs.
    """
    window = window_of(operator)
    if window is None:
        return ()
    told = (
        tile
        for vectors in vectors_of(operator, window.axis, window.stride, sources)
        for strip in _strips(operator, window, vectors)
        for tile in _told(replace(strip, stores_late=divides), device, traffic)
    )
    # Of near ties the one with most threads: what the model leaves out punishes long strips.
    return near_ties(ranked(told, device, scene), _NEAR_TIE, lambda tile: tile.outputs)[:count]


def _strips(operator: Operator, window: Window, vectors: Vectors) -> Iterator[WindowTile]:
    """All strips of a sliding window that a thread can have, in the smallest blocks."""
    extents = operator.extents
    along = extents[window.axis]
    # About equal shares of the axis. Windows with gaps share no rows with their neighbours.
    strips = {-(-along // count) for count in range(1, along + 1)} if window.dilation == 1 else {1}
    if vectors.axis == window.axis:
        whole = {-(-strip // vectors.count) * vectors.count for strip in strips}
        strips = whole if window.dilation == 1 else set()
    for strip in sorted(strips):
        for columns in _COLUMNS if window.column else (1,):
            tile = WindowTile(operator, window, strip, columns, _FEW_THREADS, vectors)
            is_long = tile.outputs > 1 and tile.outputs * operator.depth > _MAX_UNROLLED
            if not is_long and columns <= extents.get(window.column, 1):
                yield tile


def _told(strip: WindowTile, device: Device, traffic: int) -> Iterator[WindowTile]:
    """A strip in each size of block, and its own where blocks would be too few, with their work."""
    thread = _Thread.of(strip, device)
    sizes = list(_THREADS)
    if strip.workers < 4 * _THREADS[0] * device.multi_processor_count:
        sizes.append(strip.block_size)
    operator = strip.operator
    moved = block_bytes(operator.reads, operator, strip.outputs_along, sizes)
    for block_size, size in zip(sizes, moved, strict=True):
        tile = replace(strip, block_size=block_size, registers=thread.registers)
        yield replace(tile, work=_work(tile, thread, size, device, traffic))


@dataclass(frozen=True, slots=True)
class _Thread:
    """What a thread does for its strip, whatever its block; a warp's threads do the same.

    Attributes:
        registers: registers that it takes.
        trips: how often it waits for rows of the input.
        operations: arithmetic instructions.
        moves: instructions that load and store.
        wavefronts: passes over the banks of the first-level cache in which its loads are answered.
        stores: sectors that a warp stores.
    """

    registers: int
    trips: int
    operations: float
    moves: float
    wavefronts: float
    stores: float

    @classmethod
    def of(cls, tile: WindowTile, device: Device) -> _Thread:
        """A thread of a tile without registers."""
        operator, vector, own = tile.operator, tile.vectors.count, tile.outputs_along
        others = [read for read in operator.reads if read not in tile.window.reads]
        lines, rows = tile.lines, sum(bool(tile.taps(row)) for row in range(tile.rows))
        counts = {line.read: math.prod(line.extents) * rows for line in lines}
        region = operator.extents | own
        fixed = [(read, read.elements(region)) for read in others]
        moving = [(read, counts.get(read) or read.elements(region)) for read in tile.window.reads]
        loads = [(read, float(count), 1) for read, count in fixed]
        loads += [(read, count / vector, vector) for read, count in moving]
        stores = tile.outputs / vector
        held = sum(math.prod(line.extents) for line in lines)  # of a row
        widened = sum(count for r, count in (*moving, *fixed) if r.tensor.element_size < 4)
        tested = held * _tested_rows(tile) / vector
        operations = tile.outputs * operator.depth * arithmetic_slots(device) + widened + tested
        operations += tile.outputs * _DIVISION if tile.stores_late else 0
        at_once = (vector if tile.are_rows_neighbours else 1) * _ROWS_IN_FLIGHT
        return cls(
            registers=_registers(tile, sum(count for _, count in fixed), held, device),
            trips=math.ceil(tile.rows / at_once),
            operations=operations,
            moves=sum(count for _, count, _ in loads) + stores,
            wavefronts=sum(c * warp_wavefronts(r, operator, own, v, device) for r, c, v in loads),
            stores=stores * _stored_sectors(tile, device),
        )


def _work(tile: WindowTile, thread: _Thread, moved: float, device: Device, traffic: int) -> Work:
    """What the blocks of a tile do.

    Args:
        tile: the tile, with its registers.
        thread: instructions and accesses of one of its threads.
        moved: bytes in whole sectors that a block reads of all operands, padding included.
        device: the device that it is made for.
        traffic: bytes that cross global memory at least.
    """
    warps, trips = -(-tile.block_size // device.warp_size), thread.trips
    written = tile.operator.write.tensor.size
    # Padding is not read: it is of the operator's tensors, but not of those in memory.
    whole, known = tile.operator.traffic - written, traffic - written
    # Nothing is known where the function stores less than its operator makes.
    from_memory = min(1.0, known / whole) if min(known, whole) > 0 else 1.0
    rows = Part(
        repeats=trips,
        fills=from_memory * moved / trips,
        stores=warps * thread.stores * SECTOR / trips,
        operations=warps * thread.operations / trips,
        moves=warps * thread.moves / trips,
        # The first-level cache answers through the banks of shared memory.
        wavefronts=warps * thread.wavefronts / trips,
        loads=1,
    )
    return Work(
        blocks=tile.grid,
        resident=given_blocks(device, tile),
        warps=warps,
        parts=(Part(operations=warps * START_OPERATIONS), rows),
        read=traffic - written,
        written=written,
    )


def _tested_rows(tile: WindowTile) -> int:
    """Rows that lie outside the image for some strips and inside it for others."""
    extent = next(a.extent for a in tile.operator.spatial_axes if a.name == tile.window.axis)
    if tile.strip == extent or not any(read.is_computed for read in tile.window.reads):
        return 0
    overhang = -extent % tile.strip * tile.step
    return min(tile.rows, max(0, tile.window.size - tile.step) + overhang)


def _registers(tile: WindowTile, fixed: int, lines: int, device: Device) -> int:
    """Registers of a thread of a tile, as predicted; ``fixed`` elements stay in some, those of
    ``lines`` come and go."""
    kept = tile.strip if tile.stores_late else -(-tile.window.size // tile.step)
    unfinished = kept * tile.outputs // tile.strip
    use = register_use(device)
    together = 2 if use.is_eager and tile.strip > 1 else 1
    needed = _REGISTERS_BESIDES + fixed + unfinished + together * lines
    return min(nameable_registers(device), max(use.least, needed))


def _stored_sectors(tile: WindowTile, device: Device) -> float:
    """Sectors that a warp's store moves when its threads each store one vector."""
    operator, vector = tile.operator, tile.vectors.count
    touched = warp_sectors(operator.write, operator, tile.outputs_along, vector, device)
    used = device.warp_size * vector * operator.write.tensor.element_size / SECTOR
    return float(written_sectors(touched, used))
