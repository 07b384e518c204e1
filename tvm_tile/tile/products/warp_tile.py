"""A tile of a product whose warps have rows and columns of their own, fed chunk by chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import Chunk
from tvm_tile.tile.units.sum_layout import SumLayout
from tvm_tile.tile.units.unit import MmaUnit, WaveUnit

LEAST_LINE = 64  # bytes of a chunk along the depth
_RASTER_ROWS = 1024
_SUM_BYTES = 4

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
        stored = math.prod(self.store_shape) * _SUM_BYTES
        return replace(
            self,
            raster=min(rows, max(1, _RASTER_ROWS // self.rows)),
            grid=product.batches * rows * columns,
            shared_bytes=max(self.stages * self.stage_bytes, stored),
        )

    def describe(self) -> str:
        """The tile in one line, for people."""
        stages = f"depth {self.depth}, {self.stages} stage{'s' if self.stages > 1 else ''}"
        warps = f"{self.warps[0]} by {self.warps[1]} {self.unit.warps}"
        parts = f", parts {self.parts}" if self.parts > 1 else ""
        return f"block {self.rows} by {self.columns}, {stages}, {warps}{parts}"


def chunk_seconds(
    tile: WarpTile[_Unit], device: Device, rate: float, copies: int = 1
) -> tuple[float, float, float]:
    """Seconds of a chunk on a multiprocessor's matrix units, in its shared memory and the cache.

    Args:
        tile: how a product is computed.
        device: the device that computes it.
        rate: operations a second of all matrix units.
        copies: lanes of a warp that load the same.
    """
    units = device.multi_processor_count
    loaded = math.prod(tile.warps) * (tile.warp_rows + tile.warp_columns) * copies
    multiply = 2 * tile.rows * tile.columns * tile.depth / (rate / units)
    passed = (tile.rows + tile.columns + loaded) * tile.depth * tile.unit.element
    shared = device.memory(MemoryLevel.SHARED).bandwidth / units
    return multiply, passed / shared, tile.stage_bytes / (device.l2_bandwidth / units)


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
