"""Tiles of products for Hopper's warpgroup instructions (wgmma), fed by bulk tensor copies (TMA).

A block keeps a ring of stages in shared memory. Its producer asks for a chunk of both operands a
stage, each a box of its tensor; its consumers, a warpgroup for every 64 or 128 rows, multiply
chunk by chunk and keep the sums in registers. Roller's alignment rules (section 3.1) are here what
the instructions and the copies ask for: 64 rows, 8 columns, 128 bytes of depth, boxes of at most
256 elements a dimension, 16-byte strides.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.tile.product import Operand, Product

LINE = 128  # bytes of a swizzled row: the depth of a chunk, or the columns of a transposed one
WARPGROUP = 128  # threads
_ROWS = 64  # of one instruction
_WIDTHS = (8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256)  # its columns
_SHAPES = ((1, 1), (2, 1), (2, 2))  # warpgroups, and instructions of each
_DTYPES = frozenset({"float16", "bfloat16"})
_STRIDE_ALIGNMENT = 16
_BOX = 256
_RANK = 5
_BARRIERS = 2048  # bytes kept free for the barriers and for aligning the ring
# The corner of shared memory in which a consumer warp turns its sums: rows, and floats of a row, of
# which the last eight keep neighbouring rows on different banks.
CORNER_ROWS, CORNER_PITCH = 16, 40
_FEWEST_STAGES, _MOST_STAGES = 2, 8
_LARGEST_STEP = 8  # elements that a copy may step over


@dataclass(frozen=True, slots=True)
class WarpgroupTile:
    """One tile of a product.

    Attributes:
        rows: extent of each of the left operand's free axes in a block's tile.
        columns: the same of the right operand's.
        depth: elements of the summed axis in a chunk.
        stages: chunks that the ring holds.
        consumers: warpgroups that multiply.
        instructions: rows of a warpgroup, in instructions of 64.
        width: columns of an instruction.
        raster: tiles of rows that are walked before the next tile of columns.
        grid: blocks, each of which takes tiles until none is left.
        tiles: of the whole output.
        shared_bytes: of a block.
        registers: of a consumer thread, as the model reckons.
        seconds: predicted time.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    depth: int
    stages: int
    consumers: int
    instructions: int
    width: int
    raster: int
    grid: int
    tiles: int
    shared_bytes: int
    registers: int
    seconds: float

    @property
    def block_rows(self) -> int:
        """Rows that the instructions of a block make; boxes may fill fewer."""
        return _ROWS * self.instructions * self.consumers

    @property
    def block_size(self) -> int:
        """Threads: the consumers' and the producer's warpgroup."""
        return WARPGROUP * (self.consumers + 1)

    def describe(self) -> str:
        """One line for people."""
        rows, columns = ("x".join(map(str, box)) for box in (self.rows, self.columns))
        ring = f"depth {self.depth}, {self.stages} stages"
        return f"block {rows} by {columns}, {ring}, {self.consumers} warpgroups"


def construct_warpgroup(product: Product, device: Device, count: int) -> tuple[WarpgroupTile, ...]:
    """At most ``count`` tiles, best first; none if the device or the copies refuse."""
    if product.left.tensor.dtype not in warpgroup_dtypes(device) or not _can_be_copied(product):
        return ()
    tiles = sorted(_tiles(product, device), key=lambda tile: tile.seconds)
    near = [tile for tile in tiles if tile.seconds <= tiles[0].seconds * _NEAR_TIE]
    # Of equals the one that asks the cache for least: it has the most to spare.
    near.sort(key=lambda tile: _lines(tile) / (math.prod(tile.rows) * math.prod(tile.columns)))
    return tuple((*near, *tiles[len(near) :])[:count])


def _lines(tile: WarpgroupTile) -> int:
    """Lines of a chunk that a block asks for."""
    return math.prod(tile.rows) + math.prod(tile.columns)


def warpgroup_dtypes(device: Device) -> frozenset[str]:
    """What :func:`construct_warpgroup` finds tiles for on a device."""
    known = {i.in_dtype for i in device.matrix_instructions if i.intrinsic == "wgmma"}
    return frozenset(known & _DTYPES)


def _can_be_copied(product: Product) -> bool:
    """Whether both operands are tensors that TMA takes, and nothing lies behind their depth."""
    for operand in (product.left, product.right):
        if not _ends_with_depth(operand, product.depth):
            return False
        names = {axis.name for axis in operand.free} | {product.depth.name}
        steps = [c for index in operand.indices for name, c in index.terms if name in names]
        if len(operand.indices) > _RANK or max(steps) > _LARGEST_STEP:
            return False
        if any(stride % _STRIDE_ALIGNMENT for stride in operand.strides[:-1]):
            return False
    return True


