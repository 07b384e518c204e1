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
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.device.matrix_times import HaloTimes
from tvm_tile.device.times import needed
from tvm_tile.tile.cost import SCHEDULERS
from tvm_tile.tile.limits import norm
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.residency import resident_blocks
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.slab import ELEMENT, FRAGMENT, UNIT, vector_width
from tvm_tile.tile.units.sum_layout import CORNER_PITCH, CORNER_ROWS

WARP = 32  # threads
WARPS = 8
_CHUNKS = (16, 32, 48, 64, 96, 128)  # channels at a time
_EXTENTS = (1, 2, 4, 7, 8, 14, 16, 28, 32, 64, 128)  # of a tile along an axis
_LONGEST_SIDE = 64  # that a tile has as a whole
_MOST_PLACES, _FEWEST_PLACES = 256, 16
_MOST_HALO = 640  # places, of which a block keeps all channels of the first product's operand
_COLUMNS = 8  # of a product of a warp
_NARROWEST = 2  # elements of an asynchronous copy


@dataclass(frozen=True, slots=True)
class Row:
    """A dimension of the places, all but the channels.

    Attributes:
        extent: places along it that windows are summed for.
        taps: taps of a window.
        step: step from one window to the next.
        spread: distance from one tap to the next.
    """

    extent: int
    taps: int = 1
    step: int = 1
    spread: int = 1

    def reach(self, count: int) -> int:
        """Places that ``count`` neighbouring windows reach."""
        return (count - 1) * self.step + (self.taps - 1) * self.spread + 1


@dataclass(frozen=True, slots=True)
class Halo:
    """A product, what reads its values, and perhaps a second product.

    Attributes:
        first: the first product; its left operand has the places, its right one the channels.
        rows: the places' dimensions.
        channels: channels of the windows' sums, which are the second product's depth.
        parts: first channel of each of the values of one channel that are read of the first
            product; more than one where a value gates another.
        has_window: whether windows are summed.
        second: the second product, which takes the windows' sums; ``None`` where they are the
            output.
        inner_operations: operations of one value of the first product, behind it.
        outer_operations: operations on one value behind the windows.
        traffic: bytes that cross global memory at least.
    """

    first: Product
    rows: tuple[Row, ...]
    channels: int
    parts: tuple[int, ...]
    has_window: bool
    second: Product | None
    inner_operations: int
    outer_operations: int
    traffic: int

    @property
    def taps(self) -> int:
        """Elements of a window."""
        return math.prod(row.taps for row in self.rows)

    @property
    def columns(self) -> int:
        """Columns of the second product; 0 without one."""
        return self.second.right.extent if self.second else 0

    @property
    def kept_parts(self) -> int:
        """Values of one channel that are handed on to the windows; else a value is made of all."""
        return len(self.parts) if self.has_window else 1


