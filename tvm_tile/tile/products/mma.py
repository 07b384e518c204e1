"""Tiles of products for the tensor cores' warp instructions (mma), fed by asynchronous copies.

A block keeps a ring of stages in shared memory. All of its threads copy a chunk of both operands a
stage (cp.async), some stages ahead; its warps, each with a part of the tile's rows and columns,
multiply chunk by chunk and keep the sums in registers. Roller's alignment rules (section 3.1) are
here what the instructions ask for, 16 rows, 8 columns, a depth of 16, and what a warp loads at
once (ldmatrix), eight times 16 bytes from different banks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.tile.products.store_work import BARE, StoreWork
from tvm_tile.tile.products.warp_tile import (
    LEAST_LINE,
    WarpTile,
    chunk_counts,
    chunk_sectors,
    in_parts,
    warp_work,
)
from tvm_tile.tile.residency import fitting_blocks
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.slab import ELEMENT, FRAGMENT, UNIT_BYTES, Slab
from tvm_tile.tile.units.unit import MmaUnit

# Rows and columns of a warp, and how many warps have rows and columns of their own.
_WARP_TILES = ((64, 64), (64, 32), (32, 64), (32, 32), (16, 64), (32, 16), (16, 32), (16, 16))
_WARPS = ((2, 2), (4, 2), (2, 4), (4, 1), (1, 4), (8, 1), (1, 8))
_LARGEST_SIDE = 256
_DEPTHS = (LEAST_LINE // ELEMENT, 2 * LEAST_LINE // ELEMENT)  # elements of a chunk
_STAGES = (2, 3, 4, 5)
_DTYPES = frozenset({"float16", "bfloat16"})


MmaTile = WarpTile[MmaUnit]


def construct_mma(
    product: Product, device: Device, count: int, work: StoreWork = BARE, scene: Scene = AMID
) -> tuple[MmaTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the operands refuse.

    ``work`` is what becomes of the sums, ``scene`` where the kernel runs.
    """
    operands = (product.left, product.right)
    if any(operand.tensor.dtype not in mma_dtypes(device) for operand in operands):
        return ()
    if any(not operand.is_within_reach for operand in operands):
        return ()
    told = (
        own
        for plain in _tiles(product)
        for tile in in_parts(plain, product, device)
        for own in _in_stages(tile, work_of(product, device, tile, work), product, device)
    )
    return ranked(told, device, scene, count)


def shorter_work(product: Product, device: Device, tile: MmaTile, work: StoreWork) -> Work:
    """What a kernel does that leaves out blocks behind the end of a product.

    Args:
        product: the product that is asked for, shorter than the one that the tile was made for.
        device: the device that the tile is made for.
        tile: how it is computed.
        work: work on the sums before they are stored.
    """
    return work_of(product, device, tile.filled(product), work)


def mma_dtypes(device: Device) -> frozenset[str]:
    """Element types for which :func:`construct_mma` finds tiles on a device."""
    known = {i.in_dtype for i in device.matrix_instructions if i.intrinsic == "mma"}
    return _DTYPES & known


def _tiles(product: Product) -> Iterator[MmaTile]:
    """All tiles of a product for warp instructions, with the fewest stages."""
    shapes = itertools.product(_WARP_TILES, _WARPS, _DEPTHS)
    for (warp_rows, warp_columns), warps, depth in shapes:
        tile = WarpTile(MmaUnit(), warp_rows, warp_columns, warps, depth, _STAGES[0])
        if max(tile.rows, tile.columns) > _LARGEST_SIDE:
            continue
        tile = replace(tile, registers=_registers(product, tile))
        if tile.registers <= _MOST_REGISTERS:
            yield tile.filled(product)


