"""Attention with the warp instructions of NVIDIA's tensor cores: cp.async in, ldmatrix, mma.

Waits are for all copies of a thread, and then for all threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.attention.kernel import KEYS, QUERIES, VALUES, write_attention
from tvm_tile.schedule.attention.warp_rows import WarpRows
from tvm_tile.schedule.attention.warps import Warps
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.threads import ThreadLevel
from tvm_tile.schedule.units.asynchronous_copies import begin_copies
from tvm_tile.schedule.units.mma import LoadedMma, begin_fragments, multiply
from tvm_tile.tile.attention.warps import WarpAttentionTile
from tvm_tile.tile.units.slab import ELEMENT, Slab

_REGISTERS = 4  # of a fragment


def write_with_mma(found: AttentionMatch, tile: WarpAttentionTile) -> tirx.PrimFunc:
    """The function of a chain of two products, for tensor cores' warp instructions."""
    return write_attention(found, tile, ThreadLevel(), partial(_MmaWarps, tile))


@dataclass(frozen=True, slots=True)
class _Weights:
    """A tile's weights as fragments of the second product's left operand."""

    packed: Any
    count: int = 1

    def of(self, step: int, number: int) -> list[Any]:
        """Four registers of packed weights, the fragment of the depth ``16 * step``."""
        return [self.packed[step * _REGISTERS + i] for i in range(_REGISTERS)]


class _MmaWarps(Warps):
    """Attention by mma: operands come by asynchronous copies."""

    scope = "shared.dyn"

    def __init__(
        self,
        tile: WarpAttentionTile,
        found: AttentionMatch,
        block: Any,
        thread: Any,
        origin: Place,
        buffers: Mapping[str, Any],
    ) -> None:
        super().__init__(tile, found, block, thread, origin, buffers)
        size = tile.operand_bytes
        self.memory = ib.alloc_buffer((size,), "uint8", scope=self.scope, align=128)
        self._words = ib.decl_buffer(
            (size // 4,), "uint32", data=self.memory.data, scope=self.scope
        )
        self._sources = [
            ib.decl_buffer((o.size // ELEMENT,), "uint16", data=buffers[o.tensor.name].data)
            for o in found.chain.operands
        ]
        self.held = held = WarpRows(thread, tile.rows, tile.keys, tile.columns)
        lane = ib.Bind(thread % tile.unit.warp)
        self.row = ib.Bind(thread // tile.unit.warp * tile.warp_rows)
        nothing = tirx.const(0)
        rows = ((self.row, tile.warp_rows), (nothing, tile.keys), (nothing, tile.columns))
        self._slabs = [chunk for chunk in tile.chunks if isinstance(chunk, Slab)]
        self.fragments = [
            begin_fragments(slab, own, lane, is_right=which != QUERIES)
            for which, (slab, own) in enumerate(zip(self._slabs, rows, strict=True))
        ]
        self._left: dict[int, LoadedMma] = {
            KEYS: self.fragments[QUERIES],
            VALUES: _Weights(held.packed),
        }
        self._pack = held.pack

    def bring(self, which: int, place: Place) -> None:
        """Begin asynchronous copies of an operand's tile; what is too narrow is copied at once."""
        chunks, threads = self.chunks(which, place), (self.thread, self.tile.block_size)
        name = chunks.product.depth.name
        copies = begin_copies(chunks, self._slabs[which], self._sources[which], threads)
        copies.fetch(lambda at: self.memory.ptr_to([at]), {name: place.get(name, tirx.const(0))})
        copies.settle(self._words, tirx.const(0))

    def wait(self, which: int, place: Place) -> None:
        """Wait for all asynchronous copies, and for all threads."""
        ib.evaluate(T.ptx["cp.async.wait_all"]())
        ib.evaluate(T.cuda.cta_sync())

    def multiply(self, sums: Any, which: int, step: int) -> None:
        """Multiply the fragments of a step by mma, and add the products to ``sums``."""
        dtype = self.found.chain.first.left.tensor.dtype
        multiply(dtype, sums, (self._left[which], self.fragments[which]), step)

    def hand_over(self) -> None:
        """Pack the weights as the left operand of the second product, in registers."""
        self._pack(self.found.chain.second.right.tensor.dtype)