@dataclass(frozen=True, slots=True)
class HaloTile(Tile):
    """How products with windows between them are computed.

    Attributes:
        box: windows along each of the places' dimensions.
        chunk: channels at a time.
        turns: chunks that a block takes, one after the other.
        warps: warps of the second product, along its rows and its columns.
        halo: places that the box's windows reach along each dimension.
        depth: depth of the first product, in whole instructions.
        columns: columns of the first product that are computed at a time.
        width: columns of the second product, in whole warps.
        kept: columns of the first product's values that are kept at a time.
        taps: taps of a window; 0 where there is none.
        grid: blocks.
    """

    box: tuple[int, ...]
    chunk: int
    turns: int
    warps: tuple[int, int]
    halo: tuple[int, ...]
    depth: int
    columns: int
    width: int
    kept: int
    taps: int
    grid: int = 0

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return WARP * WARPS

    @property
    def places(self) -> int:
        """Rows of the first product, in whole instructions."""
        return _whole(math.prod(self.halo), FRAGMENT)

    @property
    def windows(self) -> int:
        """Rows of the second product, in whole warps."""
        return _whole(math.prod(self.box), FRAGMENT * self.warps[0])

    @property
    def depth_pitch(self) -> int:
        """Elements from one row of the first product's operands to the next.

        An odd number of 16-byte units: the eight rows that a warp loads at once lie on all banks.
        """
        return self.depth + UNIT

    @property
    def kept_pitch(self) -> int:
        """Elements from one row to the next, of the values that are handed to the windows."""
        return self.kept + UNIT

    @property
    def chunk_pitch(self) -> int:
        """Elements from one row to the next, of the second product's operands."""
        return self.chunk + UNIT

    @property
    def channel_warps(self) -> int:
        """Warps that sum windows of channels of their own, sixteen each."""
        return self.chunk // FRAGMENT

    @property
    def fragments(self) -> int:
        """Fragments of 16 windows that a warp sums."""
        return -(-self.windows // FRAGMENT // (WARPS // self.channel_warps))

    @property
    def has_spare_fragments(self) -> bool:
        """Whether warps have more fragments than there are."""
        return self.fragments * (WARPS // self.channel_warps) * FRAGMENT > self.windows

    @property
    def stages(self) -> int:
        """Chunks of weights in shared memory: the next one comes while one is read."""
        return min(2, self.turns)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each part of shared memory, in the order of :meth:`start`.

        The first product's left operand, values handed on, windows' sums, the weights of both
        products by stages, and those of the windows.
        """
        is_summed = self.taps > 0
        return (
            self.places * self.depth_pitch,
            max(self.places, 0 if is_summed else self.windows) * self.kept_pitch,
            self.windows * self.chunk_pitch if is_summed else 0,
            self.stages * self.columns * self.depth_pitch,
            self.stages * self.width * self.chunk_pitch,
            2 * _whole(self.taps * self.kept * self.turns, UNIT),
        )

    def start(self, part: int) -> int:
        """Elements before a part of shared memory."""
        return sum(self.sizes[:part])

    @property
    def corners(self) -> tuple[int, int, int]:
        """Floats through which the second product's sums go out, where all else was."""
        return (WARPS, CORNER_ROWS, CORNER_PITCH)

    def describe(self) -> str:
        """The tile in one line, for people."""
        box = "x".join(map(str, self.box))
        return f"box {box}, {self.chunk} channels at a time, {self.turns} times"


def construct_halo(halo: Halo, device: Device, count: int) -> tuple[HaloTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the operands refuse."""
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
    return ranked(_tiles(halo, device), count)


def _whole(number: int, unit: int) -> int:
    """``number`` rounded up to a multiple of ``unit``."""
    return -(-number // unit) * unit


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
        depth=_whole(halo.first.depth.extent, FRAGMENT),
        columns=columns,
        width=_whole(halo.columns, FRAGMENT * along_columns) if halo.second else 0,
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
    """The tile with its grid and predicted time; ``None`` if shared memory is too small."""
    corners = math.prod(tile.corners) * 4 if tile.width else 0
    shared = max(sum(tile.sizes) * ELEMENT, corners)
    if shared > device.memory(MemoryLevel.SHARED).capacity:
        return None
    counts = [-(-row.extent // n) for row, n in zip(halo.rows, tile.box, strict=True)]
    grid = math.prod(counts) * (halo.channels // (tile.chunk * tile.turns))
    tile = replace(tile, grid=grid, shared_bytes=shared)
    return replace(tile, seconds=_seconds(halo, device, tile))


def _seconds(halo: Halo, device: Device, tile: HaloTile) -> float:
    """The time of the busiest multiprocessor and of the memory."""
    times = needed(device.times.halo, "matrix instructions of a warp")
    blocks = -(-tile.grid // device.multi_processor_count)
    most = resident_blocks(device, tile)
    resident = min(most, blocks)
    slots, issued = _slots(halo, tile, times)
    waiting = times.block_cycles / device.clock + tile.turns * (times.turn_cycles / device.clock)
    alone = waiting + slots * times.slot_cycles / device.clock
    shared = issued / (SCHEDULERS * times.issue_share) / device.clock
    each = norm(times.block_power, alone / resident, shared)
    busy = max(alone, blocks * each)
    stream = halo.traffic / device.read_bandwidth
    return times.start_cycles / device.clock + norm(times.total_power, busy, stream)


def _slots(halo: Halo, tile: HaloTile, times: HaloTimes) -> tuple[float, float]:
    """Issue slots of the busiest warp of a block, and of all its warps."""
    fragments = tile.places // FRAGMENT
    values, held = tile.columns / 2, tile.kept / 2  # of a thread, in a fragment
    value = times.value_slots + times.operation_slots * halo.inner_operations
    make = times.fragment_slots + held * value
    make += values / _COLUMNS * tile.depth / FRAGMENT * times.product_slots
    summed = _sum_slots(halo, tile, times)
    busy = min(WARPS, tile.channel_warps * (WARPS // tile.channel_warps))
    # What all warps do alike, a turn and a block.
    copies = (tile.columns * tile.depth + tile.width * tile.chunk) / UNIT * times.copy_slots
    outputs = 0 if tile.width else math.prod(tile.box) * tile.chunk / UNIT * times.store_slots
    parts = tile.windows * tile.width * tile.chunk / FRAGMENT**3 / WARPS
    turn = (copies + outputs) / tile.block_size + parts * times.product_slots
    start = tile.places * tile.depth / UNIT * times.copy_slots
    start += tile.taps * tile.kept * tile.turns * times.tap_copy_slots
    block = (start + tile.windows * tile.width * times.total_slots) / tile.block_size
    longest = turn + -(-fragments // WARPS) * make + summed
    everything = WARPS * turn + fragments * make + busy * summed
    return block + tile.turns * longest, WARPS * block + tile.turns * everything


def _sum_slots(halo: Halo, tile: HaloTile, times: HaloTimes) -> float:
    """Issue slots of a warp that sums windows, a turn."""
    if not tile.taps:
        return 0.0
    taps = len(halo.parts) * tile.taps
    value = times.sum_slots + times.sum_operation_slots * halo.outer_operations
    sums = tile.fragments * (taps * times.summed_slots + _COLUMNS * value)
    return sums + (taps + 1) * times.weight_slots
