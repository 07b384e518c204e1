"""What both roles of a kernel for many vectors and codes need, while their code is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.coded.fragments import Fragments
from tvm_tile.schedule.tensor_cores.limits import Limits, count_boxes
from tvm_tile.schedule.tensor_cores.place import Place, raster_place
from tvm_tile.schedule.wgmma.operand import TmaChunks
from tvm_tile.schedule.wgmma.ring import Ring
from tvm_tile.tile.coded_warpgroup import CodedWarpgroupTile

_WARP = 32  # threads


@dataclass(frozen=True, slots=True)
class CodedWarpgroups:
    """What the producer and the consumers need, while their code is written.

    Attributes:
        found: the product.
        fragments: how its codes are decoded.
        tile: how to compute it.
        buffers: the function's parameters by name.
        limits: how far axes go in a call.
        codes: what the copy engine brings of the matrix.
        vectors: the same of a line of the vectors.
        data: the stages, in shared memory.
        ring: their barriers.
        constants: those of the fragments, in shared memory.
        block: its number.
        rank: the block's number among those that share its tile.
        thread: its number in the block.
    """

    found: CodedMatch
    fragments: Fragments
    tile: CodedWarpgroupTile
    buffers: dict[str, Any]
    limits: Limits
    codes: TmaChunks
    vectors: TmaChunks
    data: Any
    ring: Ring
    constants: Any
    block: Any
    rank: Any
    thread: Any

    @property
    def dtype(self) -> str:
        """Of what is multiplied."""
        return str(self.found.form.dtype)

    @property
    def step_dtype(self) -> str:
        """To which a scaled number is rounded first."""
        return self.found.scales[0][0].dtype

    @property
    def row(self) -> Axis:
        """The matrix' rows."""
        return self.found.found.product.right.free[0]

    @property
    def chunks(self) -> tuple[Any, Any]:
        """The first of the block's chunks of a tile's sum, and how many there are."""
        total = self.found.sizes.depth // self.tile.depth
        if self.tile.splits == 1:
            return tirx.const(0), total
        each = self.tile.chunks_each
        first = ib.Bind(self.rank * each)
        is_even = total % self.tile.splits == 0
        return first, each if is_even else ib.Bind(ib.min(each, total - first))

    @property
    def column_tiles(self) -> Any:
        """Tiles along the vectors that a call needs."""
        (count,) = count_boxes(self.found.found.product.left.free, (self.tile.width,), self.limits)
        return count

    def words(self, start: int) -> Any:
        """The stages' words from a byte of the first one on."""
        size = (self.tile.stages * self.tile.stage_bytes - start) // 4
        return ib.decl_buffer(
            (size,), "uint32", data=self.data.data, elem_offset=start // 4, scope="shared.dyn"
        )

    def for_tiles(self, body: Callable[[Place], None]) -> None:
        """Run ``body`` for the tiles of a block, given the first row and vector of each."""
        tile, columns = self.tile, self.column_tiles
        if tile.splits > 1:
            body(self._origin(self.block // tile.splits, columns))
            return
        tiles = tile.counts[0] * columns
        with ib.serial((tiles - self.block + tile.grid - 1) // tile.grid) as turn:
            body(self._origin(ib.Bind(self.block + turn * tile.grid), columns))

    def _origin(self, index: Any, columns: Any) -> Place:
        row, column, _ = raster_place(index, self.tile.counts[0], columns, self.tile.raster)
        (vector,) = self.found.found.product.left.free
        return {
            self.row.name: ib.Bind(row * self.tile.block_rows),
            vector.name: ib.Bind(column * self.tile.width),
        }


def arrive(kernel: CodedWarpgroups, barrier: Any) -> None:
    """Say, for a warp, that all of its threads are so far."""
    ib.evaluate(T.cuda.warp_sync())
    with ib.If(kernel.thread % _WARP == 0), ib.Then():
        ib.evaluate(T.ptx.mbarrier.arrive.shared.b64(barrier, T.uint32(1)))
