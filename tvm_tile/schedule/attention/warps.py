"""Attention with a warp's matrix instructions: all that is the same for NVIDIA's and AMD's.

A warp has some rows: all of their scores, then their weights, which it packs as the left operand of
the second product, and their sums::

    for d in steps of the unit: scores += queries[warp's rows, d] @ keys[:, d]
    for k in steps of the unit: sums   += weights[:, k] @ values[k, :]

Why this is free of races, beside what ``kernel.py`` says: behind a wait for keys only values are
stored, or asked for, whose former tile all have multiplied in front of it; behind a wait for values
only keys, likewise. Sums go out through the memory of queries and keys, which all have read in
front of the last wait for values; where they need more than that, all threads meet once more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.attention.kernel import KEYS, QUERIES, VALUES
from tvm_tile.schedule.attention.rows import HeldScores
from tvm_tile.schedule.tensor_cores.chunks import Chunks
from tvm_tile.schedule.tensor_cores.place import Boxed, Place
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.tile.attention.warps import WarpAttentionTile
from tvm_tile.tile.units.product import Operand, Product


class Warps(ABC):
    """Code that units of warps share; NVIDIA's and AMD's add the rest of ``kernel.AttentionUnit``.

    Attributes:
        found: the chain that is computed.
        tile: how.
        thread: its number in the block.
        origin: the place of the block's first row.
        buffers: the function's parameters by name.
        scope: scope of shared memory, by TVM's name.
        memory: shared, of any numbers.
        row: the warp's first in the block.
        held: the scores and the sums of the thread.
        fragments: fragments of queries, keys and values, each loaded from the memory a step at a
            time.
    """

    has_small_scores = True
    scope: str
    memory: Any
    row: Any
    held: HeldScores
    fragments: Sequence[Any]

    def __init__(
        self,
        tile: WarpAttentionTile,
        found: AttentionMatch,
        _: Any,
        thread: Any,
        origin: Place,
        buffers: Mapping[str, Any],
    ) -> None:
        self.found, self.tile, self.buffers = found, tile, buffers
        self.thread, self.origin = thread, origin

    @abstractmethod
    def bring(self, which: int, place: Place) -> None:
        """Begin to bring a tile of an operand: its values of all axes but the first's depth."""

    @abstractmethod
    def wait(self, which: int, place: Place) -> None:
        """Wait until all threads may read an operand's tile."""

    @abstractmethod
    def multiply(self, sums: Any, which: int, step: int) -> None:
        """Add the products of a step.

        Args:
            sums: sums that are added to.
            which: the right operand: keys, with queries to the left, or values, with weights.
            step: number of the step whose fragments were loaded.
        """

    def ask(self, which: int, place: Place, conditions: Sequence[Any] = ()) -> None:
        """Begin to bring an operand's tile, if all conditions hold."""
        with when(conditions):
            self.bring(which, place)

    def chunks(self, which: int, place: Place) -> Chunks:
        """The chunks of an operand's tile, with where they are in global memory.

        Args:
            which: operand.
            place: first values of all axes but the first product's depth.
        """
        product, operand = self._operand(which)
        chunk = self.tile.chunks[which]
        (axis,) = operand.free
        side = Boxed(operand, (min(chunk.rows, axis.extent),), chunk.rows)
        end = self.found.keys if which == VALUES else None
        return Chunks(product, operand, side, place, chunk.depth, end)

    def _operand(self, which: int) -> tuple[Product, Operand]:
        """Queries, keys or values, by number, with the product that they belong to."""
        first, second = self.found.chain.first, self.found.chain.second
        return ((first, first.left), (first, first.right), (second, second.right))[which]

    def score(self) -> None:
        """Compute a tile of scores, queries by keys, step by step of the depth."""
        tile, nothing = self.tile, tirx.const(0)
        with ib.unroll(tile.warp_rows * tile.keys // tile.unit.warp) as i:
            ib.buffer_store(self.held.scores, tirx.const(0.0, "float32"), [i])
        for step in range(tile.depth // tile.unit.depth):
            self.fragments[QUERIES].load(self.memory, nothing, step)
            self.fragments[KEYS].load(self.memory, nothing, step)
            self.multiply(self.held.scores, KEYS, step)

    def add(self) -> None:
        """Add the products of weights and values, step by step of the keys."""
        for step in range(self.tile.keys // self.tile.unit.depth):
            self.fragments[VALUES].load(self.memory, tirx.const(0), step)
            self.multiply(self.held.sums, VALUES, step)

    def store(self) -> None:
        """Store what the epilogue makes of the sums, strip by strip through shared memory."""
        tile, second = self.tile, self.found.chain.second
        if tile.reaches_values:
            ib.evaluate(T.cuda.cta_sync())
        layout, data = tile.unit.sum_layout(tile.columns), self.memory.data
        memory = ib.decl_buffer(tile.store_shape, "float32", data=data, scope=self.scope)
        (column,) = second.right.free
        rows = Boxed(second.left, (tile.rows,), tile.rows)
        columns = Boxed(second.right, (min(tile.columns, column.extent),), tile.columns)
        store = SumStore(rows, columns, self.found.epilogue, self.buffers, memory, layout)
        for strip in range(tile.warp_rows // layout.rows):
            held = strip * layout.rows * tile.columns // tile.unit.warp
            row = ib.Bind(self.row + strip * layout.rows) if strip else self.row
            whole = (0, tile.columns)
            store.write(self.held.sums, held, row, whole, self.thread, self.origin)
