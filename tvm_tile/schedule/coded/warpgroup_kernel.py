"""Write a product of many vectors with a matrix of codes for Hopper's tensor cores.

The matrix' rows are the instructions' rows, and their left operand is decoded in registers; the
vectors are the right operand. What :func:`write_coded_warpgroup` writes, ``tile`` running over a
block's share of the output::

    producer (a warpgroup)                      consumers (each a warpgroup, 64 rows of the matrix)
    for tile, chunk:                            for tile:
        load scales and zeros of the rows           for chunk, step of 32 elements:
        wait until stage is empty                       sums += left @ vectors[stage]   (async)
        copy boxes of codes, vectors to stage           load the next step's codes, scales
        lay scales and zeros down in it                 wait for the products of the step before
        stage is full when all is there                 other left = decoded codes of the next step
                                                    store epilogue(transposed sums)

So a step's codes are decoded while tensor cores multiply those of the step before. There are two
left operands, which take turns: a step's registers are written behind the wait for the products of
two steps ago, which read them.

Why this is free of races: the ring is that of ``wgmma/kernel.py``, with the same argument, but that
threads write into stages, too, and read codes from them. All four of the producer's warps say that
what they wrote is there, besides the copy engine, before a stage is full; and a stage is empty when
each warp of the consumers has said so, behind its last load from it and behind the wait for its
last product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.build.leaving import leaving
from tvm_tile.graph.tensor_format import Floats, Shared
from tvm_tile.graph.tile_graph import AffineIndex, Axis, Tensor
from tvm_tile.loops.decoding import meaning
from tvm_tile.schedule.chain.kernel import fence
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.coded.fragments import PAIRS, Fragments, scale_pair, scale_word
from tvm_tile.schedule.tensor_cores.instructions import PTX_NAMES
from tvm_tile.schedule.tensor_cores.limits import Limits, bound_limits, count_boxes
from tvm_tile.schedule.tensor_cores.parameters import declare, views
from tvm_tile.schedule.tensor_cores.place import Boxed, Place, raster_place
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.schedule.wgmma.kernel import dynamic_bytes
from tvm_tile.schedule.wgmma.operand import TmaChunks
from tvm_tile.schedule.wgmma.ring import Ring, Turn, make_ring
from tvm_tile.schedule.wgmma.split import Parts, store_totals, wait_for_cluster
from tvm_tile.tile.coded_warpgroup import LINE_DEPTH, STEP, CodedWarpgroupTile, chunks_each
from tvm_tile.tile.product import Operand
from tvm_tile.tile.sum_layout import CORNER_ROWS, turned_sums
from tvm_tile.tile.warpgroup_tile import LINE, ROWS, WARPGROUP

_WARP, _WARPS = 32, 4  # threads of a warp, warps of a warpgroup
_DEPTH = 16  # of an instruction
_INSTRUCTIONS = STEP // _DEPTH
_FRAGMENT = 4  # registers of an instruction's left operand
_LANES = 4  # of a warp, that share a row
_LEAST_BLOCKS = "tirx.launch_bounds_min_blocks_per_sm"
_BYTE = 8  # bits


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What the producer and the consumers need, while their code is written.

    Attributes:
        found: the product.
        fragments: how its codes are decoded.
        tile: how to compute it.
        buffers: the function's parameters by name.
        limits: how far axes go in a call.
        codes: what the copy engine brings of the matrix.
        vectors: the same of a line of the vectors.
        data: the stages, in shared memory.
        ring: their barriers.
        block: its number.
        rank: the block's number among those that share its tile.
        thread: its number in the block.
    """

    found: CodedMatch
    fragments: Fragments
    tile: CodedWarpgroupTile
    buffers: dict[str, Any]
    limits: Limits
    codes: TmaChunks
    vectors: TmaChunks
    data: Any
    ring: Ring
    block: Any
    rank: Any
    thread: Any

    @property
    def dtype(self) -> str:
        """Of what is multiplied."""
        return str(self.found.form.dtype)

    @property
    def step_dtype(self) -> str:
        """To which a scaled number is rounded first."""
        return self.found.scale[0].dtype

    @property
    def row(self) -> Axis:
        """The matrix' rows."""
        return self.found.found.product.right.free[0]

    @property
    def chunks(self) -> tuple[Any, Any]:
        """The first of the block's chunks of a tile's sum, and how many there are."""
        total = self.found.sizes.depth // self.tile.depth
        if self.tile.splits == 1:
            return tirx.const(0), total
        each = chunks_each(self.tile, self.found.sizes.depth)
        first = ib.Bind(self.rank * each)
        return first, ib.Bind(ib.min(each, total - first))

    @property
    def column_tiles(self) -> Any:
        """Tiles along the vectors that a call needs."""
        (count,) = count_boxes(
            self.found.found.product.left.free, (self.tile.width,), self.limits
        )
        return count

    def words(self, start: int) -> Any:
        """The stages' words from a byte of the first one on."""
        size = (self.tile.stages * self.tile.stage_bytes - start) // 4
        return ib.decl_buffer(
            (size,), "uint32", data=self.data.data, elem_offset=start // 4, scope="shared.dyn"
        )

    def for_tiles(self, body: Callable[[Place], None]) -> None:
        """Run ``body`` for the tiles of a block, given the first row and vector of each."""
        tile, columns = self.tile, self.column_tiles
        if tile.splits > 1:
            body(self._origin(self.block // tile.splits, columns))
            return
        tiles = tile.counts[0] * columns
        with ib.serial((tiles - self.block + tile.grid - 1) // tile.grid) as turn:
            body(self._origin(ib.Bind(self.block + turn * tile.grid), columns))

    def _origin(self, index: Any, columns: Any) -> Place:
        row, column, _ = raster_place(index, self.tile.counts[0], columns, self.tile.raster)
        (vector,) = self.found.found.product.left.free
        return {
            self.row.name: ib.Bind(row * self.tile.block_rows),
            vector.name: ib.Bind(column * self.tile.width),
        }


def write_coded_warpgroup(
    found: CodedMatch, fragments: Fragments, tile: CodedWarpgroupTile
) -> tirx.PrimFunc:
    """The function of a product with a matrix of codes, and of what follows it."""
    match, product = found.found, found.found.product
    codes = _codes(found, tile)
    vectors = TmaChunks(product.left, (tile.width,), 0, product.depth, LINE_DEPTH)
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name("main")
        ib.func_attr({"tirx.noalias": True})
        buffers = declare(found.params)
        maps = [side.tensor_map(buffers) for side in (codes, vectors)]
        ib.device_entry()
        # Its use makes clusters of neighbouring blocks.
        rank = ib.cta_id_in_cluster([tile.splits]) if tile.splits > 1 else tirx.const(0)
        block, thread = ib.cta_id([tile.grid]), ib.thread_id([tile.block_size])
        limits = bound_limits(match.limits)
        stages, sums = tile.stages * tile.stage_bytes, math.prod(tile.store_shape) * 4
        size = dynamic_bytes(stages, sums)
        data = ib.alloc_buffer((size,), "uint8", scope="shared.dyn", align=1024)
        ring = make_ring(tile.stages, tile.consumers * _WARPS, thread, fillers=1 + _WARPS)
        ib.evaluate(T.cuda.cta_sync())
        kernel = _Kernel(
            found, fragments, tile, buffers, limits, codes, vectors, data, ring, block, rank, thread
        )
        if limits:
            number = block // tile.splits if tile.splits > 1 else block
            ib.evaluate(leaving(number < tile.counts[0] * kernel.column_tiles))
        memory = ib.decl_buffer(
            tile.store_shape, "float32", data=data.data, elem_offset=stages // 4, scope="shared.dyn"
        )
        rows = Boxed(product.left, (tile.width,), tile.width)
        columns = Boxed(product.right, (tile.block_rows,), tile.block_rows)
        seen = views(match.epilogue.tensors, match.shapes, buffers)
        layout = turned_sums(tile.together)
        store = SumStore(rows, columns, match.epilogue, seen, memory, layout)
        with ib.attr({_LEAST_BLOCKS: tile.blocks}), ib.If(thread < WARPGROUP):
            with ib.Then():
                _produce(kernel, maps)
            with ib.Else():
                _Consumer(kernel, store).run()
    return builder.get()


def _codes(found: CodedMatch, tile: CodedWarpgroupTile) -> TmaChunks:
    """Boxes of the matrix' codes: rows of bytes, as they lie."""
    sizes, row = found.sizes, found.found.product.right.free[0]
    width = sizes.depth * sizes.bits // _BYTE
    bytes_ = Axis("bytes", width, is_reduce=True)
    tensor = Tensor(found.packed, (sizes.rows, width), "uint8")
    indices = AffineIndex(((row.name, 1),)), AffineIndex(((bytes_.name, 1),))
    size = sizes.rows * width
    operand = Operand(tensor, indices, (row,), True, (width, 1), size, size)
    box = (tile.block_rows,)
    return TmaChunks(operand, box, tile.codes_start, bytes_, tile.row_bytes, is_swizzled=False)


def _produce(kernel: _Kernel, maps: Sequence[Any]) -> None:
    tile, ring = kernel.tile, kernel.ring
    if tile.division is not None:
        ib.evaluate(T.ptx["setmaxnreg.dec.sync.aligned.u32"](tile.division[0]))
    turn = Turn(tile.stages)
    brought = tile.units * tile.block_rows * tile.shared_words
    held = ib.alloc_buffer((-(-brought // WARPGROUP),), "uint32", scope="local")
    memory = kernel.words(tile.shared_start)

    def fill(origin: Place) -> None:
        first, count = kernel.chunks
        with ib.serial(count) as number:
            chunk = ib.Bind(first + number)
            _for_shared(kernel, lambda turn, item: ib.buffer_store(
                held, _shared_word(kernel, item, origin, chunk), [turn]))  # fmt: skip
            full = ring.full.ptr_to([turn.stage])
            empty = ring.empty.ptr_to([turn.stage])
            ib.evaluate(T.cuda.mbarrier_wait(empty, turn.parity ^ 1))
            with ib.If(kernel.thread == 0), ib.Then():
                _copy(kernel, maps, full, turn.stage, {**origin, "chunk": chunk})
            start = turn.stage * (tile.stage_bytes // 4)
            _for_shared(
                kernel, lambda turn, item: ib.buffer_store(memory, held[turn], [start + item])
            )
            _arrive(kernel, full)
            turn.advance()

    kernel.for_tiles(fill)
    if tile.splits > 1:
        wait_for_cluster()
        wait_for_cluster()


def _arrive(kernel: _Kernel, barrier: Any) -> None:
    """Say, for a warp, that all of its threads are so far."""
    ib.evaluate(T.cuda.warp_sync())
    with ib.If(kernel.thread % _WARP == 0), ib.Then():
        ib.evaluate(T.ptx.mbarrier.arrive.shared.b64(barrier, T.uint32(1)))


def _copy(kernel: _Kernel, maps: Sequence[Any], full: Any, stage: Any, place: Place) -> None:
    """Ask for a chunk of codes, and of the vectors line by line."""
    tile, depth = kernel.tile, kernel.found.found.product.depth
    size = kernel.codes.size + tile.lines * kernel.vectors.size
    ib.evaluate(T.ptx.mbarrier.arrive.expect_tx.shared.b64(full, T.uint32(size)))

    def into(start: int) -> Callable[[int], Any]:
        return lambda offset: kernel.data.ptr_to([stage * tile.stage_bytes + start + offset])

    at = {**place, kernel.codes.depth.name: place["chunk"] * tile.row_bytes}
    kernel.codes.copy(maps[0], into(0), full, at)
    for line in range(tile.lines):
        at = {**place, depth.name: place["chunk"] * tile.depth + line * LINE_DEPTH}
        kernel.vectors.copy(maps[1], into(line * tile.width * LINE), full, at)


def _for_shared(kernel: _Kernel, body: Callable[[int, Any], None]) -> None:
    """Run ``body`` for a producer thread's shared words of a chunk: their turns and numbers."""
    tile = kernel.tile
    count = tile.units * tile.block_rows * tile.shared_words
    for turn in range(-(-count // WARPGROUP)):
        item = ib.Bind(kernel.thread + turn * WARPGROUP)
        with when([item < count] if (turn + 1) * WARPGROUP > count else []):
            body(turn, item)


def _shared_word(kernel: _Kernel, item: Any, origin: Place, chunk: Any) -> Any:
    """A word of a chunk: of a unit of a row its scale, or what is subtracted."""
    tile, form = kernel.tile, kernel.found.form
    row = ib.Bind(origin[kernel.row.name] + item % tile.block_rows)
    which = ib.Bind(item // tile.block_rows)
    element = ib.Bind(chunk * tile.depth + which % tile.units * tile.unit)
    scale = _value(kernel, kernel.found.scale, row, element, "float32")
    word = scale_word(form.dtype, kernel.step_dtype, scale)
    if kernel.found.zero is None:
        return word
    zero = kernel.fragments.kept(_value(kernel, kernel.found.zero, row, element, "int32"))
    return tirx.if_then_else(which < tile.units, word, zero)


def _value(kernel: _Kernel, shared: tuple[Shared, str], row: Any, element: Any, dtype: str) -> Any:
    """What the box of a row has for an element of the sum; of rows behind the last, the last's."""
    (own, name), sizes = shared, kernel.found.sizes
    pairs = zip((ib.min(row, sizes.rows - 1), element), own.box, strict=True)
    extents = (sizes.rows, sizes.depth)
    place = [
        tirx.const(0) if side >= extent else value if side == 1 else value // side
        for (value, side), extent in zip(pairs, extents, strict=True)
    ]
    value = kernel.buffers[name][tuple(place)]
    if isinstance(own.stored, Floats):
        return meaning(own.stored, tirx.Cast("int32", value))
    return tirx.Cast(dtype, value)


class _Consumer:
    """One thread of a consumer warpgroup, while its code is written."""

    def __init__(self, kernel: _Kernel, store: SumStore) -> None:
        tile = kernel.tile
        if tile.division is not None:
            ib.evaluate(T.ptx["setmaxnreg.inc.sync.aligned.u32"](tile.division[1]))
        self._kernel, self._tile, self._store = kernel, tile, store
        self._turn = Turn(tile.stages)
        self._thread = ib.Bind(kernel.thread - WARPGROUP)
        lane = ib.Bind(self._thread % _WARP)
        self._warp_row = ib.Bind(self._thread // _WARP * CORNER_ROWS)  # in the block
        self._row = ib.Bind(self._warp_row + lane // _LANES)  # the first of the thread's two
        self._chosen = kernel.fragments.chosen(ib.Bind(lane % _LANES))
        start = ib.Bind(T.cuda.cvta_generic_to_shared(kernel.data.ptr_to([0])))
        self._right = kernel.vectors.descriptor(start, tirx.const(0))
        self._sums = ib.alloc_buffer((tile.width // 2,), "float32", scope="local")
        bits = kernel.fragments.bits
        count = _INSTRUCTIONS * _FRAGMENT
        self._lefts = [ib.alloc_buffer((count,), "uint32", scope="local") for _ in range(2)]
        self._words = ib.alloc_buffer((2 * bits,), "uint32", scope="local")
        self._shared = ib.alloc_buffer((2 * tile.shared_words,), "uint32", scope="local")
        self._codes = kernel.words(tile.codes_start)
        self._boxes = kernel.words(tile.shared_start)

    def run(self) -> None:
        """Compute and store the block's tiles."""
        self._kernel.for_tiles(self._compute)

    def _compute(self, origin: Place) -> None:
        steps, turn = self._tile.depth // STEP, self._turn
        _, count = self._kernel.chunks
        self._wait()
        self._load(0)
        self._decode(0)
        with ib.serial(count) as chunk:
            is_last = chunk + 1 == count
            for step in range(steps):
                self._multiply(step, chunk)
                if step < steps - 1:
                    self._load(step + 1)
                    _wait_for_products(1)
                    if step == 0:
                        with ib.If(chunk > 0), ib.Then():
                            self._release(turn.previous)
                    self._decode(step + 1)
            turn.advance()
            with ib.If(tirx.Not(is_last)), ib.Then():
                self._wait()
                self._load(0)
                _wait_for_products(1)
                self._decode(0)
        _wait_for_products(0)
        fence(self._sums, self._tile.width // 2)
        self._release(turn.previous)
        self._put(origin)

    def _wait(self) -> None:
        """Wait until the stage whose turn it is is full."""
        full = self._kernel.ring.full.ptr_to([self._turn.stage])
        ib.evaluate(T.cuda.mbarrier_wait(full, self._turn.parity))

    def _release(self, stage: Any) -> None:
        """Say that this warp reads a stage no more."""
        _arrive(self._kernel, self._kernel.ring.empty.ptr_to([stage]))

    def _load(self, step: int) -> None:
        """Load a step's codes of both rows, and what they share, where that is another's."""
        tile, bits = self._tile, self._kernel.fragments.bits
        stage = self._turn.stage * (tile.stage_bytes // 4)
        each = min(4, bits)  # words of a load
        for half in range(2):
            row = self._row + half * (CORNER_ROWS // 2)
            # In loads, so that TVM sees that they begin where they may.
            begin = ib.Bind(self._turn.stage * (tile.stage_bytes // 4 // each) + row * (tile.row_bytes // 4 // each))
            for word in range(0, bits, each):
                with ib.vectorized(each) as v:
                    found = self._codes[(begin + (step * bits + word) // each) * each + v]
                    ib.buffer_store(self._words, found, [half * bits + word + v])
            if step * STEP % tile.unit:
                continue
            for which in range(tile.shared_words):
                place = (which * tile.units + step * STEP // tile.unit) * tile.block_rows + row
                found = self._boxes[stage + place]
                ib.buffer_store(self._shared, found, [which * 2 + half])

    def _decode(self, step: int) -> None:
        """Make the step's left operand of the codes that were loaded."""
        kernel, bits = self._kernel, self._kernel.fragments.bits
        left, each = self._lefts[step % 2], self._kernel.fragments.bits // _INSTRUCTIONS
        for half in range(2):
            zero = self._shared[2 + half] if self._tile.shared_words > 1 else None
            for number in range(_INSTRUCTIONS):
                first = half * bits + number * each
                words = [self._words[first + word] for word in range(each)]
                # Of a fragment: both rows' first pairs, and both rows' second ones.
                places = [number * _FRAGMENT + half + 2 * pair for pair in range(PAIRS)]
                results = [left[place] for place in places]
                kernel.fragments.decode(words, self._chosen, results, zero)
                for result in results:
                    scale_pair(kernel.dtype, kernel.step_dtype, result, self._shared[half])

    def _multiply(self, step: int, chunk: Any) -> None:
        """Begin the products of a step, as a group."""
        kernel, tile, left = self._kernel, self._tile, self._lefts[step % 2]
        dtype = PTX_NAMES[kernel.dtype]
        name = f"wgmma.mma_async.sync.aligned.m{ROWS}n{tile.width}k{_DEPTH}.f32.{dtype}.{dtype}"
        moved = tirx.Cast("uint64", self._turn.stage * (tile.stage_bytes // 16))
        right = ib.Bind(self._right + moved)
        sums = [self._sums[i] for i in range(tile.width // 2)]
        fence(self._sums, tile.width // 2)
        fence(left, _INSTRUCTIONS * _FRAGMENT)
        ib.evaluate(T.ptx.wgmma.fence.sync.aligned())
        for number in range(_INSTRUCTIONS):
            line, within = divmod(step * _INSTRUCTIONS + number, LINE_DEPTH // _DEPTH)
            begin = line * tile.width * LINE // 16 + within * kernel.vectors.instruction_depth
            own = [left[number * _FRAGMENT + i] for i in range(_FRAGMENT)]
            # The first product of a tile does not add to what the registers hold.
            is_first = step == 0 and number == 0
            adds = T.ptx.pred(tirx.Cast("int32", chunk > 0) if is_first else 1)
            ib.evaluate(T.ptx[name](*sums, *own, right + T.uint64(begin), adds, 1, 1, 0))
        ib.evaluate(T.ptx.wgmma.commit_group.sync.aligned())

    def _put(self, origin: Place) -> None:
        """Store the sums, by vectors: rows of the matrix are neighbours in the output."""
        tile, store = self._tile, self._store
        together = tile.together
        registers = together // 2
        if tile.splits == 1:
            for first in range(0, tile.width, together):
                columns = (self._warp_row, CORNER_ROWS)
                held = first // together * registers
                store.write(self._sums, held, first, columns, self._thread, origin)
            return
        lane = ib.Bind(self._thread % _WARP)
        for first in range(0, tile.width, together):

            def at(row: Any, column: Any, first: int = first) -> list[Any]:
                return [first + row, self._warp_row + column]

            held = first // together * registers
            store.lay_down(self._sums, held, CORNER_ROWS, lane, at)
        wait_for_cluster()
        threads = tile.consumers * WARPGROUP
        shape = (tile.width, tile.block_rows)
        parts = Parts(shape, tile.store_shape, "float32", tile.splits, threads)
        store_totals(store, parts, self._kernel.rank, self._thread, origin)
        wait_for_cluster()


def _wait_for_products(running: int) -> None:
    """Wait until at most so many groups of products run."""
    ib.evaluate(T.ptx.wgmma.wait_group.sync.aligned(running))
