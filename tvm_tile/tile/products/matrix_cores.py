"""Tiles of products for AMD's matrix cores (MFMA, WMMA), fed through registers.

These GPUs have no asynchronous copies: the threads of a block load a chunk of both operands to
registers, multiply the one before it, and then store what has come to shared memory, of which a
block keeps one stage or two. Its waves, each with a part of the tile's rows and columns, keep the
sums in registers. Roller's alignment rules (section 3.1) are here the instructions' rows and
columns, 16 or 32, and units of 16 bytes along the depth, which all loads keep together.

Where tiles are few and their sums long, a sum is split: blocks of their own sum up parts of it, and
a second kernel adds these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.device.times import needed
from tvm_tile.tile.limits import norm, sum_seconds
from tvm_tile.tile.products.store_work import SUM_BYTES
from tvm_tile.tile.products.warp_tile import (
    LEAST_LINE,
    WarpTile,
    chunk_counts,
    chunk_seconds,
    chunk_sectors,
    warp_work,
)
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.residency import nameable_registers, resident_blocks
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import WAVEFRONT, Part, Work
from tvm_tile.tile.units.matrix_layout import layout_of
from tvm_tile.tile.units.panel import Panel
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.slab import UNIT_BYTES
from tvm_tile.tile.units.unit import WaveUnit, units_of

# Rows and columns of a wave, and how many waves have rows and columns of their own.
_WAVE_SIDES = (128, 64, 32, 16)
_WAVES = ((2, 2), (4, 1), (1, 4), (2, 4), (4, 2), (1, 2), (2, 1), (1, 1))
_LARGEST_SIDE = 256
_LINES = (LEAST_LINE, 2 * LEAST_LINE)
_STAGES = (2, 1)
_PARTS = (2, 4, 8, 16)
ADDING_THREADS = 64  # of a block that adds parts, four sums each: many blocks, one wave or two


MatrixTile = WarpTile[WaveUnit]


def construct_matrix_cores(product: Product, device: Device, count: int) -> tuple[MatrixTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the operands refuse."""
    operands = (product.left, product.right)
    dtype = product.left.tensor.dtype
    if product.right.tensor.dtype != dtype or dtype not in matrix_core_dtypes(device):
        return ()
    if any(not operand.is_within_reach for operand in operands):
        return ()
    best = ranked(_tiles(product, device), count)
    return tuple(replace(tile, work=work_of(product, device, tile)) for tile in best)


def matrix_core_dtypes(device: Device) -> frozenset[str]:
    """Element types for which :func:`construct_matrix_cores` finds tiles on a device."""
    known = (i for i in device.matrix_instructions if layout_of(i, device.warp_size))
    return frozenset(i.in_dtype for i in known)


