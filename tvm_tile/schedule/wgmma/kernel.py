"""Write a product as a persistent, warp-specialised kernel: TMA in, wgmma, any epilogue behind.

The loops that :func:`write_kernel` writes, ``tile`` running over a block's share of the output::

    producer (one thread of its warpgroup)      consumers (each a warpgroup, 64 or 128 rows)
    for tile, chunk:                            for tile:
        wait until stage is empty                   for chunk:
        stage.full expects the chunk's bytes            wait until stage is full
        copy boxes of both operands to stage            sums += left[stage] @ right[stage]
                                                        stage before this one is empty
                                                    store epilogue(sums)

Why this is free of races: a stage is written only after all consumers have said that it is empty,
each once a round, and read only after the copy engine has said that all of its bytes are there. A
consumer gives back stage ``s - 1`` when it has waited for all products but the last one, which
reads stage ``s``: nothing reads ``s - 1`` any more. Both sides go round the ring in the same order,
so each knows the parity of the round that it waits for: a full barrier's first round has parity 0,
and the producer's first wait is for the round before the first, which counts as done.

Where two consumers take tiles in turns, each skips the other's chunks in the ring. It asks for a
full stage only after the other has seen all of its own chunks, which come before in the ring: so
the barrier is in the very round that is asked for, or done with it, and no earlier round of the
same parity can be taken for it. :class:`~tvm_tile.schedule.wgmma.ring.Alternation` says whose turn
it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.build.leaving import leaving
from tvm_tile.device.device import STATIC_SHARED_LIMIT
from tvm_tile.schedule.tensor_cores.found import ProductMatch
from tvm_tile.schedule.tensor_cores.limits import Limits, bound_limits
from tvm_tile.schedule.tensor_cores.parameters import declare, views
from tvm_tile.schedule.tensor_cores.place import Boxed, Place
from tvm_tile.schedule.tensor_cores.store import SumStore
from tvm_tile.schedule.units.wgmma import STEP_BYTES, SUMS, Instruction, group, wait
from tvm_tile.schedule.wgmma.operand import TmaChunks
from tvm_tile.schedule.wgmma.ring import (
    Alternation,
    Ring,
    Turn,
    make_alternation_barriers,
    make_ring,
)
from tvm_tile.schedule.wgmma.split import Parts, keep_sums, store_totals, wait_for_cluster
from tvm_tile.schedule.wgmma.sums import store_sums
from tvm_tile.schedule.wgmma.walk import chunk_place, for_tiles, needed_tiles, own_chunks
from tvm_tile.tile.product import Product
from tvm_tile.tile.warpgroup_tile import BARRIER_BYTES, LINE, WARPGROUP, WarpgroupTile

_LEAST_BLOCKS = "tirx.launch_bounds_min_blocks_per_sm"


@dataclass(frozen=True, slots=True)
class _WarpgroupKernel:
    """What the producer and the consumers need, while their code is written."""

    product: Product
    tile: WarpgroupTile
    limits: Limits
    sides: tuple[TmaChunks, TmaChunks]
    data: Any  # the stages, in shared memory
    ring: Ring
    turns: Any  # barriers of consumers that take tiles in turns, or None
    block: Any
    rank: Any  # the block's number among those that share its tile
    thread: Any


def write_kernel(found: ProductMatch, tile: WarpgroupTile) -> tirx.PrimFunc:
    """The function of a product and what follows it."""
    product, epilogue = found.product, found.epilogue
    sides = (
        TmaChunks(product.left, tile.rows, 0, product.depth, tile.depth),
        TmaChunks(product.right, tile.columns, tile.block_rows * LINE, product.depth, tile.depth),
    )
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name("main")
        ib.func_attr({"tirx.noalias": True})
        buffers = declare(found.params)
        maps = [side.tensor_map(buffers) for side in sides]
        ib.device_entry()
        # Its use makes clusters of neighbouring blocks.
        rank = ib.cta_id_in_cluster([tile.splits]) if tile.splits > 1 else tirx.const(0)
        block = ib.cta_id([tile.grid])
        thread = ib.thread_id([tile.block_size])
        limits = bound_limits(found.limits)
        needed = needed_tiles(product, tile, limits)
        if not isinstance(needed, int):
            number = block // tile.splits if tile.splits > 1 else block
            ib.evaluate(leaving(number < needed))
        seen = views(epilogue.tensors, found.shapes, buffers)
        size = dynamic_bytes(tile.stages * tile.stage_bytes, math.prod(tile.store_shape) * 4)
        data = ib.alloc_buffer((size,), "uint8", scope="shared.dyn", align=1024)
        turns = make_alternation_barriers(thread) if tile.alternates else None
        ring = make_ring(tile.stages, tile.sharers, thread)
        ib.evaluate(T.cuda.cta_sync())
        kernel = _WarpgroupKernel(
            product, tile, limits, sides, data, ring, turns, block, rank, thread
        )
        memory = ib.decl_buffer(
            tile.store_shape,
            tile.sum_dtype,
            data=data.data,
            elem_offset=tile.stages * tile.stage_bytes // 4,
            scope="shared.dyn",
        )
        rows = Boxed(product.left, tile.rows, tile.block_rows)
        columns = Boxed(product.right, tile.columns, tile.width)
        store = SumStore(rows, columns, epilogue, seen, memory)
        with ib.attr({_LEAST_BLOCKS: tile.blocks}), ib.If(thread < WARPGROUP):
            with ib.Then():
                _produce(kernel, maps)
            with ib.Else():
                _consume(kernel, store)
    return builder.get()


def dynamic_bytes(stages: int, sums: int) -> int:
    """Of so many bytes of stages, and behind them so many of what sums go out through.

    Launches ask for more than the static limit only where this exceeds it alone, whatever the
    barriers take besides.
    """
    size = stages + sums
    is_near = STATIC_SHARED_LIMIT - BARRIER_BYTES < size <= STATIC_SHARED_LIMIT
    return STATIC_SHARED_LIMIT + 1 if is_near else size


def _parts(tile: WarpgroupTile) -> Parts:
    """The parts of a tile's sums, where blocks share it."""
    shape = (tile.block_rows, tile.width)
    threads = tile.consumers * WARPGROUP
    return Parts(shape, tile.store_shape, tile.sum_dtype, tile.splits, threads)