def _ends_with_depth(operand: Operand, depth: Axis) -> bool:
    """Whether what the last chunk has too much lies outside of the tensor, and is zero."""
    if depth.extent % (LINE // operand.tensor.element_size) == 0:
        return True
    sizes = zip(operand.indices, operand.tensor.shape, strict=True)
    end = next((i.offset, extent) for i, extent in sizes if i.coefficient(depth.name))
    return depth.extent + end[0] >= end[1]


def _tiles(product: Product, device: Device) -> Iterator[WarpgroupTile]:
    element = product.left.tensor.element_size
    for (consumers, instructions), width in itertools.product(_SHAPES, _WIDTHS):
        if instructions * width > _WIDTHS[-1]:
            continue  # more than half of a thread's registers would hold sums
        rows = _box(product.left, _ROWS * consumers * instructions, LINE // element)
        columns = _box(product.right, width, LINE // element)
        if rows is None or columns is None:
            continue
        tile = _tile(product, device, rows, columns, (consumers, instructions, width))
        if tile is not None:
            yield tile


@functools.cache
def _box(operand: Operand, size: int, line: int) -> tuple[int, ...] | None:
    """Extents of the free axes in a tile of ``size``: as few tiles as possible, rows unbroken.

    With the depth contiguous, a box is rows of it. Otherwise the last axis is contiguous, and whole
    lines of it are copied.
    """
    axes = operand.free
    if not axes:
        return ()
    if not operand.is_depth_major:
        return (*(1 for _ in axes[:-1]), size) if size % line == 0 else None
    if len(axes) == 1 and _step_of(operand, axes[0]) == 1:
        # Stores of neighbours stay aligned.
        tiles = -(-axes[0].extent // size)
        return (min(size, -(-axes[0].extent // tiles // 8) * 8),)
    steps = [_step_of(operand, axis) for axis in axes]
    choices = [_extents(axis, size, step) for axis, step in zip(axes, steps, strict=True)]
    fitting = (box for box in itertools.product(*choices) if math.prod(box) <= size)

    def waste(box: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return _count(axes, box), tuple(-extent for extent in reversed(box))

    return min(fitting, key=waste)


def _extents(axis: Axis, size: int, step: int) -> list[int]:
    """Extents that need fewer tiles than any smaller one."""
    most = min(axis.extent, size, (_BOX - 1) // step + 1)
    return [e for e in range(1, most + 1) if -(-axis.extent // -(-axis.extent // e)) == e]


def _step_of(operand: Operand, axis: Axis) -> int:
    return next(i.coefficient(axis.name) for i in operand.indices if i.coefficient(axis.name))


def _count(axes: Sequence[Axis], box: Sequence[int]) -> int:
    """Tiles of a box over all axes."""
    return math.prod(-(-axis.extent // size) for axis, size in zip(axes, box, strict=True))


def _tile(
    product: Product,
    device: Device,
    rows: tuple[int, ...],
    columns: tuple[int, ...],
    shape: tuple[int, int, int],
) -> WarpgroupTile | None:
    consumers, instructions, width = shape
    block_rows = _ROWS * consumers * instructions
    memory = device.memory(MemoryLevel.SHARED)
    stage = (block_rows + -(-width // 8) * 8) * LINE
    corners = 4 * consumers * CORNER_ROWS * CORNER_PITCH * 4
    stages = min(_MOST_STAGES, (memory.capacity - _BARRIERS - corners) // stage)
    if stages < _FEWEST_STAGES:
        return None
    row_tiles = _count(product.left.free, rows)
    tiles = product.batches * row_tiles * _count(product.right.free, columns)
    tile = WarpgroupTile(
        rows=rows,
        columns=columns,
        depth=LINE // product.left.tensor.element_size,
        stages=stages,
        consumers=consumers,
        instructions=instructions,
        width=width,
        raster=min(row_tiles, max(1, 2048 // block_rows)),
        grid=min(tiles, device.multi_processor_count),
        tiles=tiles,
        shared_bytes=stages * stage + corners + _BARRIERS,
        registers=width * instructions // 2 + 40,
        seconds=0.0,
    )
    return replace(tile, seconds=_seconds(product, device, tile))


# Fitted to 145 tiles of 16 products, measured on an H200: regret of the first choice 1.3 %.
_RATE = 0.965  # of the tensor cores' rate
_FILL = 0.915  # of the second-level cache's bandwidth
_STREAM = 0.78  # of the memory's
_RING_LATENCY = 1.7e-6  # from asking for a chunk to its products' end, all blocks asking
_TILE_SECONDS = 0.28e-6  # between two tiles of a block
_FIXED_SECONDS = 7e-6  # a launch from a cold start, the first chunk, the last stores
_NEAR_TIE = 1.03
_NARROWEST = 64  # columns for which an instruction takes the time


def _seconds(product: Product, device: Device, tile: WarpgroupTile) -> float:
    """The time of the busiest multiprocessor, or of the memory."""
    units = device.multi_processor_count
    element = product.left.tensor.element_size
    products = tile.block_rows * max(tile.width, _NARROWEST) * tile.depth
    multiply = 2 * products / (dict(device.matrix_flops)[product.left.tensor.dtype] * _RATE / units)
    fill = _lines(tile) * tile.depth * element / (device.l2_bandwidth * _FILL / units)
    step = max(multiply, fill, _RING_LATENCY / tile.stages)
    steps = math.prod(axis.extent for axis in product.steps)
    steps *= -(-product.depth.extent // tile.depth)
    turns = -(-tile.tiles // tile.grid)
    busy = turns * (steps * step + _TILE_SECONDS)
    return _FIXED_SECONDS + max(busy, product.traffic / (device.read_bandwidth * _STREAM))