def _tiles(product: Product, device: Device) -> Iterator[MatrixTile]:
    """All tiles of a product for a device's matrix cores."""
    element = product.left.tensor.element_size
    added = [(parts, _adding_seconds(product, device, parts)) for parts in _PARTS]
    for unit in units_of(device, product.left.tensor.dtype):
        if not isinstance(unit, WaveUnit):
            continue
        sides = [side for side in _WAVE_SIDES if side >= unit.rows]
        shapes = itertools.product(sides, sides, _WAVES, _LINES, _STAGES)
        for rows, columns, waves, line, stages in shapes:
            if max(rows * waves[0], columns * waves[1]) > _LARGEST_SIDE:
                continue
            tile = WarpTile(unit, rows, columns, waves, line // element, stages)
            if stages > math.prod(chunk_counts(product, tile.depth)):
                continue  # nothing would ever be in the second
            tile = tile.filled(product)
            tile = replace(tile, registers=_registers(product, tile, device))
            if _fits(device, tile):
                yield from _timed(product, device, tile, added)


def _fits(device: Device, tile: MatrixTile) -> bool:
    """Whether a block has enough of shared memory and of registers."""
    each = device.registers_per_multi_processor // tile.block_size
    most = min(nameable_registers(device), each) * _SHARE_OF_REGISTERS
    is_held = tile.registers <= most and tile.sums <= _MOST_SUMS
    return is_held and tile.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity


def _panels(product: Product, tile: MatrixTile) -> list[Panel]:
    """Layouts of both operands' chunks."""
    return [chunk for chunk in tile.chunks(product) if isinstance(chunk, Panel)]


def _registers(product: Product, tile: MatrixTile, device: Device) -> int:
    """Sums, fragments, what is on its way to shared memory, and addresses."""
    layout = tile.unit.layout
    loads = (tile.warp_rows + tile.warp_columns) // layout.size * layout.units
    if register_use(device).has_all_fragments:
        loads *= tile.depth * layout.element // UNIT_BYTES // layout.step
    held = sum(panel.registers(tile.block_size) for panel in _panels(product, tile))
    return tile.sums + loads * UNIT_BYTES // 4 + held + _FIXED_REGISTERS


_FIXED_REGISTERS = 16  # of a thread
_SHARE_OF_REGISTERS = 0.92  # the rest is the compiler's, which moves loads ahead
_MOST_SUMS = 128  # of a thread: with more, the compiler runs out of registers for the rest
_SIMDS = 4  # of a compute unit, each with matrix cores of its own
_LANES = 16  # whose loads a compute unit serves in a clock
_LEAST_CHUNKS = 2  # of a part


def _timed(
    product: Product, device: Device, tile: MatrixTile, added: Sequence[tuple[int, float]]
) -> Iterator[MatrixTile]:
    """A tile with its time, and with its sum in as many parts as are faster, if any are.

    Parts are for compute units that have no block otherwise.

    Args:
        product: the product that is computed.
        device: the device that computes it.
        tile: a tile that fits the device.
        added: numbers of parts, and what adding them takes.
    """
    times = needed(device.times.matrix_cores, "matrix cores")
    units, clock = device.multi_processor_count, device.clock
    fitting = resident_blocks(device, tile)
    multiply, *others = _chunk_seconds(product, device, tile)
    waits = 2 if tile.stages == 1 else 1
    alone = times.chunk_cycles / clock + waits * (times.wait_cycles / clock)
    chunks = math.prod(chunk_counts(product, tile.depth))

    def seconds(parts: int) -> float:
        """The time of the busiest compute unit and of the memory."""
        turns = -(-tile.grid * parts // units)
        resident = min(fitting, turns)
        share = min(1.0, resident * math.prod(tile.warps) / _SIMDS)
        step = norm(times.step_power, multiply / share, *others, alone / resident)
        busy = turns * (-(-chunks // parts) * step + times.tile_cycles / clock / resident)
        stream = product.traffic / device.read_bandwidth
        return times.start_cycles / clock + norm(times.total_power, busy, stream)

    whole = seconds(1)
    yield replace(tile, seconds=whole)
    most = min(units // tile.grid, chunks // _LEAST_CHUNKS)
    found = [(seconds(parts) + more, parts) for parts, more in added if parts <= most]
    best, parts = min(found, default=(whole, 1))
    if best < whole:
        yield replace(tile, parts=parts, grid=tile.grid * parts, seconds=best)


def work_of(product: Product, device: Device, tile: MatrixTile) -> Work:
    """What the kernel of a tile does, and that which adds the parts of its sums, if any.

    Loads of a chunk are on their way while the one before it is multiplied.
    """
    layout, warps, steps = tile.unit.layout, math.prod(tile.warps), tile.depth // tile.unit.depth
    chunks = math.prod(chunk_counts(product, tile.depth)) / tile.parts
    rows, columns = tile.warp_rows // layout.size, tile.warp_columns // layout.size
    loaded = warps * steps * (rows + columns) * layout.units
    panels = _panels(product, tile)
    wave, stored, packed, copies = tile.unit.warp, 0.0, 0.0, 0.0
    for panel in panels:
        copies += panel.size / (panel.width * panel.element) / wave
        # A patch goes to a line, or turned, a part of each run to as many lines as it has elements.
        lines = panel.unit if panel.is_turned else 1
        stored += panel.patches * lines / wave
        if panel.is_turned or panel.is_by_element:
            packed += panel.size / panel.element / wave * _OF_PACKING
    is_at_once = register_use(device).has_all_fragments
    chunk = Part(
        repeats=chunks,
        fills=chunk_sectors(product, tile),
        operations=warps * steps * layout.instructions * rows * columns + packed,
        moves=copies + stored + loaded,
        wavefronts=(tile.stage_bytes + loaded * wave * UNIT_BYTES) / WAVEFRONT,
        flops=2 * tile.rows * tile.columns * tile.depth,
        loads=1 - 1 / chunks,
        arrivals=1 - 1 / chunks,
        barriers=1 if tile.stages > 1 else 2,
        exchanges=1 if is_at_once else steps,
        steps=steps * layout.instructions,
    )
    return warp_work(product, device, tile, chunk)


_OF_PACKING = 2  # instructions that shift an element and join it to a word


def _adding_seconds(product: Product, device: Device, parts: int) -> float:
    """Seconds that sums in parts cost besides: they are written, and one more kernel reads them."""
    size = parts * product.batches * product.left.extent * product.right.extent * SUM_BYTES
    is_cached = size <= device.l2_capacity
    moved = 2 * size / (device.l2_bandwidth if is_cached else device.read_bandwidth)
    return moved + float(sum_seconds(product.write.tensor.size, device))


def _chunk_seconds(product: Product, device: Device, tile: MatrixTile) -> tuple[float, ...]:
    """Seconds of a chunk on a compute unit's matrix cores, in shared memory, cache and loads."""
    rate = dict(device.matrix_flops)[tile.unit.instruction.in_dtype]
    bounds = chunk_seconds(tile, device, rate, tile.unit.layout.copies)
    loads = sum(panel.size / (panel.width * panel.element) for panel in _panels(product, tile))
    return *bounds, loads / _LANES / device.clock
