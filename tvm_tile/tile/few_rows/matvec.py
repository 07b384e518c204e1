"""Tiles for products of a long operand, read once, with one vector or a few.

``y[m, n] = sum over k of x[m, k] * w[n, k]`` with few ``m`` lasts as long as reading ``w``, if
enough loads are in flight. So there is nothing to stage: Roller's plain policy (OSDI'22, section
3.2), a tile as wide as a memory transaction, with its threads along what is contiguous in ``w``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.cost import SECTOR, arithmetic_slots, widening
from tvm_tile.tile.few_rows.few_vectors import (
    TREE_MOVES,
    Matvec,
    Prologue,
    extent_of,
    load_trips,
    vector_along,
)
from tvm_tile.tile.few_rows.matvec_tile import MatvecTile
from tvm_tile.tile.powers import powers_of_two
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.residency import given_blocks, given_registers
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work

SUMS_IN_FLIGHT = 16  # of a thread that adds up what groups have left in shared memory
_MOST_SUMS = 64  # of a thread, in registers
_MOST_LOADS = 8  # of a thread in a step
_LOADS_IN_FLIGHT = 4  # of these: a compiler may wait with others, to save registers
_BLOCKS = (2, 3)  # of a multiprocessor, of kernels whose blocks stay
_FEWEST_THREADS = 256  # of these blocks
_WORD = 4  # bytes
_WIDEST = 4  # words of a store
_REGISTER_LIMIT = 128  # above it too few threads are resident to keep memory busy


def construct_matvec(
    operator: Operator,
    product: Matvec,
    device: Device,
    count: int | None = None,
    scene: Scene = AMID,
    *,
    may_overhang: bool = True,
) -> tuple[MatvecTile, ...]:
    """Tiles for ``product``, best first; none where neither its sum nor its rows are contiguous.

    Args:
        operator: the product as an operator.
        product: the parts of its axes.
        device: the device that it is made for.
        count: the most tiles that are wanted; ``None``: all.
        scene: where the kernel runs.
        may_overhang: whether steps may go on behind the end of the sum.
    """
    strides = product.streamed.strides
    if strides[operator.axes[product.summed].name] == 1:
        tiles = [*_row_tiles(operator, product, device), *_ring_tiles(operator, product, device)]
    else:
        places = [p for p in product.rows if strides[operator.axes[p].name] == 1]
        tiles = [t for place in places for t in _column_tiles(operator, product, place, device)]
    fitting = (tile for tile in tiles if may_overhang or not tile.overhangs)
    told = (_told(tile, operator, product, device) for tile in fitting)
    return ranked((tile for tile in told if tile is not None), device, scene, count)


def _row_tiles(operator: Operator, product: Matvec, device: Device) -> Iterator[MatvecTile]:
    """Lanes along the sum, each with some rows, so that it reuses what it holds of the vectors."""
    depth, place = operator.axes[product.summed].extent, product.rows[-1]
    rows = extent_of(operator, product.rows + product.batch)
    vectors, parts = extent_of(operator, product.vectors), extent_of(operator, product.parts)
    vector = vector_along(product.streamed, operator.axes[product.summed], operator)
    shared = _made_bytes(product)
    shapes = itertools.product(
        powers_of_two(4, 256), powers_of_two(1, 8), powers_of_two(1, 8), powers_of_two(64, 256)
    )
    for lanes, run, unroll, threads in shapes:
        chunk = lanes * vector * unroll
        if chunk >= 2 * depth or lanes > threads or operator.axes[place].extent % run:
            continue
        if parts * run * unroll > _MOST_LOADS or parts * run * vectors > _MOST_SUMS // 2:
            continue
        groups, steps = threads // lanes, -(-depth // chunk)
        grid = -(-rows // (groups * run))
        overhangs = depth % chunk > 0
        yield MatvecTile(
            *("row", place, lanes, groups, run, vector, unroll, steps, overhangs, grid, parts),
            shared_bytes=shared,
        )


def _ring_tiles(operator: Operator, product: Matvec, device: Device) -> Iterator[MatvecTile]:
    """Tiles whose blocks stay, and have some steps on their way through shared memory.

    Blocks take at most half of a multiprocessor's memory together, so that as many of the kernel
    that follows find room beside them, and ask for their first steps. They are several to a
    multiprocessor, as those of the kernel before leave one after the other: of large blocks two
    would begin where one ends early, and none where one ends late. Only where there are no rows for
    several do blocks hold more, and those that go on beyond the steps that they hold: what they
    have asked for when the kernel before ends is more than the one behind would (on an H200 the
    steps of four decoders took 1 to 10 % less so; rings of whole rows gained nothing by it).
    """
    depth, place = operator.axes[product.summed].extent, product.rows[-1]
    size, parts = product.streamed.tensor.element_size, extent_of(operator, product.parts)
    vector = vector_along(product.streamed, operator.axes[product.summed], operator)
    if not device.has_asynchronous_copies or vector * size != VECTOR_BYTES or product.batch:
        return
    rows, vectors = extent_of(operator, product.rows), extent_of(operator, product.vectors)
    room = device.shared_memory_per_multi_processor
    shapes = itertools.product(
        *(powers_of_two(32, 256), powers_of_two(1, 4), powers_of_two(_FEWEST_THREADS, 512)),
        *(powers_of_two(1, 8), _BLOCKS),
    )
    for lanes, run, threads, stages, blocks in shapes:
        groups, most = threads // lanes, _MOST_LOADS // (parts * run)
        whole = [n for n in powers_of_two(1, max(1, most)) if depth % (lanes * vector * n) == 0]
        if not whole or not groups or operator.axes[place].extent % run:
            continue
        if not most or parts * run * vectors > _MOST_SUMS // 2:
            continue
        chunk, unroll = lanes * vector * whole[-1], whole[-1]
        sets, steps = -(-rows // (run * groups)), depth // chunk
        turns = -(-sets // (blocks * device.multi_processor_count))
        grid = -(-sets // turns)
        overhangs = grid * turns * groups * run > rows
        if stages > 1 and stages // 2 >= steps * turns:
            continue
        ring = stages * parts * run * unroll * threads * VECTOR_BYTES
        shared = ring + _staged(operator, product).shared_bytes
        most_blocks = -(-rows // (_FEWEST_THREADS // lanes))
        together = min(blocks, -(-most_blocks // device.multi_processor_count))
        is_deep = stages < steps * turns and grid > device.multi_processor_count
        if together * (shared + device.reserved_shared_memory) > (room if is_deep else room // 2):
            continue
        yield MatvecTile(
            *("row", place, lanes, groups, run, vector, unroll, steps, overhangs, grid, parts),
            stages=stages,
            turns=turns,
            shared_bytes=shared,
        )


def _column_tiles(
    operator: Operator, product: Matvec, place: int, device: Device
) -> Iterator[MatvecTile]:
    """Lanes along the rows, a vector each; groups of lanes share the sum."""
    depth, length = operator.axes[product.summed].extent, operator.axes[place].extent
    others = extent_of(operator, product.rows + product.batch) // length
    parts = extent_of(operator, product.parts)
    sums = extent_of(operator, product.vectors) * parts
    widest = vector_along(product.streamed, operator.axes[place], operator)
    shapes = itertools.product(
        powers_of_two(1, widest), powers_of_two(1, 32), powers_of_two(1, 8), powers_of_two(2, 128)
    )
    for vector, lanes, unroll, groups in shapes:
        chunk, width = groups * unroll, lanes * vector
        if chunk >= 2 * depth or width > length or vector * sums > _MOST_SUMS:
            continue
        if parts * unroll > _MOST_LOADS:
            continue
        if not 2 * device.warp_size <= lanes * groups <= device.max_threads_per_block:
            continue
        steps, grid = -(-depth // chunk), -(-length // width) * others
        shared = lanes * groups * vector * sums * operator.write.tensor.element_size
        shared += _made_bytes(product)
        overhangs = depth % chunk > 0
        yield MatvecTile(
            *("column", place, lanes, groups, vector, vector, unroll, steps, overhangs, grid),
            parts=parts,
            shared_bytes=shared,
        )


def _made_bytes(product: Matvec) -> int:
    """Bytes of shared memory of the short operand, if blocks compute it."""
    return product.prologue.shared_bytes if product.prologue else 0


def _staged(operator: Operator, product: Matvec) -> Prologue:
    """What makes the short operand of a ring's steps: the product's own, or a plain copy."""
    if product.prologue is not None:
        return product.prologue
    operand = product.reused
    count = operand.elements(operator.extents)
    size = count * operand.tensor.element_size
    return Prologue(1, 0, 0, size, count, count, size)


@dataclass(frozen=True, slots=True)
class _Step:
    """Loads and arithmetic of one thread in a step, and their cost.

    Attributes:
        streamed: bytes of the long operand.
        read: bytes of both.
        operations: arithmetic that is issued.
        short_loads: loads of the short operand.
        short_bytes: bytes of each of these.
        registers: registers of the whole thread.
    """

    streamed: int
    read: int
    operations: float
    short_loads: float
    short_bytes: int
    registers: int

    @classmethod
    def of(cls, tile: MatvecTile, operator: Operator, product: Matvec, device: Device) -> _Step:
        """The step of ``tile``."""
        use, arithmetic = register_use(device), arithmetic_slots(device)
        vectors = extent_of(operator, product.vectors)
        size, other = product.streamed.tensor.element_size, product.reused.tensor.element_size
        points = tile.loads * tile.vector
        length = tile.vector if tile.form == "row" else tile.unroll
        places = vectors * tile.unroll * (tile.vector if tile.form == "row" else 1)
        summed = operator.axes[product.summed]
        width = math.gcd(vector_along(product.reused, summed, operator), length)
        # Narrower types are widened to registers of 32 bits.
        widened = points * widening(product.streamed.tensor)
        widened += places * widening(product.reused.tensor)
        filled = points * size // 4 if tile.overhangs else 0
        flying = tile.loads if use.is_eager else min(tile.loads, _LOADS_IN_FLIGHT)
        held = flying * tile.vector * size + vectors * length * other
        return cls(
            streamed=points * size,
            read=points * size + places * other,
            operations=points * vectors * arithmetic + widened + filled,
            short_loads=places / width,
            short_bytes=width * other,
            registers=use.beside_loads + vectors * tile.run * tile.parts + held // 4,
        )


def _told(
    tile: MatvecTile, operator: Operator, product: Matvec, device: Device
) -> MatvecTile | None:
    """The tile with its registers and its work; ``None`` where too few threads have as many."""
    tile = replace(tile, registers=_Step.of(tile, operator, product, device).registers)
    if given_registers(device, tile.registers) > _REGISTER_LIMIT:
        return None
    return replace(tile, work=_work(tile, operator, product, device))


def _work(tile: MatvecTile, operator: Operator, product: Matvec, device: Device) -> Work:
    """What the kernel of a tile does."""
    made, written = product.prologue, operator.write.tensor.size
    read = operator.traffic - written
    if made:
        read += made.read_bytes - product.reused.tensor.size
    if tile.stages:
        made = _staged(operator, product)
    closing = _row_closing if tile.form == "row" else _column_closing
    parts = (_step_part(tile, operator, product, device), closing(tile, operator, product, device))
    return Work(
        blocks=tile.grid,
        resident=given_blocks(device, tile),
        warps=-(-tile.block_size // device.warp_size),
        parts=(made.part(tile.block_size, device), *parts) if made else parts,
        read=read,
        # Products side by side end in one output.
        written=written / tile.parts + (made.stored_bytes if made else 0),
        asked=tile.grid * tile.block_size * tile.stages * tile.loads * VECTOR_BYTES,
    )


def _step_part(tile: MatvecTile, operator: Operator, product: Matvec, device: Device) -> Part:
    """The steps of a block along the sum.

    A block asks once for the vectors: its warps read them again in the first-level cache, or in
    shared memory, at the same cost, and waiting for them counts as an exchange.
    """
    step, warp = _Step.of(tile, operator, product, device), device.warp_size
    warps, depth = -(-tile.block_size // warp), operator.axes[product.summed].extent
    size, other = product.streamed.tensor.element_size, product.reused.tensor.element_size
    vectors = extent_of(operator, product.vectors)
    rows = extent_of(operator, product.rows + product.batch)
    if tile.form == "row":
        run, pitch, places = depth, depth, min(tile.lanes, warp)
        heads = max(1.0, tile.groups * tile.run / extent_of(operator, product.rows))
    else:
        run, pitch = tile.lanes * tile.vector, operator.axes[tile.axis].extent
        places, heads = max(1, warp // tile.lanes), 1.0
    waste = _sectors(run * size, pitch * size) / (run * size)
    streamed = rows * depth * tile.parts * size * waste / tile.grid
    reused = 0 if product.prologue or tile.stages else vectors * depth * other * heads
    loads = tile.loads + step.short_loads
    # The first-level cache answers a load line by line; lanes of other runs are on other lines.
    lines = max(warp / min(tile.lanes, warp), warp * tile.vector * size / WAVEFRONT)
    reached = places * step.short_bytes  # by a warp's load of the vectors
    # Between loads of the long operand, a thread waits for some of the vectors alone.
    trips, long = (
        load_trips(math.ceil(max(count, size / _WORD)), tile.steps, device)
        for count, size in ((loads, step.read), (tile.loads, step.streamed))
    )
    long = min(trips, max(long, tile.unroll))
    repeats = tile.steps * tile.turns
    short = step.short_loads * max(1, reached / WAVEFRONT)
    if tile.stages:  # vectors go through shared memory
        return Part(
            repeats=repeats,
            fills=streamed / repeats,
            operations=warps * step.operations,
            moves=warps * (loads + tile.loads),
            wavefronts=warps * (short + 2 * tile.loads * lines),
            loads=1,
            exchanges=1,
            ahead=tile.stages,
        )
    return Part(
        repeats=repeats,
        fills=(streamed + reused) / repeats,
        operations=warps * step.operations,
        moves=warps * loads,
        wavefronts=warps * (short + tile.loads * lines),
        loads=long,
        exchanges=trips - long,
    )


def _sectors(run: int, pitch: int) -> int:
    """Bytes of the sectors that a run of bytes lies in, on the average of runs a pitch apart."""
    return run + SECTOR - math.gcd(run, pitch, SECTOR)


def _stored(outputs: int, operator: Operator, product: Matvec) -> int:
    """Bytes of the sectors of a block's neighbouring outputs, for all vectors."""
    size = outputs * operator.write.tensor.element_size
    return extent_of(operator, product.vectors) * _sectors(size, size)