def _in_stages(tile: MmaTile, work: Work, product: Product, device: Device) -> Iterator[MmaTile]:
    """A tile that does this work with each number of stages that fits the device.

    Nothing of a block's work depends on that but what is on its way meanwhile.
    """
    capacity = device.memory(MemoryLevel.SHARED).capacity
    start, chunk, stored = work.parts
    is_by_element = any(slab.is_by_element for slab in tile.chunks(product))
    most = max(_STAGES[0], chunk.repeats + 1)  # nothing would ever be in further ones
    for stages in (stages for stages in _STAGES if stages <= most):
        size = tile.ring_bytes(stages)
        if size > capacity:
            break
        ahead, later = _ahead(stages, int(chunk.repeats), is_by_element=is_by_element)
        resident = max(1, fitting_blocks(device, tile.block_size, tile.registers, size))
        parts = start, replace(chunk, loads=later, arrivals=later, ahead=ahead), stored
        own = replace(work, resident=resident, parts=parts)
        yield replace(tile, stages=stages, shared_bytes=size, work=own)


def _ahead(stages: int, chunks: int, *, is_by_element: bool) -> tuple[int, float]:
    """How many chunks are on their way at once, and the share of all that is waited for."""
    ahead = 1 if is_by_element else stages - 1
    return ahead, max(0.0, 1 - ahead / chunks)


def _slabs(product: Product, tile: MmaTile) -> list[Slab]:
    """Layouts of both operands' chunks."""
    return [chunk for chunk in tile.chunks(product) if isinstance(chunk, Slab)]


def _registers(product: Product, tile: MmaTile) -> int:
    """Sums, two fragments of each operand, addresses, and what copies by element hold."""
    warp = tile.unit.warp
    fragments = 2 * (tile.warp_rows + tile.warp_columns) * FRAGMENT * ELEMENT // (4 * warp)
    copies = sum(
        -(-slab.size // UNIT_BYTES // tile.block_size)
        * (_OF_A_SHIFTED_UNIT if slab.is_by_element else slab.copies * _OF_A_COPY)
        for slab in _slabs(product, tile)
    )
    return tile.sums + fragments + copies + _FIXED_REGISTERS


_FIXED_REGISTERS, _OF_A_COPY = 24, 2  # of a thread, and for the addresses of each of its copies
_OF_A_SHIFTED_UNIT = 15  # registers: two lines, a mask for what they become, a place, an address
_SHIFTING = 32  # instructions that find and mask a unit that begins anywhere
_MOST_REGISTERS = 255  # that a thread can name


def work_of(product: Product, device: Device, tile: MmaTile, work: StoreWork) -> Work:
    """What the kernel of a tile does; ``work`` is that on its sums before they are stored.

    All stages but one are asked for at the start: a block waits for the first chunk, and for those
    behind the ring's first round. Copies by element come to registers only a chunk ahead.
    """
    warp, warps, steps = tile.unit.warp, math.prod(tile.warps), tile.depth // FRAGMENT
    chunks = -(-math.prod(chunk_counts(product, tile.depth)) // tile.parts)
    slabs = _slabs(product, tile)
    single = sum(slab.size / UNIT_BYTES / warp for slab in slabs if slab.is_by_element)
    ahead, later = _ahead(tile.stages, chunks, is_by_element=single > 0)
    rows, columns = tile.warp_rows // FRAGMENT, tile.warp_columns // FRAGMENT
    loaded = warps * steps * (rows + columns)
    copies = sum(slab.copies * slab.size / UNIT_BYTES / warp for slab in slabs)
    # Units of a warp lie on as many lines as if they were copied whole, whatever the part of each.
    copied = sum(slab.copies * slab.size for slab in slabs)
    copied += sum(slab.size for slab in slabs if slab.is_by_element)
    chunk = Part(
        repeats=chunks,
        fills=chunk_sectors(product, tile),
        # Two instructions for all columns of a fragment.
        operations=warps * steps * rows * columns * 2 + single * _SHIFTING,
        moves=copies + single + loaded,
        wavefronts=(copied + loaded * FRAGMENT * FRAGMENT * ELEMENT) / WAVEFRONT,
        flops=2 * tile.rows * tile.columns * tile.depth,
        loads=later,
        arrivals=later,
        barriers=1,
        steps=steps,
        ahead=ahead,
    )
    return warp_work(product, device, tile, chunk, work)
