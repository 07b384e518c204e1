"""Write a product as a persistent, warp-specialised kernel: TMA in, wgmma, any epilogue behind.

The loops that :func:`write_kernel` writes, ``tile`` running over a block's share of the output::

    producer (one thread of its warpgroup)      consumers (each a warpgroup, 64 or 128 rows)
    for tile, chunk:                            for tile:
        wait until stage is empty                   for chunk:
        stage.full expects the chunk's bytes            wait until stage is full
        copy boxes of both operands to stage            sums += left[stage] @ right[stage]
                                                        stage before this one is empty
                                                    store epilogue(sums)

Why this is free of races is said in ``pipelines/specialised.py``. A consumer gives back stage
``s - 1`` when it has waited for all products but the last one, which reads stage ``s``: nothing
reads ``s - 1`` any more.

Where two consumers take tiles in turns, each skips the other's chunks in the ring. It asks for a
full stage only after the other has seen all of its own chunks, which come before in the ring: so
the barrier is in the very round that is asked for, or done with it, and no earlier round of the
same parity can be taken for it. :class:`~tvm_tile.schedule.units.ring.Alternation` says whose
turn it is.

An operand that is constant does not wait for the kernel before this one: the producer asks for it
for as many chunks as there are stages, each of which then expects all bytes of its chunk; the other
operand's come behind the wait. Each of these stages is new, so that nobody has to leave it before.

Where the right operand is kept without its zeros, two numbers in four, it is the instructions' left
one: a chunk is then twice as deep, has words besides that tell where these numbers are, and its
sums are those of the transposed product. A consumer's threads load their words of a stage that is
full before they begin to multiply; none of its instructions ends before all four warps have begun
it, so whoever has waited for them may say that the stage is empty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.schedule.pipelines.clusters import stay, store_totals
from tvm_tile.schedule.pipelines.lists import Lists
from tvm_tile.schedule.pipelines.specialised import Boxes, PersistentBlock, launch
from tvm_tile.schedule.tensor_cores.found import ProductMatch
from tvm_tile.schedule.tensor_cores.grouping import sort_groups
from tvm_tile.schedule.tensor_cores.parameters import function, views
from tvm_tile.schedule.tensor_cores.place import Boxed, GroupRows, Place, Side
from tvm_tile.schedule.tensor_cores.store import SumStore
from tvm_tile.schedule.units.ring import (
    Alternation,
    Count,
    Ring,
    Turn,
    make_alternation_barriers,
    make_ring,
)
from tvm_tile.schedule.units.wgmma import SUMS, Instruction, group, wait
from tvm_tile.schedule.wgmma.sides import Sides, Words
from tvm_tile.tile.products.grouping import with_sorted_rows
from tvm_tile.tile.products.warpgroup import as_multiplied
from tvm_tile.tile.products.warpgroup_tile import LINE, STEP_BYTES, WARPGROUP, WarpgroupTile
from tvm_tile.tile.units.product import Product
from tvm_tile.tile.units.sum_layout import CORNER_ROWS


@dataclass(frozen=True, slots=True)
class _WarpgroupKernel:
    """State that the producer and the consumers share while their code is written."""

    block: PersistentBlock
    tile: WarpgroupTile
    sides: Sides
    maps: Sequence[Any]
    ring: Ring
    turns: Any  # barriers of consumers that take tiles in turns, or None
    ahead: Sequence[int] = ()  # numbers of the copied sides that are asked for before the wait
    asked: Any = 0  # chunks of the first tile for which they are


def write_kernel(found: ProductMatch, tile: WarpgroupTile, device: Device) -> tirx.PrimFunc:
    """The function of a product and what follows it: a kernel, and where rows are in groups three
    ahead of it, which list these rows and their tiles, and copy the rows side by side."""
    product, epilogue = found.product, found.epilogue
    groups = product.groups
    product = with_sorted_rows(product) if groups else as_multiplied(product)
    left, right = product.left, product.right
    sides = Sides.of(product, tile)
    with function(found.params) as (builder, buffers):
        table, buffers = sort_groups(found, math.prod(tile.rows), buffers, device)
        maps = [side.tensor_map(buffers) for side in sides.copied]
        boxes = (left.free, tile.rows), (right.free, tile.columns)
        lists = _lists(boxes, product, buffers)
        block = launch(product, boxes, tile, found.limits, lists, table)
        block.leave()
        seen = views(epilogue.tensors, found.shapes, buffers)
        data = block.stages()
        turns = make_alternation_barriers(block.thread) if tile.alternates else None
        ring = make_ring(data, tile.stages, tile.stage_bytes, tile.sharers, block.thread)
        ib.evaluate(T.cuda.cta_sync())
        kernel = _WarpgroupKernel(block, tile, sides, maps, ring, turns)
        if lists is None and found.asks_ahead(device):
            kernel = _ask_ahead(kernel, found.constants)
        memory = block.sums_behind(data, tile.sum_dtype)
        rows: Side = Boxed(left, tile.rows, tile.block_rows)
        if groups is not None and table is not None:
            rows = GroupRows(groups, table.order)
        columns: Side = Boxed(right, tile.columns, tile.width).of_elements(product.sums)
        stored = (columns, rows) if tile.is_turned else (rows, columns)
        store = SumStore(*stored, epilogue, seen, memory, tile.layout, product.sums)
        block.specialise(partial(_produce, kernel), partial(_consume, kernel, store))
    return builder.get()


def _lists(boxes: tuple[Boxes, Boxes], product: Product, buffers: dict[str, Any]) -> Lists | None:
    """The chunks that tiles of these boxes walk, if one of the operands has lists of them."""
    for side, (axes, box) in zip((product.left, product.right), boxes, strict=True):
        if side.listed is not None:
            return Lists(side.listed, buffers[side.listed.source], axes[0], box[0])
    return None


def _ask_ahead(kernel: _WarpgroupKernel, constants: frozenset[str]) -> _WarpgroupKernel:
    """Ask for constants of the first tile's first chunks, one a stage; then wait for the kernel
    before this one. Without constants there is nothing of either."""
    copied, block = kernel.sides.copied, kernel.block
    ahead = [n for n, side in enumerate(copied) if side.operand.tensor.name in constants]
    if not ahead or len(ahead) == len(copied):
        return kernel
    origin = block.first_origin()
    first, count = block.own_chunks(origin)
    asked = ib.Bind(ib.min(kernel.tile.stages, count))
    with ib.If(block.thread == 0), ib.Then():
        turn = Turn(kernel.ring)
        with ib.serial(asked) as chunk:
            turn.expect(sum(side.size for side in copied))
            place = kernel.sides.place(origin, first + chunk)
            for number in ahead:
                copied[number].copy(kernel.maps[number], turn, place)
            turn.advance()
    ib.evaluate(T.ptx.griddepcontrol.wait())
    return replace(kernel, ahead=ahead, asked=asked)


def _produce(kernel: _WarpgroupKernel) -> None:
    """Write the producer's code: fill stages with the chunks of each tile."""
    block, tile, copied = kernel.block, kernel.tile, kernel.sides.copied
    with ib.If(block.thread == 0), ib.Then():
        turn = Turn(kernel.ring)
        filled = Count() if kernel.ahead else None

        def begin(place: Place) -> None:
            turn.wait_until_empty()
            turn.expect(sum(side.size for side in copied))
            for number in kernel.ahead:
                copied[number].copy(kernel.maps[number], turn, place)

        def fill(origin: Place) -> None:
            def fill_stage(chunk: Any) -> None:
                place = kernel.sides.place(origin, chunk)
                if filled is None:
                    begin(place)
                else:
                    with ib.If(filled.value >= kernel.asked), ib.Then():
                        begin(place)
                    filled.advance()
                for number, side in enumerate(copied):
                    if number not in kernel.ahead:
                        side.copy(kernel.maps[number], turn, place)
                turn.advance()

            block.for_chunks(origin, fill_stage)

        block.for_tiles(fill)
    stay(tile)


