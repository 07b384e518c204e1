"""Write attention of few queries as one kernel.

The code of one thread, a ``lane`` of a worker, for the rows of a group::

    seen = tiles of the worker, any of whose keys any row may see
    ask for the keys and the values of the first of these
    wait for the kernel before, which made the queries;  let the one behind begin
    queries and new rows to shared memory;               all threads of the block meet
    for tile in seen:
        wait for its keys;  put new ones over them
        score[row] = query[row] @ key[lane]
        weight[row] = softmax so far;  sums[row] *= what its maximum grew by;  weights to others
        wait for its values;  put new ones over them
        for key in own: sums[row, own columns] += weight[row, key] * value[key, own columns]
        ask for the next tile but ``stages``
    all threads meet;  sums where the stages were;       all threads meet
    add up the workers' sums, and the blocks' (``merge.py``);  store
    new rows of the worker's tiles to global memory

A tile that no row may see anything of is not read, whatever the mask is, so of a cache that is
filled to a prefix only the rows in use are. A row that sees no key at all becomes what its sum of
weights, zero, makes of it: zeros of a softmax that says so, else no number. A row with a sink
begins with that as its maximum; one of all threads that share the row has its weight in a sum.

Why this is free of races. Queries and new rows are written before all threads of the block meet,
and read behind that. Of a row that is appended to a cache global memory is read by the one worker
that has its tile, into a stage, and written by it behind its walk (``append.py``); no other group
has the row. A worker's stages and weights are its own. To ask for a tile is to overwrite what
the worker's threads have read before the ``sync`` at the end of a step; what is asked for is read
behind the wait of those who asked and the ``sync`` that follows. Weights are written behind the
``sync`` at the end of the step before, and read behind the one that follows the wait for values.
Sums overwrite stages behind a meeting of all threads, behind which nobody reads stages. What a
block has added up it puts into memory of the cluster's blocks that they use for nothing else, and
each reads its own when all has come (:class:`~tvm_tile.schedule.threads.ClusterLetters`).

Numbers are added in an order that depends on nothing but the tile: every run gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.schedule.decode.append import Appending
from tvm_tile.schedule.decode.copies import RowCopies
from tvm_tile.schedule.decode.core_products import CoreProducts
from tvm_tile.schedule.decode.find import Cache, DecodeMatch
from tvm_tile.schedule.decode.matrix_products import MatrixProducts
from tvm_tile.schedule.decode.merge import Merging, begin_row, power
from tvm_tile.schedule.decode.places import GroupPlaces, held
from tvm_tile.schedule.decode.visible import visible_keys
from tvm_tile.schedule.decode.worker import BlockWorkers, Buffers, WarpWorkers, Workers, registers
from tvm_tile.schedule.tensor_cores.parameters import function
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.threads import Numbers
from tvm_tile.tile.attention.decode_tile import Cached, DecodeTile, rooms_of


class Products(Protocol):
    """Both products of a worker with tiles of keys and of values.

    Attributes:
        scores: registers for the scores of the thread's key and all rows, then for its weights.
    """

    scores: Any

    def begin(self) -> None:
        """Write what sets the sums to zero."""
        ...

    def score(self, stage: Any) -> None:
        """Write the scores of a tile's keys, which begin at an element of the keys' stages."""
        ...

    def weigh(self, scale: Any) -> None:
        """Write the hand-over of weights, which stand where scores did; sums are scaled by rows."""
        ...

    def add(self, stage: Any) -> None:
        """Write the sums of what weights make of a tile's values, as given to :meth:`score`."""
        ...

    def lay_down(self) -> None:
        """Write the stores of the sums to shared memory."""
        ...


def write_decode(device: Device, found: DecodeMatch, tile: DecodeTile) -> tirx.PrimFunc:
    """The function of attention of few queries."""
    is_warp = device.kernel_language == "cuda"
    scope = device.memory(MemoryLevel.SHARED).scope
    threads: Workers = WarpWorkers(scope) if is_warp else BlockWorkers(device, tile)
    with (
        function(found.params, threads.function) as (builder, buffers),
        threads.launch(tile.grid, tile.block_size, tile.splits) as numbers,
    ):
        rows = tile.decode.keys, tile.decode.values
        waits = not device.has_asynchronous_copies or not all(own.is_asynchronous for own in rows)
        starts_early = device.supports_dependent_launches
        buffers = {name: held(buffer) for name, buffer in buffers.items()}
        _Worker(found, tile, threads, buffers, numbers, waits, starts_early=starts_early).run()
    return builder.get().without_attr("global_symbol")


