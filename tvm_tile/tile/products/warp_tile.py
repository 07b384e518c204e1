"""A tile of a product whose warps have rows and columns of their own, fed chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tvm_tile.device.device import Device
from tvm_tile.tile.adding import adding_work
from tvm_tile.tile.cost import SECTOR
from tvm_tile.tile.products.grouping import grouping_work
from tvm_tile.tile.products.store_work import BARE, SUM_BYTES, StoreWork, store_part
from tvm_tile.tile.residency import resident_blocks
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.time import Part, Unit, Work
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import UNIT_BYTES, Chunk, vector_width
from tvm_tile.tile.units.sum_layout import SumLayout
from tvm_tile.tile.units.unit import MmaUnit, WaveUnit

LEAST_LINE = 64  # bytes of a chunk along the depth
_RASTER_ROWS = 1024

_Unit = TypeVar("_Unit", MmaUnit, WaveUnit)


@dataclass(frozen=True, slots=True)
class WarpTile(Tile, Generic[_Unit]):
    """How warps compute the tile of a product.

    Attributes:
        unit: the unit that multiplies.
        warp_rows: rows of the tile that a warp has.
        warp_columns: columns that it has.
        warps: warps of a block, along the rows and along the columns.
        depth: elements of the summed axis in a chunk.
        stages: chunks in shared memory.
        parts: blocks that share the sum of a tile; a second kernel adds what they have.
        raster: tiles of rows that are walked before the next tile of columns.
        grid: blocks, one a tile and part.
    """

    unit: _Unit
    warp_rows: int
    warp_columns: int
    warps: tuple[int, int]
    depth: int
    stages: int
    parts: int = 1
    raster: int = 1
    grid: int = 0

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.warps[0] * self.warp_rows

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.warps[1] * self.warp_columns

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.unit.warp * math.prod(self.warps)

    @property
    def sums(self) -> int:
        """Sums that a thread holds."""
        return self.warp_rows * self.warp_columns // self.unit.warp

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage: a chunk of either operand."""
        return (self.rows + self.columns) * self.depth * self.unit.element

    @property
    def sum_layout(self) -> SumLayout:
        """How a warp's sums are stored."""
        return self.unit.sum_layout(self.warp_columns)

    @property
    def store_shape(self) -> tuple[int, ...]:
        """Sums that go out at a time, a corner a warp, where the stages were."""
        return (math.prod(self.warps), self.sum_layout.rows, self.sum_layout.pitch)

    def chunks(self, product: Product) -> tuple[Chunk, Chunk]:
        """How a chunk of each operand lies in a stage."""
        left, right = (
            self.unit.lay(product, operand, rows, self.depth, self.block_size)
            for operand, rows in ((product.left, self.rows), (product.right, self.columns))
        )
        return left, replace(right, start=left.size)

    def filled(self, product: Product) -> WarpTile[_Unit]:
        """This tile, with its number of blocks and the shared memory of its stages and its sums."""
        rows = math.prod(tile_counts(product.left, self.rows))
        columns = math.prod(tile_counts(product.right, self.columns))
        if product.groups is not None:
            rows = product.groups.slots(self.rows)
        return replace(
            self,
            raster=min(rows, max(1, _RASTER_ROWS // self.rows)),
            grid=product.batches * rows * columns * self.parts,
            shared_bytes=self.ring_bytes(self.stages),
        )

    def ring_bytes(self, stages: int) -> int:
        """Bytes of shared memory of so many stages, where the sums lie afterwards."""
        return max(stages * self.stage_bytes, math.prod(self.store_shape) * SUM_BYTES)

    def blocks(self, product: Product) -> float:
        """Blocks that have rows to work on, on the average where data tell."""
        groups = product.groups
        if groups is None:
            return self.grid
        return self.grid * groups.tiles(self.rows) / groups.slots(self.rows)

    def describe(self) -> str:
        """The tile in one line, for people."""
        stages = f"depth {self.depth}, {self.stages} stage{'s' if self.stages > 1 else ''}"
        warps = f"{self.warps[0]} by {self.warps[1]} {self.unit.warps}"
        parts = f", parts {self.parts}" if self.parts > 1 else ""
        return f"block {self.rows} by {self.columns}, {stages}, {warps}{parts}"


def in_parts(tile: WarpTile[_Unit], product: Product, device: Device) -> Iterator[WarpTile[_Unit]]:
    """A tile, and the same with its sum in parts, where multiprocessors have few blocks otherwise.

    Args:
        tile: a whole tile, with its number of blocks.
        product: the product that is computed.
        device: the device that computes it.
    """
    yield tile
    if product.sums > 1:
        return
    chunks = math.prod(chunk_counts(product, tile.depth))
    blocks = _MOST_BLOCKS * device.multi_processor_count
    most = min(blocks // tile.grid, chunks // _LEAST_CHUNKS)
    for parts in [parts for parts in _PARTS if parts <= most][-_TRIED:]:
        yield replace(tile, parts=parts, grid=tile.grid * parts)


_PARTS = (2, 4, 8, 16, 32)
_LEAST_CHUNKS, _TRIED = 2, 2  # chunks of a part, and numbers of parts, the largest
_MOST_BLOCKS = 2  # of a multiprocessor


def chunk_sectors(product: Product, tile: WarpTile[_Unit]) -> float:
    """Bytes that a block asks for with a chunk of both operands, whole sectors, on average.

    What lies outside of the operands is not asked for. Lines whose copies are narrower than a unit
    begin anywhere in a sector.
    """
    extent, total = product.depth.extent, 0.0
    depth = extent / -(-extent // tile.depth)
    for operand, size in ((product.left, tile.rows), (product.right, tile.columns)):
        rows = operand.extent / math.prod(tile_counts(operand, size))
        if product.groups is not None and operand is product.left:
            rows = operand.extent / product.groups.tiles(size)
        lines, length = (rows, depth) if operand.is_depth_major else (depth, rows)
        element = operand.tensor.element_size
        width = vector_width(operand, product.depth) * element
        total += lines * (length * element + (SECTOR - width if width < UNIT_BYTES else 0))
    return total


def warp_work(
    product: Product, device: Device, tile: WarpTile[_Unit], chunk: Part, work: StoreWork = BARE
) -> Work:
    """What a kernel does whose warps sum up a block's chunks and then store their sums.

    Args:
        product: the product that is computed.
        device: the device that computes it.
        tile: how it is computed.
        chunk: a chunk's part, with the number of a block's chunks.
        work: work on each sum; parts of sums are stored as they are.
    """
    size = product.batches * product.left.extent * product.right.extent * SUM_BYTES
    written = tile.parts * size if tile.parts > 1 else product.write.tensor.size
    shape = (math.prod(tile.warps), tile.warp_rows, tile.warp_columns)
    blocks = tile.blocks(product)
    stored = store_part(work, tile.sum_layout, shape, written, blocks)
    then: tuple[Work, ...] = ()
    if tile.parts > 1:
        then = (adding_work(tile.parts, size, device),)
    if product.groups is not None:
        then = (grouping_work(product.groups, device), *then)
    is_wave = isinstance(tile.unit, WaveUnit)
    return Work(
        blocks=blocks,
        resident=resident_blocks(device, tile),
        warps=math.prod(tile.warps),
        parts=(Part(loads=1, arrivals=1, barriers=2), chunk, stored),
        read=product.left.read_size + product.right.read_size + work.read_bytes,
        written=written,
        unit=Unit.WAVE if is_wave else Unit.WARP,
        dtype=product.left.tensor.dtype,
        then=then,
    )


def tile_counts(operand: Operand, size: int) -> list[int]:
    """Tiles along each of the free axes; one number where these are walked as one.

    With the depth contiguous, any rows make a tile. Otherwise they are neighbours along the last
    axis, which are copied together.
    """
    if operand.is_depth_major:
        return [-(-operand.extent // size)]
    *others, last = operand.free
    return [*(axis.extent for axis in others), -(-last.extent // size)]


def chunk_counts(product: Product, depth: int) -> list[int]:
    """Chunks of a tile's sum along the steps and the depth, in this order."""
    return [*(axis.extent for axis in product.steps), -(-product.depth.extent // depth)]