def _consume(kernel: _WarpgroupKernel, store: SumStore) -> None:
    """Write the consumers' code: multiply the stages' chunks, and store each tile's sums."""
    block, tile, ring = kernel.block, kernel.tile, kernel.ring
    shape = (tile.instructions * tile.width // 2,)
    registers = ib.alloc_buffer(shape, SUMS[tile.sum_dtype][1], scope="local")
    sums = ib.decl_buffer(shape, tile.sum_dtype, data=registers.data, scope="local")
    thread = ib.Bind(block.thread - WARPGROUP)
    start = ib.Bind(T.cuda.cvta_generic_to_shared(ring.data.ptr_to([0])))
    number = ib.Bind(thread // WARPGROUP) if tile.alternates else thread // WARPGROUP
    rows = tirx.const(0) if tile.alternates else number * (tile.instructions * 64)
    left, right = kernel.sides.left, kernel.sides.right
    descriptors = (left.descriptor(start, rows), right.descriptor(start, tirx.const(0)))
    words = None if tile.sparsity is None else Words(tile, ring.data)
    turn = Turn(ring)
    alternation = Alternation(number, kernel.turns) if tile.alternates else None

    def compute(origin: Place) -> None:
        _, count = block.own_chunks(origin)
        if alternation is not None:
            alternation.wait()
        with ib.serial(count) as chunk:
            turn.wait_until_full()
            if words is not None:
                words.load(turn, thread)
            with group():
                _multiply(kernel, registers, descriptors, turn, chunk, words)
            with ib.If(chunk > 0), ib.Then():
                wait(1)
                turn.release(turn.previous, thread % WARPGROUP == 0)
            turn.advance()
        if alternation is not None:
            alternation.pass_on(thread)
        wait(0)
        turn.release(turn.previous, thread % WARPGROUP == 0)
        if alternation is not None:
            turn.skip(count)
        if tile.splits == 1:
            _store_sums(store, tile, sums, thread, origin)
            return
        _keep_sums(store, tile, sums, thread)
        columns = tile.block_rows if tile.is_turned else tile.width
        store_totals(store, block, columns, thread, origin)

    if alternation is None:
        block.for_tiles(compute)
        return
    turn.skip(number * tile.chunks_each)
    block.for_tiles(compute, first=number, step=tile.consumers)


def _multiply(
    kernel: _WarpgroupKernel,
    registers: Any,
    descriptors: tuple[Any, Any],
    turn: Turn,
    chunk: Any,
    words: Words | None,
) -> None:
    """The instructions of one chunk, with their words where the left operand has two numbers in
    four."""
    tile, left, right = kernel.tile, kernel.sides.left, kernel.sides.right
    dtypes = [side.operand.tensor.dtype for side in (left, right)]
    turned = [side.is_transposed for side in (left, right)]
    instruction = Instruction(tile.width, dtypes, turned, tile.sum_dtype)
    moved = turn.moved
    first, second = (ib.Bind(descriptor + moved) for descriptor in descriptors)
    for step in range(LINE // STEP_BYTES):
        for number in range(tile.instructions):
            rows = number * left.instruction_rows + step * left.instruction_depth
            own = first + T.uint64(rows)
            others = second + T.uint64(right.depth_units(step * tile.lines))
            # The first product of a tile does not add to what the registers hold.
            adds = chunk > 0 if step == 0 else True
            held = number * (tile.width // 2)
            if words is None:
                instruction.add(registers, held, [own], others, adds)
            else:
                told = words.of(number, step)
                instruction.add_sparse(registers, held, own, others, adds, told)


def _store_sums(
    store: SumStore, tile: WarpgroupTile, sums: Any, thread: Any, origin: Place
) -> None:
    """Store the sums of one consumer thread.

    Args:
        store: arithmetic on the sums, and their store.
        tile: how they lie.
        sums: the thread's registers, instruction by instruction.
        thread: its number among all consumers' threads.
        origin: first values of the tile's axes.
    """
    for instruction in range(tile.instructions):
        row = ib.Bind(_first_row(tile, thread // 32, instruction))
        held = instruction * tile.width // 2
        if not tile.is_turned:
            store.write(sums, held, row, (0, tile.width), thread, origin)
            continue
        for first in range(0, tile.width, tile.together):
            neighbours = row, CORNER_ROWS
            store.write(sums, held + first // 2, first, neighbours, thread, origin)


def _keep_sums(store: SumStore, tile: WarpgroupTile, sums: Any, thread: Any) -> None:
    """Put the sums of one consumer thread into the block's part, which is the store's memory."""
    warp, lane = ib.Bind(thread // 32), ib.Bind(thread % 32)
    for instruction in range(tile.instructions):
        first = ib.Bind(_first_row(tile, warp, instruction))
        held = instruction * tile.width // 2
        if not tile.is_turned:
            _lay_down(store, sums, held, tile.width, lane, (first, 0))
            continue
        for column in range(0, tile.width, tile.together):
            _lay_down(store, sums, held + column // 2, CORNER_ROWS, lane, (column, first))


def _lay_down(
    store: SumStore, sums: Any, held: int, columns: int, lane: Any, start: tuple[Any, Any]
) -> None:
    """Put a thread's sums of ``columns`` columns into the part, from a row and a column on."""
    row, column = start
    store.lay_down(sums, held, columns, lane, lambda r, c: [row + r, column + c])


def _first_row(tile: WarpgroupTile, warp: Any, instruction: int) -> Any:
    """Number in the tile of the first of the 16 rows that a warp has of an instruction's 64."""
    group = 0 if tile.alternates else warp // 4
    return (group * tile.instructions + instruction) * 64 + warp % 4 * CORNER_ROWS
