"""Write a product for AMD's matrix cores: chunks through registers, any epilogue behind.

The loops that :func:`write_kernel` writes, for the one tile of a block::

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

from tvm_tile.schedule.matrix_cores.copies import Copies, begin_copies
from tvm_tile.schedule.matrix_cores.fragments import Fragments, begin_fragments, multiply
from tvm_tile.schedule.tensor_cores.chunks import Chunks
from tvm_tile.schedule.tensor_cores.found import Found
from tvm_tile.schedule.tensor_cores.parameters import declare, views
from tvm_tile.schedule.tensor_cores.part import Part, find_part
from tvm_tile.schedule.tensor_cores.place import digits
from tvm_tile.schedule.tensor_cores.store import Store
from tvm_tile.tile.matrix_cores import MatrixTile
from tvm_tile.tile.mma import chunk_counts
from tvm_tile.tile.panel import WORD
from tvm_tile.tile.product import Product
from tvm_tile.tile.slab import UNIT_BYTES


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What a thread needs in the loop over chunks."""

    product: Product
    tile: MatrixTile
    copies: tuple[Copies, ...]
    fragments: tuple[Fragments, Fragments]
    sums: Any
    words: Any  # the stages as 32-bit numbers

    @property
    def chunks(self) -> int:
        return math.prod(chunk_counts(self.product, self.tile.depth))

    def first_unit(self, chunk: Any) -> Any:
        """Of the stage of a chunk."""
        if self.tile.stages == 1:
            return tirx.const(0)
        return ib.Bind(chunk % self.tile.stages * (self.tile.stage_bytes // UNIT_BYTES))

    def fetch(self, chunk: Any) -> None:
        """Ask for a chunk."""
        axes = (*self.product.steps, self.product.depth)
        place = dict(digits(chunk, axes, chunk_counts(self.product, self.tile.depth)))
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
            multiply(self.tile, self.sums, self.fragments)

    def keep_order(self) -> None:
        """Keep the compiler from delaying a chunk's loads, and from waiting for them too early."""
        loads = sum(copies.loads for copies in self.copies)
        rows, columns, depth = self.tile.instruction.shape
        size = self.tile.warp_rows * self.tile.warp_columns * self.tile.depth
        name = f"loads_then_products<{loads}, {size // (rows * columns * depth)}>"
        ib.evaluate(T.call_extern("void", name))


def write_kernel(found: Found, tile: MatrixTile) -> tirx.PrimFunc:
    """The function of a product and what follows it."""
    product, layout = found.product, tile.sum_layout
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name("main")
        ib.func_attr({"tirx.noalias": True})
        buffers = declare(found.params)
        ib.device_entry()
        block = ib.cta_id([tile.grid])
        thread = ib.thread_id([tile.block_size])
        seen = views(found.epilogue.tensors, found.shapes, buffers)
        words = ib.alloc_buffer((tile.shared_bytes // WORD,), "uint32", scope="shared", align=128)
        part = find_part(product, tile, tile.wave, block, thread)
        kernel = _begin(product, tile, part, buffers, words)
        _sum_up(kernel)
        ib.evaluate(T.cuda.cta_sync())
        dtype = tile.instruction.acc_dtype
        memory = ib.decl_buffer(tile.store_shape, dtype, data=words.data, scope="shared")
        store = Store(*part.sides, found.epilogue, seen, memory, layout)
        for strip in range(tile.warp_rows // layout.rows):
            held = strip * layout.rows * tile.warp_columns // tile.wave
            row = ib.Bind(part.rows + strip * layout.rows)
            columns = (part.columns, tile.warp_columns)
            store.write(kernel.sums, held, row, columns, thread, part.origin)
    return builder.get()


def _begin(
    product: Product, tile: MatrixTile, part: Part, buffers: Mapping[str, Any], words: Any
) -> _Kernel:
    """What a thread keeps: where its copies, its fragments and its sums are."""
    operands = (product.left, product.right)
    panels = tile.panels(product)
    copies = tuple(
        begin_copies(
            Chunks(product, operand, side, part.origin, tile.depth),
            panel,
            buffers[operand.tensor.name].data,
            (part.thread, tile.block_size),
        )
        for operand, panel, side in zip(operands, panels, part.sides, strict=True)
    )
    rows, columns = (part.rows, tile.warp_rows), (part.columns, tile.warp_columns)
    fragments = (
        begin_fragments(panels[0], tile.layout, rows, part.lane),
        begin_fragments(panels[1], tile.layout, columns, part.lane),
    )
    dtype = tile.instruction.acc_dtype
    sums = ib.alloc_buffer((tile.sums,), dtype, scope="local")
    with ib.unroll(tile.sums) as i:
        ib.buffer_store(sums, tirx.const(0, dtype), [i])
    return _Kernel(product, tile, copies, fragments, sums, words)


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
    kernel.multiply(tirx.const(last))