def _row_closing(tile: MatvecTile, operator: Operator, product: Matvec, device: Device) -> Part:
    """The trees of shuffles in which lanes add up their sums, and the store.

    Where a row has lanes in several warps, these add up one sum behind the other.
    """
    warps, levels = -(-tile.block_size // device.warp_size), math.log2(tile.lanes)
    sums = extent_of(operator, product.vectors) * tile.run * tile.parts
    crossing = sums if tile.lanes > device.warp_size else 0
    moves = warps * TREE_MOVES * crossing
    return Part(
        repeats=tile.turns,
        stores=_stored(tile.groups * tile.run, operator, product),
        operations=warps * sums * (2 * levels + 1),  # shuffles, additions, and the way back
        moves=moves + warps * sums / tile.parts,
        wavefronts=moves,
        barriers=2 * crossing,
        exchanges=crossing * (levels + 2) if crossing else levels + 1,
    )


def _column_closing(tile: MatvecTile, operator: Operator, product: Matvec, device: Device) -> Part:
    """Groups lay down their sums in shared memory; a thread an output adds them up, and stores."""
    warp, vectors = device.warp_size, extent_of(operator, product.vectors)
    warps, width = -(-tile.block_size // warp), tile.lanes * tile.vector
    sums = vectors * tile.parts  # of a column
    wide = min(_WIDEST, tile.vector)
    apart = tile.vector // wide
    # Of the threads that store at once, some meet in a bank: those of other groups, or all of few.
    conflicts = apart * math.gcd(max(1, warp // width), sums)
    laid = warps * sums * apart
    turns = -(-vectors * width // tile.block_size)
    active = -(-min(tile.block_size, vectors * width) // warp)
    added = turns * active * tile.parts * tile.groups
    return Part(
        stores=_stored(width, operator, product),
        operations=added,
        moves=laid + added + turns * active,
        wavefronts=laid * wide * conflicts + added,
        barriers=1 + (product.prologue is not None),
        exchanges=1 + turns * tile.parts * -(-tile.groups // SUMS_IN_FLIGHT),
    )
