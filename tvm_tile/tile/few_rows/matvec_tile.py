"""The tile of a product of a long operand, read once, with one vector or a few."""

from __future__ import annotations

from dataclasses import dataclass, field

from tvm_tile.tile.tile import Tile


@dataclass(frozen=True, slots=True)
class MatvecTile(Tile):
    """Launch shape and loops of a product with few vectors.

    Attributes:
        form: ``"row"`` or ``"column"``; see :mod:`tvm_tile.schedule.s_tir.matvec`.
        axis: the place, in the operator's axes, of the rows' axis that is cut.
        lanes: threads along what is contiguous: the sum (row), or the rows (column).
        groups: groups of threads in a block, each with rows of its own (row), or with a part of the
            sum (column).
        run: neighbouring rows of a thread; one vector in the column form.
        vector: neighbouring elements of the long operand that a thread reads at once.
        unroll: places along the sum from which a thread reads in one step.
        steps: steps of a thread, one behind the other.
        overhangs: whether the last step goes on behind the end of the sum, or the last turns of
            blocks that stay behind the last row.
        grid: blocks of the kernel; in the shared memory of each are partial sums, and a short
            operand that it makes.
        parts: products that a thread works on side by side.
        stages: steps that are on their way through shared memory
            (:mod:`tvm_tile.schedule.s_tir.ring`); zero: loads go straight to registers.
        turns: sets of rows that a block works on, one behind the other.
    """

    form: str
    axis: int
    lanes: int
    groups: int
    run: int
    vector: int
    unroll: int
    steps: int
    overhangs: bool
    grid: int = field()
    parts: int = 1
    stages: int = 0
    turns: int = 1

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.lanes * self.groups

    @property
    def loads(self) -> int:
        """Loads of long operands that a thread has in flight in a step."""
        own = self.unroll * self.run if self.form == "row" else self.unroll
        return self.parts * own

    def describe(self) -> str:
        """The tile in one line, for people."""
        rows = f"{self.run} rows a thread, {self.loads} loads of {self.vector}"
        rows += f", {self.parts} products" * (self.parts > 1)
        rows += f", {self.stages} steps ahead, {self.turns} turns" * (self.stages > 0)
        if self.form == "row":
            return f"{self.lanes} lanes a row, {self.groups} groups, {rows}"
        return f"{self.lanes} lanes of columns, {self.groups} parts of the sum, {rows}"
