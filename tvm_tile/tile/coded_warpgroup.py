"""Tiles of products of many vectors with a matrix of codes, for Hopper's warpgroup instructions.

The matrix' rows are the instructions': their left operand comes from registers, so codes are
decoded there while products of the step before run, and no decoded matrix crosses memory. The
vectors, right operand, come by bulk tensor copies, as :mod:`tvm_tile.tile.warpgroup` says; so do
the codes. Sums are those of the transposed product.

A consumer is a warpgroup with 64 rows of the matrix. For the vectors of a tile it decodes each code
once: the wider the tile, the less there is to issue for each product. Few vectors make few tiles,
so the blocks of a cluster share the sum of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import Device
from tvm_tile.device.matrix_times import CodedWarpgroupTimes
from tvm_tile.device.times import needed
from tvm_tile.tile.coded import CodedProduct
from tvm_tile.tile.limits import norm
from tvm_tile.tile.residency import divide_registers, launched_registers, shared_capacity
from tvm_tile.tile.store_work import BARE, StoreWork, store_seconds
from tvm_tile.tile.sum_layout import CORNER_COLUMNS, CORNER_ROWS, QUAD
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.warpgroup import matrix_rate, warpgroup_dtypes, wgmma_times
from tvm_tile.tile.warpgroup_tile import BARRIER_BYTES, LINE, ROWS, WARPGROUP

STEP = 32  # elements of the sum that are decoded together: two instructions deep
LINE_DEPTH = 64  # halves of a line
_FEWEST_VECTORS = 17  # up to 16 are few: the rule for these reads as fast as memory
_WIDTHS = (24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, 256)  # of an instruction
_NARROWEST = 64  # columns for which an instruction takes the time
_CONSUMERS = (1, 2, 3, 4)
_LINES = (1, 2, 4)  # of a vector in a chunk
_SPLITS = (1, 2, 4, 8)  # larger clusters are not portable
_PAIR = 2  # blocks of a cluster that finds its place anywhere
_MOST_BLOCKS = 4
_FEWEST_STAGES, _MOST_STAGES = 3, 8
_ALIGNMENT = 1024  # bytes, of swizzled lines in a stage
_WORD = 4  # bytes
_BYTE = 8  # bits
_ELEMENT = 2  # bytes
_FRAGMENTS = 16  # registers of two steps' decoded weights
_OTHER_REGISTERS = 45  # of a consumer thread, besides sums, codes and decoded weights
_PAIRS = 8  # of codes that a thread decodes in a step, in each of its two rows


@dataclass(frozen=True, slots=True)
class CodedWarpgroupTile(Tile):
    """How warpgroups compute a tile of a product with a matrix of codes.

    Attributes:
        consumers: warpgroups that decode and multiply, each with 64 rows of the matrix.
        width: vectors of a tile.
        lines: of a vector in a chunk, 64 elements each.
        row_bytes: of a row's codes in a chunk.
        unit: elements of the sum, from a multiple of it on, that share all that is shared.
        shared_words: of a row in such a unit: its scale, and what is subtracted if that differs.
        stages: chunks that the ring holds.
        splits: blocks, a cluster, that share the sum of a tile.
        blocks: that share a multiprocessor.
        counts: tiles along the matrix' rows, and along the vectors.
        raster: tiles of rows that are walked before the next tile of vectors.
        grid: blocks, each of which takes tiles until none is left.
        division: of registers, what producer's and consumers' threads have; None as launched.
    """

    consumers: int
    width: int
    lines: int
    row_bytes: int
    unit: int
    shared_words: int
    stages: int
    splits: int
    blocks: int
    counts: tuple[int, int]
    raster: int
    grid: int = field()
    division: tuple[int, int] | None

    @property
    def depth(self) -> int:
        """Elements of the sum in a chunk."""
        return self.lines * LINE_DEPTH

    @property
    def block_rows(self) -> int:
        """Rows of the matrix that a block has."""
        return self.consumers * ROWS

    @property
    def tiles(self) -> int:
        """Of the whole output."""
        return math.prod(self.counts)

    @property
    def units(self) -> int:
        """Of a chunk, that have shared words of their own."""
        return self.depth // self.unit

    @property
    def codes_start(self) -> int:
        """Bytes of a stage ahead of the codes: the vectors' lines."""
        return self.lines * self.width * LINE

    @property
    def shared_start(self) -> int:
        """Bytes of a stage ahead of what boxes share."""
        return self.codes_start + self.block_rows * self.row_bytes

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage: vectors, codes, and what their boxes share."""
        size = self.shared_start + self.units * self.block_rows * self.shared_words * _WORD
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    @property
    def together(self) -> int:
        """Vectors whose sums a warp stores together."""
        return math.gcd(self.width, CORNER_COLUMNS)

    @property
    def store_shape(self) -> tuple[int, ...]:
        """Sums that go out together, by vectors and rows: the block's part of them, or a warp's.

        Their padding keeps neighbouring vectors on different banks.
        """
        if self.splits > 1:
            return (self.width, self.block_rows + QUAD)
        return (4 * self.consumers, self.together, CORNER_ROWS + QUAD)

    @property
    def block_size(self) -> int:
        """Threads: the consumers' and the producer's warpgroup."""
        return WARPGROUP * (self.consumers + 1)

    def describe(self) -> str:
        """The tile in one line, for people."""
        ring = f"depth {self.depth}, {self.stages} stages"
        split = f", {self.splits} blocks a sum" if self.splits > 1 else ""
        shared = f", {self.blocks} blocks a multiprocessor" if self.blocks > 1 else ""
        groups = f"{self.consumers} warpgroups"
        return f"block {self.block_rows} rows by {self.width}, {ring}, {groups}{split}{shared}"


def construct_coded_warpgroup(
    product: CodedProduct, shared_words: int, device: Device, work: StoreWork = BARE
) -> tuple[CodedWarpgroupTile, ...]:
    """Tiles, best first; none where boxes of codes are cut by steps, or of few vectors.

    Args:
        product: with ``instructions`` as the warpgroups' decoding takes them.
        shared_words: that a row has for codes that share all: its scale, perhaps its zero point.
        device: none of whose tiles there are, if it has no warpgroup instructions.
        work: what becomes of the sums.

    Raises:
        DeviceRecordError: the device has these instructions, and no times of such products.
    """
    if "float16" not in warpgroup_dtypes(device) or product.vectors < _FEWEST_VECTORS:
        return ()
    return ranked(
        replace(tile, seconds=_seconds(product, device, tile, work))
        for tile in _tiles(product, shared_words, device)
    )


def _tiles(
    product: CodedProduct, shared_words: int, device: Device
) -> Iterator[CodedWarpgroupTile]:
    shares = (*((n, 1) for n in _SPLITS), *((1, n) for n in range(2, _MOST_BLOCKS + 1)))
    widths = [_width(product.vectors, most) for most in _WIDTHS]
    for lines in _LINES:
        depth = lines * LINE_DEPTH
        unit = math.gcd(product.group, depth)
        if product.depth % depth or unit % STEP:
            continue
        for consumers, width, share in itertools.product(_CONSUMERS, dict.fromkeys(widths), shares):
            rows = consumers * ROWS
            counts = -(-product.rows // rows), -(-product.vectors // width)
            tile = CodedWarpgroupTile(
                consumers=consumers,
                width=width,
                lines=lines,
                row_bytes=depth * product.bits // _BYTE,
                unit=unit,
                shared_words=shared_words,
                stages=0,
                splits=share[0],
                blocks=share[1],
                counts=counts,
                raster=min(counts[0], max(1, 2048 // rows)),
                grid=0,
                registers=width // 2 + 2 * product.bits + _FRAGMENTS + _OTHER_REGISTERS,
                division=None,
            )
            fitted = _fitted(tile, product, device)
            if fitted is not None:
                yield fitted


def _width(vectors: int, most: int) -> int:
    """The narrowest tile of which as few cover all vectors as of the widest."""
    tiles = -(-vectors // most)
    return -(-vectors // tiles // 8) * 8


def _fitted(
    tile: CodedWarpgroupTile, product: CodedProduct, device: Device
) -> CodedWarpgroupTile | None:
    """The tile with its stages, grid and registers; ``None`` where it does not fit."""
    units = device.multi_processor_count
    if tile.splits > 1 and not _can_split(tile, product, device):
        return None
    if tile.blocks > 1 and tile.tiles <= (tile.blocks - 1) * units:
        return None  # fewer blocks have as much to do each
    fixed = math.prod(tile.store_shape) * _WORD + BARRIER_BYTES
    free = shared_capacity(device, tile.blocks) - fixed
    stages = min(_MOST_STAGES, free // tile.stage_bytes)
    launched = launched_registers(device, tile.blocks, tile.block_size)
    division = divide_registers(launched, tile.blocks, tile.consumers)
    own = launched if division is None else division[1]
    if stages < _FEWEST_STAGES or own < tile.registers:
        return None
    return replace(
        tile,
        stages=stages,
        grid=min(tile.tiles * tile.splits, tile.blocks * units),
        shared_bytes=stages * tile.stage_bytes + fixed,
        division=division,
    )


def _can_split(tile: CodedWarpgroupTile, product: CodedProduct, device: Device) -> bool:
    """Whether all clusters run at once, and each block has chunks of its own."""
    share = 1 if tile.splits <= _PAIR else wgmma_times(device).cluster_share
    usable = device.multi_processor_count * share
    each = chunks_each(tile, product.depth)
    return tile.tiles * tile.splits <= usable and each * (tile.splits - 1) < product.depth // (
        tile.depth
    )


def chunks_each(tile: CodedWarpgroupTile, depth: int) -> int:
    """Chunks of every block but the last that share the sum of a tile."""
    return -(-(depth // tile.depth) // tile.splits)


def _seconds(
    product: CodedProduct, device: Device, tile: CodedWarpgroupTile, work: StoreWork
) -> float:
    """The time of the busiest multiprocessor and of the memory."""
    times = wgmma_times(device)
    turns = -(-tile.tiles * tile.splits // tile.grid)
    multiplied = chunks_each(tile, product.depth) * _chunk_seconds(product, device, tile)
    sums = tile.width // 2 // tile.splits
    stored = store_seconds(work, device, sums, tile.consumers * tile.blocks)
    between = times.tile_cycles / device.clock
    busy = turns * (multiplied + stored) + (turns - 1) * between
    busy += times.split_cycles / device.clock * math.log2(tile.splits)
    vectors = product.vectors * (product.depth + product.rows) * _ELEMENT
    traffic = product.code_bytes + product.beside + vectors + work.read_bytes
    stream = traffic / (device.read_bandwidth * times.memory_share)
    return times.start_cycles / device.clock + norm(times.total_power, busy, stream)


def _chunk_seconds(product: CodedProduct, device: Device, tile: CodedWarpgroupTile) -> float:
    """From one chunk to the next: products, fills, issue, and what a consumer waits for alone.

    Blocks that share a multiprocessor share its rates, but each waits on its own.
    """
    times, own = wgmma_times(device), coded_warpgroup_times(device)
    units, steps = device.multi_processor_count, tile.depth // STEP
    products = tile.block_rows * max(tile.width, _NARROWEST) * tile.depth
    rate = matrix_rate(device, "float16") * own.rate_share  # bfloat16's is no other
    multiply = 2 * products / (rate / units)
    fill = tile.shared_start / (device.l2_bandwidth * times.cache_share / units)
    slots = steps * (_PAIRS * product.instructions + own.step_slots)  # of a warp
    issue = tile.consumers * slots / device.clock  # a scheduler has one of a consumer's four
    alone = (slots + steps * own.step_cycles) / device.clock
    ring = times.ring_cycles / device.clock / tile.stages
    shared = (tile.blocks * each for each in (multiply, fill, issue))
    return norm(times.step_power, *shared, alone, ring)


def coded_warpgroup_times(device: Device) -> CodedWarpgroupTimes:
    """The parameters of decoding for a device's warpgroup instructions.

    Raises:
        DeviceRecordError: the record has none.
    """
    return needed(device.times.coded_warpgroup, "warpgroup instructions")
