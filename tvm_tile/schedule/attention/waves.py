"""Attention on AMD's matrix cores: through registers in, units of 16 bytes, MFMA or WMMA.

To ask for a tile is to load it to registers, to wait for it, to store these and then to wait for
all threads: what is stored is overwritten by a thread that all others have met since they read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.attention.kernel import KEYS, QUERIES, VALUES, write_attention
from tvm_tile.schedule.attention.warps import Warps
from tvm_tile.schedule.attention.wave_rows import WaveRows
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.threads import ThreadLevel
from tvm_tile.schedule.units.matrix_cores import LoadedWave, begin_fragments, multiply
from tvm_tile.schedule.units.register_copies import begin_copies
from tvm_tile.tile.attention.warps import WarpAttentionTile
from tvm_tile.tile.units.panel import WORD, Panel
from tvm_tile.tile.units.unit import WaveUnit


def write_with_waves(
    found: AttentionMatch, tile: WarpAttentionTile, unit: WaveUnit
) -> tirx.PrimFunc:
    """The function of a chain of two products, for AMD's matrix cores."""
    return write_attention(found, tile, ThreadLevel(), partial(_Waves, unit, tile))


class _Waves(Warps):
    """Attention by AMD's matrix cores: operands come through registers."""

    scope = "shared"

    def __init__(
        self,
        unit: WaveUnit,
        tile: WarpAttentionTile,
        found: AttentionMatch,
        block: Any,
        thread: Any,
        origin: Place,
        buffers: Mapping[str, Any],
    ) -> None:
        super().__init__(tile, found, block, thread, origin, buffers)
        self._unit, chain = unit, found.chain
        size = tile.operand_bytes // WORD
        self.memory = ib.alloc_buffer((size,), "uint32", scope=self.scope, align=128)
        self.held = held = WaveRows(unit, tile, thread, chain.second.right.tensor.dtype)
        self.row = held.first
        panels = [chunk for chunk in tile.chunks if isinstance(chunk, Panel)]
        # Keys and values move on from tile to tile.
        first = {**origin, chain.keys.name: tirx.const(0)}
        self._copies = [
            begin_copies(
                self.chunks(which, first),
                panel,
                buffers[operand.tensor.name].data,
                (thread, tile.block_size),
            )
            for which, (operand, panel) in enumerate(zip(chain.operands, panels, strict=True))
        ]
        lane, nothing = ib.Bind(thread % unit.warp), tirx.const(0)
        rows = ((self.row, tile.warp_rows), (nothing, tile.keys), (nothing, tile.columns))
        self.fragments = [
            begin_fragments(panel, unit.layout, own, lane)
            for panel, own in zip(panels, rows, strict=True)
        ]
        self._left: dict[int, LoadedWave] = {KEYS: self.fragments[QUERIES], VALUES: held}
        self._pack = held.pack

    def bring(self, which: int, place: Place) -> None:
        """Load an operand's tile; queries, whose memory nothing reads yet, are stored at once."""
        chain = self.found.chain
        moved = {chain.first.depth.name: tirx.const(0)}
        if which == QUERIES:
            self._copies[which].fetch(moved)
            self._copies[which].settle(self.memory, tirx.const(0))
        else:
            self._copies[which].fetch({**moved, chain.keys.name: place[chain.keys.name]})

    def wait(self, which: int, place: Place) -> None:
        """Store what was loaded of an operand's tile, and wait for all threads."""
        self._copies[which].settle(self.memory, tirx.const(0))
        ib.evaluate(T.cuda.cta_sync())

    def multiply(self, sums: Any, which: int, step: int) -> None:
        """Multiply the fragments of a step by MFMA or WMMA, and add the products to ``sums``."""
        multiply(self._unit, sums, (self._left[which], self.fragments[which]), step)
        ib.evaluate(T.call_extern("void", "step_by_step"))

    def hand_over(self) -> None:
        """Pack the weights as the left operand of the second product, in registers."""
        self._pack()
