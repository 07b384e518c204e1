"""Tiles for sliding windows, pooling and depthwise convolution: how long a thread's strips are.

An input element meets a few outputs only, so a kernel lives from moving it once and cheaply. Each
thread sums a strip of outputs along an axis that slides, and reads each row of the input that its
windows hold once, into registers. Longer strips read less and give fewer threads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

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
    tiles = (
        _with_registers(replace(tile, stores_late=divides), device)
        for vectors in vectors_of(operator, window.axis, window.stride, sources)
        for tile in _tiles(operator, window, vectors, device)
    )
    told = (replace(tile, work=strips_work(tile, device, traffic)) for tile in tiles)
    # Of near ties the one with most threads: what the model leaves out punishes long strips.
    return near_ties(ranked(told, device, scene), _NEAR_TIE, lambda tile: tile.outputs)[:count]


def _tiles(
    operator: Operator, window: Window, vectors: Vectors, device: Device
) -> Iterator[WindowTile]:
    """All tiles of a sliding window, without predictions."""
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
            if is_long or columns > extents.get(window.column, 1):
                continue
            yield from _blocks(tile, device)


def _blocks(tile: WindowTile, device: Device) -> Iterator[WindowTile]:
    """The tile with each size of block, and its own where blocks would be too few."""
    yield from (replace(tile, block_size=threads) for threads in _THREADS)
    if tile.workers < 4 * _THREADS[0] * device.multi_processor_count:
        yield tile


def _with_registers(tile: WindowTile, device: Device) -> WindowTile:
    """The tile with its registers."""
    others = [read for read in tile.operator.reads if read not in tile.window.reads]
    fixed = sum(count for _, count in _loads(tile, others))
    return replace(tile, registers=_registers(tile, fixed, device))


def strips_work(tile: WindowTile, device: Device, traffic: int) -> Work:
    """What the blocks of a tile do.

    Args:
        tile: the tile, with its registers.
        device: the device that it is made for.
        traffic: bytes that cross global memory at least.
    """
    operator, vector = tile.operator, tile.vectors.count
    warps = -(-tile.block_size // device.warp_size)
    written = operator.write.tensor.size
    # Padding is not read: it is of the operator's tensors, but not of those in memory.
    from_memory = min(1.0, (traffic - written) / (operator.traffic - written))
    own = tile.outputs_along
    fetched = from_memory * block_bytes(operator.reads, operator, own, tile.block_size)
    others = [read for read in operator.reads if read not in tile.window.reads]
    fixed, moving = _loads(tile, others), _loads(tile, tile.window.reads)
    single = [(read, float(count), 1) for read, count in fixed]
    loads = single + [(read, count / vector, vector) for read, count in moving]
    stores = tile.outputs / vector
    widened = sum(count for r, count in (*moving, *fixed) if r.tensor.element_size < 4)
    tested = sum(math.prod(line.extents) for line in tile.lines) * _tested_rows(tile) / vector
    operations = tile.outputs * operator.depth * arithmetic_slots(device) + widened + tested
    operations += tile.outputs * _DIVISION if tile.stores_late else 0
    trips = math.ceil(tile.rows / (vector if tile.are_rows_neighbours else 1) / _ROWS_IN_FLIGHT)
    answers = sum(c * warp_wavefronts(r, operator, own, v, device) for r, c, v in loads)
    rows = Part(
        repeats=trips,
        fills=fetched / trips,
        stores=warps * stores * _stored_sectors(tile, device) * SECTOR / trips,
        operations=warps * operations / trips,
        moves=warps * (sum(count for _, count, _ in loads) + stores) / trips,
        # The first-level cache answers through the banks of shared memory.
        wavefronts=warps * answers / trips,
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


def _loads(tile: WindowTile, reads: tuple[Access, ...] | list[Access]) -> list[tuple[Access, int]]:
    """How many elements of each access a thread reads."""
    own = tile.operator.extents | tile.outputs_along
    rows = sum(bool(tile.taps(row)) for row in range(tile.rows))
    lines = {line.read: math.prod(line.extents) * rows for line in tile.lines}
    return [(read, lines.get(read) or read.elements(own)) for read in reads]


def _tested_rows(tile: WindowTile) -> int:
    """Rows that lie outside the image for some strips and inside it for others."""
    extent = next(a.extent for a in tile.operator.spatial_axes if a.name == tile.window.axis)
    if tile.strip == extent or not any(read.is_computed for read in tile.window.reads):
        return 0
    overhang = -extent % tile.strip * tile.step
    return min(tile.rows, max(0, tile.window.size - tile.step) + overhang)


def _registers(tile: WindowTile, fixed: int, device: Device) -> int:
    """Registers of a thread of a tile, as predicted."""
    kept = tile.strip if tile.stores_late else -(-tile.window.size // tile.step)
    unfinished = kept * tile.outputs // tile.strip
    lines = sum(math.prod(line.extents) for line in tile.lines)
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
