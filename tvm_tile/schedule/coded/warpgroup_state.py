"""State that both roles of a kernel for many vectors and codes share as their code is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.coded.fragments import DecodedFragments
from tvm_tile.schedule.pipelines.specialised import PersistentBlock
from tvm_tile.schedule.units.bulk_copies import TmaChunks
from tvm_tile.schedule.units.ring import Ring
from tvm_tile.tile.coded.warpgroup import CodedWarpgroupTile

_WARP = 32  # threads


@dataclass(frozen=True, slots=True)
class CodedWarpgroups:
    """State that the producer and the consumers share while their code is written.

    Attributes:
        found: the product.
        fragments: how its codes are decoded.
        tile: how to compute it.
        buffers: the function's parameters by name.
        block: tiles of the product that it has.
        codes: chunks of the matrix that the copy engine brings.
        vectors: chunks of the vectors, likewise.
        maps: the descriptors of both.
        ring: ring of stages that they are brought to.
        constants: constants of the fragments, in shared memory.
        group: name of the axis of matrices, where each vector has one of its own; else ``None``.
    """

    found: CodedMatch
    fragments: DecodedFragments
    tile: CodedWarpgroupTile
    buffers: dict[str, Any]
    block: PersistentBlock
    codes: TmaChunks
    vectors: TmaChunks
    maps: Sequence[Any]
    ring: Ring
    constants: Any
    group: str | None

    @property
    def dtype(self) -> str:
        """Element type of what is multiplied."""
        return str(self.found.form.dtype)

    @property
    def step_dtype(self) -> str:
        """Element type that a scaled number is rounded to first."""
        return self.found.scales[0][0].dtype

    @property
    def row(self) -> Axis:
        """The matrix' rows."""
        return self.found.found.product.right.free[0]

    def words(self, start: int) -> Any:
        """The stages' words from a byte of the first one on."""
        size = (self.tile.stages * self.tile.stage_bytes - start) // 4
        return ib.decl_buffer(
            (size,), "uint32", data=self.ring.data.data, elem_offset=start // 4, scope="shared.dyn"
        )

    def of_warp(self) -> Any:
        """Have a warp's threads come together; whether this one then speaks for them.

        What the others have written before they meet is seen by whoever waits for the speaker.
        CUDA's racecheck does not know that a meeting passes this on: it reports each such word as
        a hazard, and none where every thread speaks for itself.
        """
        ib.evaluate(T.cuda.warp_sync())
        return self.block.thread % _WARP == 0
