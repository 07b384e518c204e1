"""Tiles of a product and of what reads its neighbouring places, handed over in shared memory.

An inverted bottleneck is a product (1 x 1 convolution), a depthwise convolution, and a product. One
block makes a tile of the last one's places: for some channels at a time it multiplies all places
that the windows of its tile reach (the tile and its halo), sums the windows, and multiplies again
(Welder, section 4: an output tile's regions, propagated to every input; halos are made twice).
The window, or the second product, may be missing; a gate reads several channels of the first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.tile.cost import SECTOR
from tvm_tile.tile.products.halo_tile import WARP, WARPS, Halo, HaloTile, whole
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.products.store_work import BARE, store_part
from tvm_tile.tile.residency import resident_blocks
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Unit, Work
from tvm_tile.tile.units.product import Operand
from tvm_tile.tile.units.slab import ELEMENT, FRAGMENT, UNIT, UNIT_BYTES, vector_width
from tvm_tile.tile.units.sum_layout import MMA_SUMS

_CHUNKS = (16, 32, 48, 64, 96, 128)  # channels at a time
_EXTENTS = (1, 2, 4, 7, 8, 14, 16, 28, 32, 64, 128)  # of a tile along an axis
_LONGEST_SIDE = 64  # that a tile has as a whole
_MOST_PLACES, _FEWEST_PLACES = 256, 16
_MOST_HALO = 640  # places, of which a block keeps all channels of the first product's operand
_COLUMNS = 8  # of a product of a warp
_NARROWEST = 2  # elements of an asynchronous copy


def construct_halo(
    halo: Halo, device: Device, count: int, scene: Scene = AMID
) -> tuple[HaloTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the operands refuse.

    ``scene`` is where the kernel runs.
    """
    products = [product for product in (halo.first, halo.second) if product is not None]
    operands = [operand for product in products for operand in (product.left, product.right)]
    if any(operand.tensor.dtype not in mma_dtypes(device) for operand in operands):
        return ()
    if any(not operand.is_depth_major for operand in operands):
        return ()
    copied = [(halo.first.left, halo.first.depth), (halo.first.right, halo.first.depth)]
    copied += [(halo.second.right, halo.second.depth)] if halo.second else []
    if any(vector_width(operand, depth) < _NARROWEST for operand, depth in copied):
        return ()
    tiles = _tiles(halo, device)
    told = (replace(tile, work=work_of(halo, device, tile)) for tile in tiles if tile)
    return ranked(told, device, scene, count)


def _tiles(halo: Halo, device: Device) -> Iterator[HaloTile | None]:
    """All tiles of a halo kernel, ``None`` for those that do not fit."""
    chunks = [chunk for chunk in _CHUNKS if halo.channels % chunk == 0]
    for box, chunk in itertools.product(_boxes(halo), chunks):
        all_turns = halo.channels // chunk
        for turns in {all_turns} if halo.second else {1, all_turns}:
            tile = _tile(halo, box, chunk, turns)
            yield None if tile is None else _reckoned(halo, device, tile)


def _boxes(halo: Halo) -> Iterator[tuple[int, ...]]:
    """Windows of a tile, more than one only along the last two dimensions."""
    sides: list[tuple[int, ...]] = [(1,) for _ in halo.rows[:-2]]
    for row in halo.rows[-2:]:
        whole = {row.extent} if row.extent <= _LONGEST_SIDE else set()
        sides.append(tuple(sorted({n for n in _EXTENTS if n <= row.extent} | whole)))
    yield from (box for box in itertools.product(*sides) if _is_fit(halo, box))


def _is_fit(halo: Halo, box: tuple[int, ...]) -> bool:
    """Whether a box has enough windows, and a halo that is not too large."""
    windows = math.prod(box)
    reach = math.prod(row.reach(n) for row, n in zip(halo.rows, box, strict=True))
    least = min(_FEWEST_PLACES, math.prod(row.extent for row in halo.rows))
    return least <= windows <= _MOST_PLACES and reach <= _MOST_HALO


