"""Attention with the tensor cores' warp instructions: cp.async in, ldmatrix, mma, any epilogue.

A warp has 16 rows: all of their scores, then their weights, which it packs as the left operand of
the second product, and their sums::

    for d in sixteens: scores += queries[warp's rows, d] @ keys[:, d]
    for k in sixteens: sums   += weights[:, k] @ values[k, :]

Why this is free of races, beside what ``kernel.py`` says: waits are for all copies of a thread, and
then for all threads. Behind a wait for keys only values are asked for, whose former tile all have
multiplied in front of it; behind a wait for values only keys, likewise. Sums go out through the
memory of queries and keys, which all have read in front of the last wait for values; where they
need more than that, all threads meet once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.attention.find import Found
from tvm_tile.schedule.attention.kernel import write_attention
from tvm_tile.schedule.attention.warp_rows import WarpRows
from tvm_tile.schedule.mma.copies import begin_copies
from tvm_tile.schedule.mma.fragments import begin_fragments
from tvm_tile.schedule.tensor_cores.chunks import Chunks
from tvm_tile.schedule.tensor_cores.instructions import multiply_add
from tvm_tile.schedule.tensor_cores.place import Boxed, Place
from tvm_tile.schedule.tensor_cores.store import Store, when
from tvm_tile.tile.mma import WARP
from tvm_tile.tile.mma_attention import WARP_ROWS, MmaAttentionTile
from tvm_tile.tile.product import Operand, Product
from tvm_tile.tile.slab import ELEMENT, FRAGMENT

_QUERIES, _KEYS, _VALUES = range(3)  # the slabs
_COLUMNS = 8  # of an instruction
_REGISTERS = 4  # of a fragment, and of an instruction's sums


def write_with_warps(found: Found, tile: MmaAttentionTile) -> tirx.PrimFunc:
    """The function of a chain of two products, for tensor cores' warp instructions."""
    return write_attention(found, tile, _Threads(), partial(_Warps, found, tile))


class _Threads:
    """TVM's thread-level dialect, as ``Dialect`` says."""

    def function(self) -> AbstractContextManager[Any]:
        """As ``Dialect`` says."""
        return ib.prim_func()

    @contextmanager
    def launch(self, grid: int, block_size: int) -> Iterator[tuple[Any, Any]]:
        """As ``Dialect`` says."""
        ib.device_entry()
        yield ib.cta_id([grid]), ib.thread_id([block_size])


