"""Write a product for AMD's matrix cores: chunks through registers, any epilogue behind.

The loops that :func:`write_kernel` writes, for the one tile of a block, over all chunks or those of
one part of the sum (see ``parts.py``)::

    load the first chunk; store it in the first stage; wait for one another
    for chunk, but the last:
        load the next chunk to registers
        for step of the chunk: load fragments; sums += left @ right
        (with one stage only: wait for one another)
        store the next chunk in the next stage
        wait for one another
    the same steps of the last chunk
    wait for one another; store epilogue(sums)

Why this is free of races: a chunk is read only after all threads have met behind storing it. With
two stages, it is overwritten by the chunk after the next, which threads store behind the meeting
that follows its last reads. With one, they meet between the reads and the stores. Sums go out
through the stages' memory, when all have met behind the last reads. Meetings wait for all loads and
stores of shared memory before them (see ``__syncthreads`` in ``build/hip_prelude.h``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.matrix_cores.parts import (
    add_parts,
    declare_parts,
    own_chunks,
    store_of_part,
)
from tvm_tile.schedule.tensor_cores.chunks import Chunks
from tvm_tile.schedule.tensor_cores.found import Found
from tvm_tile.schedule.tensor_cores.parameters import declare, views
from tvm_tile.schedule.tensor_cores.part import Part, find_part
from tvm_tile.schedule.tensor_cores.place import digits
from tvm_tile.schedule.tensor_cores.store import Store
from tvm_tile.schedule.units.matrix_cores import Fragments, begin_fragments, multiply
from tvm_tile.schedule.units.register_copies import Copies, begin_copies
from tvm_tile.tile.matrix_cores import MatrixTile
from tvm_tile.tile.mma import chunk_counts
from tvm_tile.tile.panel import WORD
from tvm_tile.tile.product import Product
from tvm_tile.tile.slab import UNIT_BYTES

_ON_DEVICE = {"tirx.device_entry": True}  # what is within becomes a kernel


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What a thread needs in the loop over chunks."""

    product: Product
    tile: MatrixTile
    copies: tuple[Copies, ...]
    fragments: tuple[Fragments, Fragments]
    sums: Any
    words: Any  # the stages as 32-bit numbers
    first: Any  # of the block's chunks among those of the sum
    chunks: Any  # of the block

    def first_unit(self, chunk: Any) -> Any:
        """Of the stage of a chunk."""
        if self.tile.stages == 1:
            return tirx.const(0)
        return ib.Bind(chunk % self.tile.stages * (self.tile.stage_bytes // UNIT_BYTES))

    def fetch(self, chunk: Any) -> None:
        """Ask for a chunk."""
        axes = (*self.product.steps, self.product.depth)
        counts = chunk_counts(self.product, self.tile.depth)
        place = dict(digits(self.first + chunk, axes, counts))
        name = self.product.depth.name
        place[name] = ib.Bind(place[name] * self.tile.depth)
        for copies in self.copies:
            copies.fetch(place)

    def settle(self, chunk: Any) -> None:
        """Store it in its stage."""
        first = self.first_unit(chunk)
        for copies in self.copies:
            copies.settle(self.words, first)

    def multiply(self, chunk: Any) -> None:
        """Add a chunk's products."""
        first = self.first_unit(chunk)
        layout = self.tile.layout
        units = self.tile.depth * layout.element // UNIT_BYTES
        for step in range(units // layout.step):
            for fragments in self.fragments:
                fragments.load(self.words, first, step)
            multiply(self.tile.unit, self.sums, self.fragments, step)

    def keep_order(self) -> None:
        """Keep the compiler from delaying a chunk's loads, and from waiting for them too early."""
        loads = sum(copies.loads for copies in self.copies)
        rows, columns, depth = self.tile.unit.instruction.shape
        size = self.tile.warp_rows * self.tile.warp_columns * self.tile.depth
        name = f"loads_then_products<{loads}, {size // (rows * columns * depth)}>"
        ib.evaluate(T.call_extern("void", name))


def write_kernel(found: Found, tile: MatrixTile) -> tirx.PrimFunc:
    """The function of a product and what follows it: a kernel, and another to add sums in parts."""
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name("main")
        ib.func_attr({"tirx.noalias": True})
        buffers = declare(found.params)
        partial = declare_parts(found.product, tile) if tile.parts > 1 else None
        with ib.attr(_ON_DEVICE):
            _write_tiles(found, tile, buffers, partial)
        if partial is not None:
            with ib.attr(_ON_DEVICE):
                add_parts(found, tile, buffers, partial)
    return builder.get()


def _write_tiles(found: Found, tile: MatrixTile, buffers: Mapping[str, Any], partial: Any) -> None:
    """The kernel that multiplies.

    Args:
        found: the product and what follows it.
        tile: how to compute it.
        buffers: the function's parameters by name.
        partial: where sums in parts go, as they are; ``None`` where they are whole.
    """
    product, layout = found.product, tile.sum_layout
    block = ib.cta_id([tile.grid])
    thread = ib.thread_id([tile.block_size])
    # Blocks are dealt out to the caches in turn: those of one part, which share operands, are to
    # come to the same, as far as that goes.
    number, part = ib.Bind(block // tile.parts), ib.Bind(block % tile.parts)
    words = ib.alloc_buffer((tile.shared_bytes // WORD,), "uint32", scope="shared", align=128)
    own = find_part(product, tile, tile.unit.warp, number, thread)
    kernel = _begin(product, tile, own, buffers, words, part)
    _sum_up(kernel)
    ib.evaluate(T.cuda.cta_sync())
    if partial is None:
        epilogue, seen = found.epilogue, views(found.epilogue.tensors, found.shapes, buffers)
    else:
        epilogue, seen = store_of_part(product, tile, partial, part)
    dtype = tile.unit.instruction.acc_dtype
    memory = ib.decl_buffer(tile.store_shape, dtype, data=words.data, scope="shared")
    store = Store(*own.sides, epilogue, seen, memory, layout)
    for strip in range(tile.warp_rows // layout.rows):
        held = strip * layout.rows * tile.warp_columns // tile.unit.warp
        row = ib.Bind(own.rows + strip * layout.rows)
        columns = (own.columns, tile.warp_columns)
        store.write(kernel.sums, held, row, columns, thread, own.origin)


def _begin(
    product: Product,
    tile: MatrixTile,
    own: Part,
    buffers: Mapping[str, Any],
    words: Any,
    part: Any,
) -> _Kernel:
    """What a thread keeps: where its copies, its fragments and its sums are.

    Args:
        product: what is computed.
        tile: how.
        own: where the thread's part of the tile is.
        buffers: the function's parameters by name.
        words: the stages as 32-bit numbers.
        part: of the sum, the block's.
    """
    operands = (product.left, product.right)
    panels = tile.panels(product)
    copies = tuple(
        begin_copies(
            Chunks(product, operand, side, own.origin, tile.depth),
            panel,
            buffers[operand.tensor.name].data,
            (own.thread, tile.block_size),
        )
        for operand, panel, side in zip(operands, panels, own.sides, strict=True)
    )
    rows, columns = (own.rows, tile.warp_rows), (own.columns, tile.warp_columns)
    fragments = (
        begin_fragments(panels[0], tile.layout, rows, own.lane),
        begin_fragments(panels[1], tile.layout, columns, own.lane),
    )
    dtype = tile.unit.instruction.acc_dtype
    sums = ib.alloc_buffer((tile.sums,), dtype, scope="local")
    with ib.unroll(tile.sums) as i:
        ib.buffer_store(sums, tirx.const(0, dtype), [i])
    chunks = math.prod(chunk_counts(product, tile.depth))
    return _Kernel(
        product, tile, copies, fragments, sums, words, *own_chunks(chunks, tile.parts, part)
    )


def _sum_up(kernel: _Kernel) -> None:
    """The loop over chunks."""
    last = kernel.chunks - 1
    kernel.fetch(tirx.const(0))
    kernel.settle(tirx.const(0))
    ib.evaluate(T.cuda.cta_sync())
    with ib.serial(ib.Bind(T.call_extern("int32", "rolled", last))) as chunk:
        kernel.fetch(chunk + 1)
        kernel.multiply(chunk)
        kernel.keep_order()
        if kernel.tile.stages == 1:
            ib.evaluate(T.cuda.cta_sync())
        kernel.settle(chunk + 1)
        ib.evaluate(T.cuda.cta_sync())
    kernel.multiply(last)