class _Worker:
    """One thread's part, while its code is written."""

    def __init__(
        self,
        found: DecodeMatch,
        tile: DecodeTile,
        threads: Workers,
        buffers: Mapping[str, Any],
        numbers: Numbers,
        waits: bool,
        *,
        starts_early: bool,
    ) -> None:
        self._found, self._tile, self._threads, self._buffers = found, tile, threads, buffers
        self._group, self._rank, self._thread = numbers
        self._waits, self._starts_early = waits, starts_early
        self._rows = rows = tile.decode.rows
        self._lane = ib.Bind(self._thread % tile.lanes)
        self._number = ib.Bind(self._thread // tile.lanes)
        walk, then = rooms_of(tile)
        self._memory = Buffers.of(tile, threads.allocate(walk, then))
        self._places = GroupPlaces(found, self._group)
        who = self._rank, self._thread
        self._merging = Merging(found, tile, self._memory, self._places, buffers, who)
        own = tile, self._memory, (self._number, self._lane)
        self._products: Products = (
            MatrixProducts(*own, threads.sync) if tile.on_matrices else CoreProducts(*own)
        )
        self._most, self._total, self._next, self._scale = (registers(rows) for _ in range(4))
        self._scores = self._products.scores
        self._flags = registers(1, "uint32")
        keys, values = tile.decode.keys, tile.decode.values
        self._visible = visible_keys(found.weights)
        stages = self._memory.keys, self._memory.values
        self._copies = [
            self._copies_of(*own)
            for own in zip((found.keys, found.values), (keys, values), stages, strict=True)
        ]
        pairs = zip((found.keys, found.values), self._copies, self._memory.appended, strict=False)
        self._appending = [
            Appending.begin(cache, copies, made, self._places, buffers)
            for cache, copies, made in pairs
        ]
        # The stage that is next; of the chunk's tiles those that are seen, and those of these that
        # were not asked for yet.
        self._stage, self._left = registers(1, "int32"), registers(2, "int32")

    def _copies_of(self, cache: Cache, rows: Cached, stages: Any) -> RowCopies:
        """Copies of the keys' or values' rows by the worker's threads."""
        tile, (source, first) = self._tile, self._places.rows_of(cache, self._buffers)
        stride = cache.offset.coefficient(self._found.key.name)
        size = tile.lanes, tile.decode.key_count, stride
        return RowCopies(rows, source, first, stages, *size, self._lane, self._waits)

    # -- the walk -----------------------------------------------------------------------------

    def run(self) -> None:
        """Write all of it."""
        tile = self._tile
        self._merging.begin()
        is_first = tirx.And(self._rank == 0, self._thread == 0)
        for row in range(self._rows):
            place = self._places.at(row)
            most, total = begin_row(self._found.weights, place, self._buffers, is_first)
            ib.buffer_store(self._most, most, [row])
            ib.buffer_store(self._total, total, [row])
        self._products.begin()
        chunks = -(-tile.turns // tile.chunk)
        if chunks == 1:
            self._look(tirx.const(0))
            self._wait()
            self._make_rows()
            self._walk(tirx.const(0))
        else:
            self._wait()
            self._make_rows()
            with ib.serial(chunks) as chunk:
                first = ib.Bind(chunk * tile.chunk)
                self._look(first)
                self._walk(first)
        self._finish()
        for own in self._appending:
            own.store(tile, self._number, self._rank)

    def _tile_number(self, turn: Any) -> Any:
        """The number of a tile: neighbouring ones are other blocks'."""
        tile = self._tile
        return (turn * tile.workers + self._number) * tile.splits + self._rank

    def _wait(self) -> None:
        """Wait for the kernel before, and let the one behind begin: it asks behind the keys."""
        if self._starts_early:
            ib.evaluate(T.ptx.griddepcontrol.wait())
            ib.evaluate(T.ptx.griddepcontrol.launch_dependents())

    def _look(self, first: Any) -> None:
        """Find the tiles of a chunk with a key that is seen, and ask for the first ones."""
        tile, decode = self._tile, self._tile.decode
        own = self._flags
        ib.buffer_store(own, T.uint32(0), [0])
        with ib.unroll(tile.chunk) as turn:
            key = ib.Bind(self._tile_number(first + turn) * tile.lanes + self._lane)
            with ib.unroll(self._rows if self._visible is not None else 1) as row:
                inside = key < decode.key_count
                if self._visible is not None:
                    safe = ib.min(key, decode.key_count - 1)
                    place = self._places.at(row, safe)
                    inside = tirx.And(inside, self._visible.at(place, (), self._buffers))
                flag = T.uint32(1) << tirx.Cast("uint32", turn)
                ib.buffer_store(own, own[0] | tirx.Select(inside, flag, T.uint32(0)), [0])
        ib.buffer_store(self._left, tirx.const(0), [0])
        with ib.unroll(tile.chunk) as turn:
            asked = tirx.Cast("uint32", turn)
            seen = self._threads.any((own[0] >> asked) & T.uint32(1) != T.uint32(0))
            bit = tirx.Select(seen, tirx.const(1) << turn, tirx.const(0))
            ib.buffer_store(self._left, self._left[0] | bit, [0])
        ib.buffer_store(self._left, self._left[0], [1])
        ib.buffer_store(self._stage, tirx.const(0), [0])
        if not self._waits:
            for stage in range(tile.stages):
                self._ask(first, stage)

    def _ask(self, first: Any, stage: Any) -> None:
        """Ask for the next tile that is seen, if there is one: its keys, then its values."""
        left = self._left[1]
        number = T.call_extern("int32", "__ffs", left) - 1
        turn = ib.Bind(number)
        for copies, elements in zip(self._copies, self._tile.stage_elements, strict=True):
            with when([left != 0]):
                key = self._tile_number(first + turn) * self._tile.lanes
                copies.ask(self._stage_at(stage, elements), ib.Bind(key))
            ib.evaluate(T.ptx["cp.async.commit_group"]())
        ib.buffer_store(self._left, left & (left - 1), [1])

    def _stage_at(self, stage: Any, elements: int) -> Any:
        """The first element of a stage of the worker."""
        return (self._number * self._tile.stages + stage) * elements

    def _walk(self, first: Any) -> None:
        """Take the tiles of a chunk that are seen."""
        tile = self._tile
        with ib.serial(tile.chunk) as turn, when([(self._left[0] >> turn) & 1 != 0]):
            stage = ib.Bind(self._stage[0]) if tile.stages > 1 else tirx.const(0)
            key = ib.Bind(self._tile_number(first + turn) * tile.lanes)
            if self._waits:
                for copies, elements in zip(self._copies, tile.stage_elements, strict=True):
                    copies.ask(self._stage_at(stage, elements), key)
            else:
                ib.evaluate(T.ptx["cp.async.wait_group"](2 * tile.stages - 1))
            self._patch(0, stage, key)
            self._threads.sync()
            self._products.score(self._stage_at(stage, tile.stage_elements[0]))
            self._weigh(key + self._lane)
            if not self._waits:
                ib.evaluate(T.ptx["cp.async.wait_group"](2 * tile.stages - 2))
            self._patch(1, stage, key)
            self._threads.sync()
            self._products.add(self._stage_at(stage, tile.stage_elements[1]))
            self._threads.sync()
            if not self._waits:
                self._ask(first, stage)
            if tile.stages > 1:
                after = tirx.Select(stage + 1 < tile.stages, stage + 1, tirx.const(0))
                ib.buffer_store(self._stage, after, [0])

    def _patch(self, operand: int, stage: Any, key: Any) -> None:
        """Put rows that are appended to keys, or to values, over those that were copied."""
        for own in self._appending[operand : operand + 1]:
            own.patch(self._stage_at(stage, self._tile.stage_elements[operand]), key)

    # -- arithmetic ---------------------------------------------------------------------------

    def _make_rows(self) -> None:
        """Make the group's queries and the rows that it appends, each by a worker, and meet."""
        tile, depth = self._tile, self._found.depth
        with ib.serial(-(-self._rows // tile.workers)) as turn:
            row = ib.Bind(turn * tile.workers + self._number)
            first = row * tile.query_pitch

            def store(at: Any, value: Any) -> None:
                queries = self._memory.queries
                ib.buffer_store(queries, tirx.Cast(str(queries.ty.dtype), value), [first + at])

            with when([row < self._rows] if self._rows % tile.workers else []):
                self._found.query.write(
                    self._threads,
                    (tile.lanes, self._lane),
                    self._places.at(row),
                    (depth.name, depth.extent),
                    self._buffers,
                    store,
                )
        for number, own in enumerate(self._appending):
            own.make(self._threads, tile, self._number, self._rank, self._rows + number)
        self._threads.meet()

    def _weigh(self, key: Any) -> None:
        """Make weights of scores, for the thread's key and all rows, and scale what there is."""
        tile, rows = self._tile, self._rows
        count, weights = tile.decode.key_count, self._found.weights
        own = ib.Bind(key)
        safe = own if count % tile.lanes == 0 else ib.Bind(ib.min(own, count - 1))
        with ib.unroll(rows) as i:
            value = weights.element.at(self._places.at(i, safe), [self._scores[i]], self._buffers)
            if count % tile.lanes:
                value = tirx.Select(own < count, value, tirx.const(-math.inf, "float32"))
            ib.buffer_store(self._scores, value, [i])
            ib.buffer_store(self._next, self._scores[i], [i])
        self._threads.reduce(self._next, "max", self._lane)
        with ib.unroll(rows) as i:
            ib.buffer_store(self._next, ib.max(self._most[i], self._next[i]), [i])
            ib.buffer_store(self._scale, power(self._most[i] - self._next[i]), [i])
            ib.buffer_store(self._most, self._next[i], [i])
            ib.buffer_store(self._scores, power(self._scores[i] - self._next[i]), [i])
            total = self._total[i] * self._scale[i] + self._scores[i]
            ib.buffer_store(self._total, total, [i])
        self._products.weigh(self._scale)

    def _finish(self) -> None:
        """Put the worker's sums into shared memory, and add up all workers'."""
        rows = self._rows
        self._threads.reduce(self._total, "sum", self._lane)
        self._threads.meet()
        self._products.lay_down()
        with when([self._lane == 0]), ib.unroll(rows) as i:
            mark = (self._number * rows + i) * 2
            ib.buffer_store(self._memory.marks, self._most[i], [mark])
            ib.buffer_store(self._memory.marks, self._total[i], [mark + 1])
        self._threads.meet()
        self._merging.run()
