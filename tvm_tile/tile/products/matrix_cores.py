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
from collections.abc import Iterator
from dataclasses import replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.tile.products.warp_tile import (
    LEAST_LINE,
    WarpTile,
    chunk_counts,
    chunk_sectors,
    in_parts,
    warp_work,
)
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.residency import nameable_registers
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work
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
ADDING_THREADS = 64  # of a block that adds parts, four sums each: many blocks, one wave or two


MatrixTile = WarpTile[WaveUnit]


def construct_matrix_cores(
    product: Product, device: Device, count: int, scene: Scene = AMID
) -> tuple[MatrixTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the operands refuse.

    ``scene`` is where the kernel runs.
    """
    operands = (product.left, product.right)
    dtype = product.left.tensor.dtype
    if product.right.tensor.dtype != dtype or dtype not in matrix_core_dtypes(device):
        return ()
    if any(not operand.is_within_reach for operand in operands):
        return ()
    tiles = _tiles(product, device)
    told = (replace(tile, work=work_of(product, device, tile)) for tile in tiles)
    return ranked(told, device, scene, count)


def matrix_core_dtypes(device: Device) -> frozenset[str]:
    """Element types for which :func:`construct_matrix_cores` finds tiles on a device."""
    known = (i for i in device.matrix_instructions if layout_of(i, device.warp_size))
    return frozenset(i.in_dtype for i in known)


def _tiles(product: Product, device: Device) -> Iterator[MatrixTile]:
    """All tiles of a product for a device's matrix cores."""
    element = product.left.tensor.element_size
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
                yield from in_parts(tile, product, device)


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
