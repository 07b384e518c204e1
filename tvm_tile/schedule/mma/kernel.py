"""Write a product as a kernel for mma: asynchronous copies, some chunks ahead, any epilogue behind.

The loops that :func:`write_kernel` writes, for the one tile of a block::

    for chunk in the first stages - 1: ask for chunk
    wait for the first chunk, and for one another; load its first fragments
    for chunk:
        ask for the chunk stages - 1 ahead
        for step of 16 in depth:
            (in the last step: wait for the next chunk, and for one another)
            load the next step's fragments
            sums += left @ right
    store epilogue(sums)

Why this is free of races: a chunk is read only after every thread has waited for its own copies of
it and then for all others. It is overwritten by copies that are asked for behind the next such
meeting: by then all warps have loaded its last fragments, before they came there. Sums go out
through the ring's memory, when nothing is on its way there and all have met once more.

Every turn commits a group of copies, even if there is nothing left to ask for: the groups that may
still be on their way are then as many all the time.
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

from tvm_tile.schedule.tensor_cores.chunks import Chunks
from tvm_tile.schedule.tensor_cores.found import Found
from tvm_tile.schedule.tensor_cores.parameters import declare, views
from tvm_tile.schedule.tensor_cores.part import Part, find_part
from tvm_tile.schedule.tensor_cores.place import digits
from tvm_tile.schedule.tensor_cores.store import Store
from tvm_tile.schedule.units.asynchronous_copies import Copies, begin_copies
from tvm_tile.schedule.units.mma import Fragments, begin_fragments, multiply
from tvm_tile.tile.mma import WARP, MmaTile, chunk_counts
from tvm_tile.tile.product import Operand, Product
from tvm_tile.tile.slab import ELEMENT, FRAGMENT
from tvm_tile.tile.sum_layout import CORNER_ROWS


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What a thread needs in the loop over chunks."""

    product: Product
    tile: MmaTile
    copies: tuple[Copies, ...]
    fragments: tuple[Fragments, Fragments]
    sums: Any
    ring: Any
    words: Any  # the ring as 32-bit numbers

    @property
    def chunks(self) -> int:
        return math.prod(chunk_counts(self.product, self.tile.depth))

    def first_byte(self, chunk: Any) -> Any:
        """Of the stage of a chunk."""
        return ib.Bind(chunk % self.tile.stages * self.tile.stage_bytes)

    def fetch(self, chunk: Any) -> None:
        """Ask for a chunk, if there is one, and commit."""
        axes = (*self.product.steps, self.product.depth)
        with ib.If(chunk < self.chunks), ib.Then():
            first = self.first_byte(chunk)
            place = dict(digits(chunk, axes, chunk_counts(self.product, self.tile.depth)))
            name = self.product.depth.name
            place[name] = ib.Bind(place[name] * self.tile.depth)
            for copies in self.copies:
                copies.fetch(lambda at: self.ring.ptr_to([first + at]), place)
        ib.evaluate(T.ptx["cp.async.commit_group"]())

    def settle(self, chunk: Any) -> None:
        """Store what went to registers, if it did."""
        if any(copies.held is not None for copies in self.copies):
            with ib.If(chunk < self.chunks), ib.Then():
                first = ib.Bind(self.first_byte(chunk) // 4)
                for copies in self.copies:
                    copies.settle(self.words, first)

    def load(self, first: Any, step: int) -> None:
        """The fragments of a step of a stage."""
        for fragments in self.fragments:
            fragments.load(self.ring, first, step)


def write_kernel(found: Found, tile: MmaTile) -> tirx.PrimFunc:
    """The function of a product and what follows it."""
    product = found.product
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name("main")
        ib.func_attr({"tirx.noalias": True})
        buffers = declare(found.params)
        ib.device_entry()
        block = ib.cta_id([tile.grid])
        thread = ib.thread_id([tile.block_size])
        seen = views(found.epilogue.tensors, found.shapes, buffers)
        ring = ib.alloc_buffer((tile.shared_bytes,), "uint8", scope="shared.dyn", align=128)
        part = find_part(product, tile, WARP, block, thread)
        kernel = _begin(product, tile, part, buffers, ring)
        _sum_up(kernel)
        ib.evaluate(T.cuda.cta_sync())
        memory = ib.decl_buffer(tile.store_shape, "float32", data=ring.data, scope="shared.dyn")
        store = Store(*part.sides, found.epilogue, seen, memory)
        for strip in range(tile.warp_rows // CORNER_ROWS):
            held = strip * CORNER_ROWS * tile.warp_columns // WARP
            row = ib.Bind(part.rows + strip * CORNER_ROWS)
            columns = (part.columns, tile.warp_columns)
            store.write(kernel.sums, held, row, columns, thread, part.origin)
    return builder.get()


def _begin(
    product: Product, tile: MmaTile, part: Part, buffers: Mapping[str, Any], ring: Any
) -> _Kernel:
    """What a thread keeps: where its copies, its fragments and its sums are."""
    operands = (product.left, product.right)
    slabs = tile.slabs(product)
    copies = tuple(
        begin_copies(
            Chunks(product, operand, side, part.origin, tile.depth),
            slab,
            _flat(operand, buffers),
            (part.thread, tile.block_size),
        )
        for operand, slab, side in zip(operands, slabs, part.sides, strict=True)
    )
    rows, columns = (part.rows, tile.warp_rows), (part.columns, tile.warp_columns)
    fragments = (
        begin_fragments(slabs[0], rows, part.lane, is_right=False),
        begin_fragments(slabs[1], columns, part.lane, is_right=True),
    )
    count = tile.warp_rows * tile.warp_columns // WARP
    sums = ib.alloc_buffer((count,), "float32", scope="local")
    with ib.unroll(count) as i:
        ib.buffer_store(sums, T.float32(0), [i])
    words = ib.decl_buffer((tile.shared_bytes // 4,), "uint32", data=ring.data, scope="shared.dyn")
    return _Kernel(product, tile, copies, fragments, sums, ring, words)


def _flat(operand: Operand, buffers: Mapping[str, Any]) -> Any:
    size = operand.size // ELEMENT
    return ib.decl_buffer((size,), "uint16", data=buffers[operand.tensor.name].data)


def _sum_up(kernel: _Kernel) -> None:
    """The loop over chunks."""
    tile = kernel.tile
    ahead, steps = tile.stages - 1, tile.depth // FRAGMENT
    dtype = kernel.product.left.tensor.dtype
    with ib.serial(ahead) as chunk:
        kernel.fetch(chunk)
        kernel.settle(chunk)
    _meet(tile)
    kernel.load(kernel.first_byte(tirx.const(0)), 0)
    with ib.serial(kernel.chunks) as chunk:
        this, following = kernel.first_byte(chunk), kernel.first_byte(chunk + 1)
        kernel.fetch(chunk + ahead)
        for step in range(steps):
            if step + 1 < steps:
                kernel.load(this, step + 1)
            else:
                kernel.settle(chunk + ahead)
                _meet(tile)
                kernel.load(following, 0)
            multiply(dtype, kernel.sums, kernel.fragments, step)
    ib.evaluate(T.ptx["cp.async.wait_all"]())


def _meet(tile: MmaTile) -> None:
    """Wait for the oldest chunk on its way, and for all threads."""
    ib.evaluate(T.ptx["cp.async.wait_group"](tile.stages - 2))
    ib.evaluate(T.cuda.cta_sync())
