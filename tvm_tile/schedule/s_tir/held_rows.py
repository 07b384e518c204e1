"""Rows that a block holds on chip: read once in vectors, reduced several times, written in vectors.

This is Welder's connection at the level of registers. Before → after, for a softmax::

    for i, k: m[i] = max(m[i], A[i, k])
    for i, k: s[i] += exp(A[i, k] - m[i])
    for i, k: B[i, k] = exp(A[i, k] - m[i]) / s[i]

    for row in blockIdx, threadIdx.y:
        for k_outer: for k in threadIdx.x: for v in vectorized: own[k_outer, v] = A[row, ...]
        m = max of own over k_outer, v and threadIdx.x
        s = sum of exp(own - m) over the same
        for k_outer: for k in threadIdx.x:
            for v: out[v] = exp(own[k_outer, v] - m) / s
            for v in vectorized: B[row, ...] = out[v]

Each thread reads in every stage what it has loaded itself, so ``own`` is an array of its own, and
nothing waits but for the sums over threads. Of a row that is too long for registers it is a part of
the row in shared memory, of which a thread reads a vector at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.s_tir.normalize import NormalForm
from tvm_tile.schedule.s_tir.own_elements import OwnElements
from tvm_tile.schedule.s_tir.steps import (
    LoopRV,
    SBlockRV,
    child_blocks,
    extent,
    fuse,
    is_reduction,
    loops_by_kind,
    shared_scope,
    unroll_part,
)
from tvm_tile.tile.rows.held_rows import HeldRows, HeldTile, exchanges


def write_held(
    sch: Schedule,
    form: NormalForm,
    row_axes: Sequence[int],
    held: HeldRows,
    device: Device,
    tile: HeldTile,
) -> tirx.PrimFunc:
    """Write reductions whose rows threads hold; ``row_axes`` are places of the output's axes that
    tell rows apart, in the order in which blocks take rows.

    Raises:
        ScheduleError: TVM cannot analyse what this takes.
        ValueError: a stage works on more than its row.
    """
    last = form.outputs[0]
    stages = [*form.producers, *form.reductions, last]
    for name in (*form.producers, *form.reductions):
        sch.set_scope(sch.get_sblock(name), 0, "local")
    scope = shared_scope(device, tile.shared_bytes) if tile.is_shared else "local"
    copies = [_load_copy(sch, stages, name, scope) for name in held.tensors]
    parameters = [_load_copy(sch, [last], name) for name in held.parameters]
    # In the end of a sum over threads its result is in shared memory: a thread keeps its own.
    results = [_load_copy(sch, stages, _written(sch, name)) for name in form.reductions]
    first = [name for name in _names(sch) if name not in (*parameters, last)]
    kept = {_written(sch, name) for name in (*copies, *form.producers)}
    own, shared = (set[str](), kept) if tile.is_shared else (kept, set[str]())
    writer = _RowWriter(sch, tile, held.length, shared, is_exchanged=bool(held.pairs))
    lane, thread = writer.bind_rows(sch.cache_write(sch.get_sblock(last), 0, "local"), row_axes)
    for name in (last, *parameters):
        sch.compute_at(sch.get_sblock(name), thread, preserve_unit_loops=True)
        writer.take_vector(name, thread, is_copy=name != last)
    for name in reversed(first):
        block = sch.get_sblock(name)
        sch.compute_at(block, lane, preserve_unit_loops=True)
        if name not in results:
            writer.spread(name, is_copy=name in copies)
    numbers = {_written(sch, name) for name in results}
    apart = exchanges(held.pairs, tile.threads_per_row, tile.vector) or {}
    lap = tile.threads_per_row * tile.vector
    extents = tile.elements, tile.vector, lap
    return OwnElements(own, numbers, writer.places, *extents, apart).of(sch.mod["main"])


def _names(sch: Schedule) -> list[str]:
    """Names of all blocks."""
    return [str(sch.get(block).name_hint) for block in child_blocks(sch)]


def _written(sch: Schedule, name: str) -> str:
    """Name of the buffer that a block writes."""
    return str(sch.get(sch.get_sblock(name)).writes[0].source.name)


def _load_copy(sch: Schedule, readers: Sequence[str], tensor: str, scope: str = "local") -> str:
    """Let ``readers`` of a tensor read a copy; gives the name of the block that makes it."""
    reading = []
    for name in readers:
        names = [str(region.source.name) for region in sch.get(sch.get_sblock(name)).reads]
        if tensor in names:
            reading.append((sch.get_sblock(name), names.index(tensor)))
    block, place = reading[0]
    copy = sch.cache_read(block, place, scope, [reader for reader, _ in reading])
    return str(sch.get(copy).name_hint)


@dataclass
class _RowWriter:
    """Spreads the loops of one stage after another over threads, alike.

    Attributes:
        length: elements of a row.
        shared: names of buffers of rows in shared memory.
        is_exchanged: whether elements are made of others that their thread holds, which are in
            registers only where each is named by a number.
        places: name of a block -> which of its thread's elements it works on, in its loops.
    """

    sch: Schedule
    tile: HeldTile
    length: int
    shared: set[str]
    is_exchanged: bool
    places: dict[str, Any] = field(default_factory=dict)
    outer: LoopRV = None

    def bind_rows(self, store: SBlockRV, row_axes: Sequence[int]) -> tuple[LoopRV, LoopRV]:
        """Bind the loops of the last block; those of a row and of a thread's turn remain."""
        sch, tile = self.sch, self.tile
        loops = list(sch.get_loops(store))
        rows = [loops[place] for place in row_axes]
        inner = [loop for place, loop in enumerate(loops) if place not in row_axes]
        rows = rows or [sch.add_unit_loop(loops[0])]
        sch.reorder(*rows, *inner)
        block, lane = sch.split(fuse(sch, rows), [None, tile.rows_per_block])
        sch.bind(block, "blockIdx.x")
        across = tile.threads_per_row > 1 and not tile.are_neighbours
        sch.bind(lane, "threadIdx.y" if across else "threadIdx.x")
        self.outer, thread, vector = self._shares(inner)
        self._vectorize(store, vector)
        return lane, thread

    def spread(self, name: str, *, is_copy: bool) -> None:
        """Share the loops of a stage that works on whole rows."""
        block = self.sch.get_sblock(name)
        if is_reduction(self.sch, block):
            _, thread, _ = self._shares(loops_by_kind(self.sch, block)[1])
            self._read_vectors(name, thread)
            return
        loops = list(self.sch.get_loops(block))[2:]
        self._check(loops, self.length)
        outer, _, vector = self._shares(loops)
        self._place(name, outer, self._vectorize(block, vector) if is_copy else self._var(vector))

    def take_vector(self, name: str, thread: LoopRV, *, is_copy: bool) -> None:
        """Share nothing: a stage works on the vector of one turn."""
        block = self.sch.get_sblock(name)
        loops = list(self.sch.get_loops(block))
        places = [self.sch.get(loop).same_as(self.sch.get(thread)) for loop in loops]
        loops = loops[places.index(True) + 1 :]
        self._check(loops, self.tile.vector)
        vector = fuse(self.sch, loops)
        if is_copy:
            self._vectorize(block, vector)
            return
        self._place(name, self.outer, self._var(vector))
        if self.is_exchanged:
            self.sch.unroll(vector)
        self._read_vectors(name, thread)

    def _read_vectors(self, name: str, thread: LoopRV) -> None:
        """Let a stage read registers, to which a thread takes a vector of a row at a time."""
        sch, block = self.sch, self.sch.get_sblock(name)
        count = len(sch.get_loops(block)) - 1
        for tensor in sorted(self.shared):
            names = [str(region.source.name) for region in sch.get(block).reads]
            if tensor in names:
                copy = sch.cache_read(block, names.index(tensor), "local", [block])
                sch.compute_at(copy, thread, preserve_unit_loops=True)
                self._vectorize(copy, fuse(sch, list(sch.get_loops(copy))[count:]))

    def _check(self, loops: list[LoopRV], elements: int) -> None:
        """Check that a stage's loops have as many points as a row has elements."""
        found = math.prod(extent(self.sch, loop) for loop in loops)
        if found != elements:
            raise ValueError(f"a stage must work on {elements} elements of its row, not {found}")

    def _shares(self, loops: list[LoopRV]) -> tuple[LoopRV, LoopRV, LoopRV]:
        """Share a stage's elements out: turns, threads, and elements of a vector."""
        pieces, vector = self._pieces(loops)
        outer, thread = pieces, pieces
        if self.tile.threads_per_row > 1:
            outer, thread = self.sch.split(pieces, [None, self.tile.threads_per_row])
            self.sch.bind(thread, "threadIdx.y" if self.tile.are_neighbours else "threadIdx.x")
        if self.tile.is_shared:
            unroll_part(self.sch, outer, self.tile.together)
        else:
            self.sch.unroll(outer)
        return outer, thread, vector

    def _pieces(self, loops: list[LoopRV]) -> tuple[LoopRV, LoopRV]:
        """The loops over a row's vectors and over the elements of one.

        Where a row is several axes, vectors are cut from the innermost one before it is fused with
        the others. Of what is at ``[k // 14, k % 14]`` TVM bounds each index by itself; it does not
        see that a vector stays within a line, and would give each thread space for whole lines.
        """
        long = [position for position, loop in enumerate(loops) if extent(self.sch, loop) > 1]
        first = long[-1] if len(long) > 1 else 0
        pieces, vector = self.sch.split(fuse(self.sch, loops[first:]), [None, self.tile.vector])
        return fuse(self.sch, [*loops[:first], pieces]), vector

    def _vectorize(self, block: SBlockRV, vector: LoopRV) -> Any:
        """Make a copy's vectors as wide as one load; the element within all of them."""
        dtype = str(self.sch.get(block).writes[0].source.ty.dtype)
        width = min(self.tile.vector, VECTOR_BYTES // element_size(dtype))
        if width == self.tile.vector:
            self.sch.vectorize(vector)
            return self._var(vector)
        part, within = self.sch.split(vector, [None, width])
        self.sch.unroll(part)
        self.sch.vectorize(within)
        return self._var(part) * width + self._var(within)

    def _place(self, name: str, outer: LoopRV, within: Any) -> None:
        """Note which of its thread's elements a stage works on, where these are an array."""
        if self.shared:
            return
        self.places[name] = self._var(outer) * self.tile.vector + within

    def _var(self, loop: LoopRV) -> Any:
        """Variable of a loop."""
        return self.sch.get(loop).loop_var