def _produce(kernel: _WarpgroupKernel, maps: Sequence[Any]) -> None:
    product, tile, ring = kernel.product, kernel.tile, kernel.ring
    arriving = T.uint32(sum(side.size for side in kernel.sides))
    if tile.division is not None:
        ib.evaluate(T.ptx["setmaxnreg.dec.sync.aligned.u32"](tile.division[0]))
    with ib.If(kernel.thread == 0), ib.Then():
        turn = Turn(tile.stages)

        def stage(offset: int) -> Any:
            return kernel.data.ptr_to([turn.stage * tile.stage_bytes + offset])

        def fill(origin: Place) -> None:
            first, count = own_chunks(product, tile, kernel.rank)
            with ib.serial(count) as chunk:
                place = {**origin, **chunk_place(product, tile, first + chunk)}
                full = ring.full.ptr_to([turn.stage])
                empty = ring.empty.ptr_to([turn.stage])
                ib.evaluate(T.cuda.mbarrier_wait(empty, turn.parity ^ 1))
                ib.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(full, arriving))
                for side, tensor_map in zip(kernel.sides, maps, strict=True):
                    side.copy(tensor_map, stage, full, place)
                turn.advance()

        for_tiles(product, tile, kernel.block, fill, limits=kernel.limits)
    if tile.splits > 1:
        wait_for_cluster()
        wait_for_cluster()


def _consume(kernel: _WarpgroupKernel, store: SumStore) -> None:
    product, tile, ring = kernel.product, kernel.tile, kernel.ring
    if tile.division is not None:
        ib.evaluate(T.ptx["setmaxnreg.inc.sync.aligned.u32"](tile.division[1]))
    shape = (tile.instructions * tile.width // 2,)
    registers = ib.alloc_buffer(shape, SUMS[tile.sum_dtype][1], scope="local")
    sums = ib.decl_buffer(shape, tile.sum_dtype, data=registers.data, scope="local")
    thread = ib.Bind(kernel.thread - WARPGROUP)
    start = ib.Bind(T.cuda.cvta_generic_to_shared(kernel.data.ptr_to([0])))
    number = ib.Bind(thread // WARPGROUP) if tile.alternates else thread // WARPGROUP
    rows = tirx.const(0) if tile.alternates else number * (tile.instructions * 64)
    left, right = kernel.sides
    descriptors = (left.descriptor(start, rows), right.descriptor(start, tirx.const(0)))
    turn = Turn(tile.stages)
    alternation = Alternation(number, kernel.turns) if tile.alternates else None

    def release() -> None:
        with ib.If(thread % WARPGROUP == 0), ib.Then():
            empty = ring.empty.ptr_to([turn.previous])
            ib.evaluate(T.ptx.mbarrier.arrive.shared.b64(empty, T.uint32(1)))

    def compute(origin: Place) -> None:
        _, count = own_chunks(product, tile, kernel.rank)
        if alternation is not None:
            alternation.wait()
        with ib.serial(count) as chunk:
            full = ring.full.ptr_to([turn.stage])
            ib.evaluate(T.cuda.mbarrier_wait(full, turn.parity))
            with group():
                _multiply(kernel, registers, descriptors, turn.stage, chunk)
            with ib.If(chunk > 0), ib.Then():
                wait(1)
                release()
            turn.advance()
        if alternation is not None:
            alternation.pass_on(thread)
        wait(0)
        release()
        if alternation is not None:
            turn.skip(count)
        if tile.splits == 1:
            store_sums(store, tile, sums, thread, origin)
            return
        keep_sums(store, tile, sums, thread)
        wait_for_cluster()
        store_totals(store, _parts(tile), kernel.rank, thread, origin)
        wait_for_cluster()

    walk = partial(for_tiles, product, tile, kernel.block, compute, limits=kernel.limits)
    if alternation is None:
        walk()
        return
    _, count = own_chunks(product, tile, kernel.rank)
    turn.skip(number * count)
    walk(first=number, step=tile.consumers)


def _multiply(
    kernel: _WarpgroupKernel, registers: Any, descriptors: tuple[Any, Any], stage: Any, chunk: Any
) -> None:
    """The instructions of one chunk."""
    tile, (left, right) = kernel.tile, kernel.sides
    dtypes = [side.operand.tensor.dtype for side in kernel.sides]
    turned = [side.is_transposed for side in kernel.sides]
    instruction = Instruction(tile.width, dtypes, turned, tile.sum_dtype)
    moved = tirx.Cast("uint64", stage * (tile.stage_bytes // 16))
    first, second = (ib.Bind(descriptor + moved) for descriptor in descriptors)
    for step in range(LINE // STEP_BYTES):
        for number in range(tile.instructions):
            rows = number * left.instruction_rows + step * left.instruction_depth
            own = [first + T.uint64(rows)]
            others = second + T.uint64(step * right.instruction_depth)
            # The first product of a tile does not add to what the registers hold.
            adds = chunk > 0 if step == 0 else True
            instruction.add(registers, number * (tile.width // 2), own, others, adds)
