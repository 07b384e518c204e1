"""Sum up a product's chunks by asynchronous copies, some chunks ahead: mma's pipeline.

The loops that :meth:`Ahead.sum_up` writes, for the one tile of a block::

    for chunk in the first stages - 1: ask for its constants; wait for the kernel before this one
    for chunk in the first stages - 1: ask for all else of it
    wait for the first chunk, and for one another; load its first fragments
    for chunk:
        ask for the chunk stages - 1 ahead
        for step of 16 in depth:
            (in the last step: wait for the next chunk, and for one another)
            load the next step's fragments
            sums += left @ right

Why this is free of races: a chunk is read only after every thread has waited for its own copies of
it and then for all others. It is overwritten by copies that are asked for behind the next such
meeting: by then all warps have loaded its last fragments, before they came there.

Constants do not wait for the kernel before; they are of the first group that is committed.

Every turn commits a group of copies, even if there is nothing left to ask for: the groups that may
still be on their way are then as many all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.pipelines.pipeline import Pipeline
from tvm_tile.schedule.tensor_cores.chunks import Chunks
from tvm_tile.schedule.units.asynchronous_copies import AsyncCopies, begin_copies
from tvm_tile.schedule.units.mma import MmaOperand, begin_fragments, multiply
from tvm_tile.tile.units.slab import ELEMENT, FRAGMENT, Slab


def _begin_copies(chunks: Chunks, slab: Slab, data: Any, thread: tuple[Any, int]) -> AsyncCopies:
    """Find a thread's copies of 16-bit elements."""
    source = ib.decl_buffer((chunks.operand.size // ELEMENT,), "uint16", data=data)
    return begin_copies(chunks, slab, source, thread)


class Ahead(Pipeline):
    """A ring of stages in shared memory."""

    scope = "shared.dyn"
    begin_copies = staticmethod(_begin_copies)

    def begin_fragments(
        self, laid: Slab, rows: tuple[Any, int], lane: Any, *, is_right: bool
    ) -> MmaOperand:
        """A warp's fragments of one operand, to be loaded by ldmatrix."""
        return begin_fragments(laid, rows, lane, is_right=is_right)

    def _first_byte(self, chunk: Any) -> Any:
        """The first byte of a chunk's stage."""
        return ib.Bind(chunk % self.tile.stages * self.tile.stage_bytes)

    def _fetch(self, chunk: Any, copies: Sequence[Any]) -> None:
        """Ask for a chunk by some of the copies, if there is one."""
        with ib.If(chunk < self.count), ib.Then():
            first = self._first_byte(chunk)
            place = self.place(chunk)
            for own in copies:
                own.fetch(lambda at: self.memory.ptr_to([first + at]), place)

    def _settle(self, chunk: Any) -> None:
        """Store what went to registers, if it did."""
        if any(copies.held is not None for copies in self.copies):
            with ib.If(chunk < self.count), ib.Then():
                first = ib.Bind(self._first_byte(chunk) // 4)
                for copies in self.copies:
                    copies.settle(self.words, first)

    def _load(self, first: Any, step: int) -> None:
        """The fragments of a step of a stage."""
        for fragments in self.fragments:
            fragments.load(self.memory, first, step)

    def sum_up(self, constants: frozenset[str]) -> None:
        """Write the loop over chunks, each multiplied while copies bring later ones."""
        ahead, steps = self.tile.stages - 1, self.tile.depth // FRAGMENT
        dtype = self.product.left.tensor.dtype
        operands = self.product.left, self.product.right
        early: list[Any] = []
        late: list[Any] = []
        for side, own in zip(operands, self.copies, strict=True):
            is_early = side.tensor.name in constants and own.held is None
            (early if is_early else late).append(own)
        if early:
            with ib.serial(ahead) as chunk:
                self._fetch(chunk, early)
            ib.evaluate(T.ptx.griddepcontrol.wait())
        with ib.serial(ahead) as chunk:
            self._fetch(chunk, late)
            ib.evaluate(T.ptx["cp.async.commit_group"]())
            self._settle(chunk)
        self._meet()
        self._load(self._first_byte(tirx.const(0)), 0)
        with ib.serial(self.count) as chunk:
            this, following = self._first_byte(chunk), self._first_byte(chunk + 1)
            self._fetch(chunk + ahead, self.copies)
            ib.evaluate(T.ptx["cp.async.commit_group"]())
            for step in range(steps):
                if step + 1 < steps:
                    self._load(this, step + 1)
                else:
                    self._settle(chunk + ahead)
                    self._meet()
                    self._load(following, 0)
                multiply(dtype, self.sums, self.fragments, step)
        ib.evaluate(T.ptx["cp.async.wait_all"]())

    def _meet(self) -> None:
        """Wait for the oldest chunk on its way, and for all threads."""
        ib.evaluate(T.ptx["cp.async.wait_group"](self.tile.stages - 2))
        ib.evaluate(T.cuda.cta_sync())
