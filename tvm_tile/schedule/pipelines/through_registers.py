"""Sum up a product's chunks, each of which goes through registers: the pipeline of matrix cores.

The loops that :meth:`ThroughRegisters.sum_up` writes, for the one tile of a block::

    load the first chunk; store it in the first stage; wait for one another
    for chunk, but the last:
        load the next chunk to registers
        for step of the chunk: load fragments; sums += left @ right
        (with one stage only: wait for one another)
        store the next chunk in the next stage
        wait for one another
    the same steps of the last chunk

Why this is free of races: a chunk is read only after all threads have met behind storing it. With
two stages, it is overwritten by the chunk after the next, which threads store behind the meeting
that follows its last reads. With one, they meet between the reads and the stores. Meetings wait for
all loads and stores of shared memory before them (see ``__syncthreads`` in
``build/hip_prelude.h``).
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.pipelines.pipeline import Pipeline
from tvm_tile.schedule.units.matrix_cores import WaveOperand, begin_fragments, multiply
from tvm_tile.schedule.units.register_copies import begin_copies
from tvm_tile.tile.units.panel import Panel
from tvm_tile.tile.units.slab import UNIT_BYTES


class ThroughRegisters(Pipeline):
    """One stage or two in shared memory, the next chunk in registers."""

    scope = "shared"
    begin_copies = staticmethod(begin_copies)

    def begin_fragments(
        self, laid: Panel, rows: tuple[Any, int], lane: Any, *, is_right: bool
    ) -> WaveOperand:
        """A wave's fragments of one operand, to be loaded from its panel."""
        return begin_fragments(laid, self.tile.unit.layout, rows, lane)

    def _first_unit(self, chunk: Any) -> Any:
        """The first unit of 16 bytes of a chunk's stage."""
        if self.tile.stages == 1:
            return tirx.const(0)
        return ib.Bind(chunk % self.tile.stages * (self.tile.stage_bytes // UNIT_BYTES))

    def _fetch(self, chunk: Any) -> None:
        """Ask for a chunk."""
        place = self.place(chunk)
        for copies in self.copies:
            copies.fetch(place)

    def _settle(self, chunk: Any) -> None:
        """Store it in its stage."""
        first = self._first_unit(chunk)
        for copies in self.copies:
            copies.settle(self.words, first)

    def _multiply(self, chunk: Any) -> None:
        """Add a chunk's products."""
        first = self._first_unit(chunk)
        for step in range(self.tile.depth // self.tile.unit.depth):
            for fragments in self.fragments:
                fragments.load(self.words, first, step)
            multiply(self.tile.unit, self.sums, self.fragments, step)

    def _keep_order(self) -> None:
        """Keep the compiler from delaying a chunk's loads, and from waiting for them too early."""
        loads = sum(copies.loads for copies in self.copies)
        rows, columns, depth = self.tile.unit.instruction.shape
        size = self.tile.warp_rows * self.tile.warp_columns * self.tile.depth
        name = f"loads_then_products<{loads}, {size // (rows * columns * depth)}>"
        ib.evaluate(T.call_extern("void", name))

    def sum_up(self, constants: frozenset[str]) -> None:
        """Write the loop over chunks, each multiplied while loads bring the next one."""
        last = self.count - 1
        self._fetch(tirx.const(0))
        self._settle(tirx.const(0))
        ib.evaluate(T.cuda.cta_sync())
        with ib.serial(ib.Bind(T.call_extern("int32", "rolled", last))) as chunk:
            self._fetch(chunk + 1)
            self._multiply(chunk)
            self._keep_order()
            if self.tile.stages == 1:
                ib.evaluate(T.cuda.cta_sync())
            self._settle(chunk + 1)
            ib.evaluate(T.cuda.cta_sync())
        self._multiply(last)