class _Warps:
    """As :class:`~tvm_tile.schedule.attention.kernel.Unit` says."""

    has_small_scores = True

    def __init__(
        self,
        found: Found,
        tile: MmaAttentionTile,
        _: Any,
        thread: Any,
        origin: Place,
        buffers: Mapping[str, Any],
    ) -> None:
        self._found, self._tile, self._buffers = found, tile, buffers
        self._thread, self._origin = thread, origin
        size = tile.shared_bytes
        self._memory = ib.alloc_buffer((size,), "uint8", scope="shared.dyn", align=128)
        self._words = ib.decl_buffer(
            (size // 4,), "uint32", data=self._memory.data, scope="shared.dyn"
        )
        self._sources = {
            operand.tensor.name: ib.decl_buffer(
                (operand.size // ELEMENT,), "uint16", data=buffers[operand.tensor.name].data
            )
            for operand in found.chain.operands
        }
        self.held = WarpRows(thread, tile.rows, tile.keys, tile.columns)
        lane = ib.Bind(thread % WARP)
        self._row = ib.Bind(thread // WARP * WARP_ROWS)
        queries, keys, values = tile.slabs
        rows, nothing = (self._row, WARP_ROWS), tirx.const(0)
        self._queries = begin_fragments(queries, rows, lane, is_right=False)
        self._keys = begin_fragments(keys, (nothing, tile.keys), lane, is_right=True)
        self._values = begin_fragments(values, (nothing, tile.columns), lane, is_right=True)

    def load_queries(self) -> None:
        """As ``Unit`` says."""
        first = self._found.chain.first
        self._ask(_QUERIES, first, first.left, self._origin)

    def ask_for_keys(self, place: Place, conditions: Sequence[Any]) -> None:
        """As ``Unit`` says."""
        first = self._found.chain.first
        with when(conditions):
            self._ask(_KEYS, first, first.right, place)

    def ask_for_values(self, place: Place) -> None:
        """As ``Unit`` says."""
        second = self._found.chain.second
        self._ask(_VALUES, second, second.right, place)

    def _ask(self, number: int, product: Product, operand: Operand, place: Place) -> None:
        """Ask for a tile of an operand; what is too narrow for it is copied at once.

        Args:
            number: of its slab.
            product: whose operand it is.
            operand: that is copied.
            place: first values of all axes but the first product's depth.
        """
        slab = self._tile.slabs[number]
        (axis,) = operand.free
        side = Boxed(operand, (min(slab.rows, axis.extent),), slab.rows)
        deep = {product.depth.name: place.get(product.depth.name, tirx.const(0))}
        chunks = Chunks(product, operand, side, place, slab.depth)
        threads = (self._thread, self._tile.block_size)
        copies = begin_copies(chunks, slab, self._sources[operand.tensor.name], threads)
        copies.fetch(lambda at: self._memory.ptr_to([at]), deep)
        copies.settle(self._words, tirx.const(0))

    def wait_for_keys(self, place: Place) -> None:
        """As ``Unit`` says."""
        self._wait()

    def wait_for_values(self, place: Place) -> None:
        """As ``Unit`` says."""
        self._wait()

    def _wait(self) -> None:
        ib.evaluate(T.ptx["cp.async.wait_all"]())
        ib.evaluate(T.cuda.cta_sync())

    def score(self) -> None:
        """As ``Unit`` says."""
        scores = self.held.scores
        with ib.unroll(self._tile.keys // 2) as i:
            ib.buffer_store(scores, tirx.const(0.0, "float32"), [i])
        for step in range(self._tile.depth // FRAGMENT):
            for fragments in (self._queries, self._keys):
                fragments.load(self._memory, tirx.const(0), step)
            left = self._queries.of(step, 0)
            self._multiply(scores, left, self._keys, self._tile.keys, step)

    def hand_over(self) -> None:
        """As ``Unit`` says."""
        self.held.pack(self._found.chain.second.right.tensor.dtype)

    def add(self) -> None:
        """As ``Unit`` says."""
        for step in range(self._tile.keys // FRAGMENT):
            self._values.load(self._memory, tirx.const(0), step)
            left = [self.held.packed[step * _REGISTERS + i] for i in range(_REGISTERS)]
            self._multiply(self.held.sums, left, self._values, self._tile.columns, step)

    def _multiply(self, sums: Any, left: list[Any], right: Any, columns: int, step: int) -> None:
        """Add the products of a depth of 16 to sums of so many columns."""
        name = multiply_add(self._found.chain.first.left.tensor.dtype, FRAGMENT)
        for column in range(columns // _COLUMNS):
            own = [sums[column * _REGISTERS + i] for i in range(_REGISTERS)]
            half = right.of(step, column // 2)[column % 2 * 2 :][:2]
            ib.evaluate(T.ptx[name](*own, *left, *half, *own))

    def store(self) -> None:
        """As ``Unit`` says."""
        tile, second = self._tile, self._found.chain.second
        if tile.reaches_values:
            ib.evaluate(T.cuda.cta_sync())
        shape, data = tile.store_shape, self._memory.data
        memory = ib.decl_buffer(shape, "float32", data=data, scope="shared.dyn")
        (column,) = second.right.free
        rows = Boxed(second.left, (tile.rows,), tile.rows)
        columns = Boxed(second.right, (min(tile.columns, column.extent),), tile.columns)
        store = Store(rows, columns, self._found.epilogue, self._buffers, memory)
        whole = (0, tile.columns)
        store.write(self.held.sums, 0, self._row, whole, self._thread, self._origin)