def _tile(halo: Halo, box: tuple[int, ...], chunk: int, turns: int) -> HaloTile | None:
    """The tile with this box, chunk and turns; ``None`` if it has too many columns."""
    columns = chunk * len(halo.parts)
    if columns > max(_CHUNKS):
        return None
    rows = -(-math.prod(box) // FRAGMENT)
    along_rows = max(n for n in (1, 2, 4, 8) if n <= max(1, rows))
    along_columns = WARPS // along_rows
    tile = HaloTile(
        box=box,
        chunk=chunk,
        turns=turns,
        warps=(along_rows, along_columns),
        halo=tuple(row.reach(n) for row, n in zip(halo.rows, box, strict=True)),
        depth=whole(halo.first.depth.extent, FRAGMENT),
        columns=columns,
        width=whole(halo.columns, FRAGMENT * along_columns) if halo.second else 0,
        kept=chunk * halo.kept_parts,
        taps=halo.taps if halo.has_window else 0,
    )
    tile = replace(tile, registers=_registers(halo, tile))
    return tile if tile.registers <= _MOST_REGISTERS else None


def _registers(halo: Halo, tile: HaloTile) -> int:
    """Registers of a thread: the second product's sums, and what its busier phase before holds."""
    sums = tile.windows // tile.warps[0] * tile.width // tile.warps[1] // WARP
    window = 0
    if tile.taps:
        window = len(halo.parts) * tile.fragments * _COLUMNS + 2 * halo.rows[-1].taps
    return sums + max(tile.columns, window) + _OTHER_REGISTERS


_OTHER_REGISTERS, _MOST_REGISTERS = 56, 232


def _reckoned(halo: Halo, device: Device, tile: HaloTile) -> HaloTile | None:
    """The tile with its grid; ``None`` if shared memory is too small."""
    corners = math.prod(tile.corners) * 4 if tile.width else 0
    shared = max(sum(tile.sizes) * ELEMENT, corners)
    if shared > device.memory(MemoryLevel.SHARED).capacity:
        return None
    counts = [-(-row.extent // n) for row, n in zip(halo.rows, tile.box, strict=True)]
    grid = math.prod(counts) * (halo.channels // (tile.chunk * tile.turns))
    return replace(tile, grid=grid, shared_bytes=shared)


def work_of(halo: Halo, device: Device, tile: HaloTile) -> Work:
    """What the kernel of a tile does: a turn's phases, in order, and the store behind them."""
    windows = math.prod(row.extent for row in halo.rows)
    written = windows * (halo.columns or halo.channels) * ELEMENT
    parts = [_opening(halo, tile), _values_part(halo, tile)]
    if tile.taps:
        parts.append(_windows_part(halo, tile))
    if tile.width:
        shape = (WARPS, tile.windows // tile.warps[0], tile.width // tile.warps[1])
        parts.append(_product_part(shape, tile))
        parts.append(store_part(BARE, MMA_SUMS, shape, written, tile.grid))
    else:
        units = math.prod(tile.box) * tile.chunk / UNIT
        stores = written / tile.grid / tile.turns
        moves, wavefronts = 2 * units / WARP, units * UNIT_BYTES / WAVEFRONT
        stored = Part(stores=stores, moves=moves, wavefronts=wavefronts, exchanges=1)
        parts.append(replace(stored, repeats=tile.turns))
    return Work(
        blocks=tile.grid,
        resident=resident_blocks(device, tile),
        warps=WARPS,
        parts=tuple(parts),
        read=max(0, halo.traffic - written),
        written=written,
        unit=Unit.WARP,
        dtype=halo.first.left.tensor.dtype,
    )


def _opening(halo: Halo, tile: HaloTile) -> Part:
    """The copies of all places and of the windows' weights, and the waits around all turns."""
    places, depth = math.prod(tile.halo), halo.first.depth
    taps = tile.taps * tile.kept * tile.turns
    width = vector_width(halo.first.left, depth)
    return Part(
        fills=places * _sectors(halo.first.left, depth.extent, width) + taps * ELEMENT,
        operations=taps / WARP * _OF_A_TAP,
        moves=(tile.places * tile.depth / width + 2 * taps) / WARP,
        wavefronts=(tile.places * tile.depth * ELEMENT + 2 * taps * ELEMENT) / WAVEFRONT,
        loads=1,
        arrivals=1,
        barriers=1 if tile.width else 0,
    )


def _values_part(halo: Halo, tile: HaloTile) -> Part:
    """A turn's copies of the next weights, and its values: a warp makes 16 places at a time."""
    first, second = halo.first, halo.second
    width = vector_width(first.right, first.depth)
    fills = tile.columns * _sectors(first.right, first.depth.extent, width)
    copies = tile.columns * tile.depth / width
    if second is not None:
        width = vector_width(second.right, second.depth)
        fills += second.right.extent * _sectors(second.right, tile.chunk, width)
        copies += tile.width * tile.chunk / width
    copied = (tile.columns * tile.depth + tile.width * tile.chunk) * ELEMENT
    fragments, steps = tile.places // FRAGMENT, tile.depth // FRAGMENT
    rounds = -(-fragments // WARPS)
    across = tile.columns // FRAGMENT
    loaded = fragments * steps * (1 + across)
    kept = fragments * tile.kept * FRAGMENT / WARP  # values of all warps' threads
    later = 1 - 1 / tile.turns
    return Part(
        repeats=tile.turns,
        fills=fills,
        operations=fragments * steps * across * 2 + kept * (halo.inner_operations + 1),
        moves=copies / WARP + loaded + kept / MMA_SUMS.run,
        wavefronts=(copied + loaded * _FRAGMENT_BYTES) / WAVEFRONT + kept / MMA_SUMS.run,
        flops=2 * tile.places * tile.columns * tile.depth,
        loads=later,
        arrivals=later,
        barriers=2,
        exchanges=rounds,
        steps=rounds * steps,
    )


def _windows_part(halo: Halo, tile: HaloTile) -> Part:
    """A turn's windows: sixteen channels of a few fragments a warp, summed tap by tap."""
    warps = tile.channel_warps * (WARPS // tile.channel_warps)
    parts = len(halo.parts)
    octets = FRAGMENT // UNIT
    taps, lines = parts * tile.taps, parts * (tile.taps // halo.rows[-1].taps)
    products = taps * tile.fragments * octets
    summed = tile.fragments * FRAGMENT * FRAGMENT / WARP  # of a thread
    moves = taps * octets + taps * tile.fragments + summed / MMA_SUMS.run
    # Of the weights on a diagonal a thread has its own, and zeros.
    operations = taps * octets + products + summed * (halo.outer_operations + 1)
    wavefronts = taps * octets + summed / MMA_SUMS.run
    return Part(
        repeats=tile.turns,
        operations=warps * operations,
        moves=warps * moves,
        wavefronts=warps * (wavefronts + taps * tile.fragments * _FRAGMENT_BYTES / WAVEFRONT),
        flops=warps * products * 2 * FRAGMENT * UNIT * UNIT,
        barriers=1,
        exchanges=lines,
        steps=taps,
    )


def _product_part(shape: tuple[int, int, int], tile: HaloTile) -> Part:
    """A turn's part of the second product, given its warps, and rows and columns of each."""
    warps, *sides = shape
    rows, columns = (side // FRAGMENT for side in sides)
    steps = tile.chunk // FRAGMENT
    loaded = warps * steps * (rows + columns)
    return Part(
        repeats=tile.turns,
        operations=warps * steps * rows * columns * 2,
        moves=loaded,
        wavefronts=loaded * _FRAGMENT_BYTES / WAVEFRONT,
        flops=2 * tile.windows * tile.width * tile.chunk,
        exchanges=1,
        steps=steps,
    )


def _sectors(operand: Operand, length: int, width: int) -> int:
    """Bytes of the sectors in which a line lies; lines of narrow copies begin anywhere in one."""
    size = operand.tensor.element_size
    return length * size + (SECTOR - width * size if width < UNIT else 0)


_FRAGMENT_BYTES = FRAGMENT * FRAGMENT * ELEMENT
_OF_A_TAP = 2  # to widen it, and to move it to its half of a word
