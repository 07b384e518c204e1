"""Products with few vectors at the speed of memory: matrix-vector products, attention's decoding.

The long operand is read once, straight to registers, in vectors of 16 bytes, many at a time. Two
forms, by what is contiguous in it. Before → after, for few ``m``::

    for m, n, k: y[m, n] += x[m, k] * w[n, k]
    for m, n:    z[m, n]  = f(y[m, n])

* *row*: the summed axis; lanes share a row and add up with shuffles (``rfactor`` over lanes)::

      for n_block in blockIdx:  for n_group in threadIdx.y:  for lane in threadIdx.x:
          part[m, n in run] = 0
          for k_step:  for k_unroll:
              x_own[m, vector], w_own[n in run, vector] = loads of one vector each
              for n in run, m, k in vector:  part[m, n] += x_own * w_own
          y[m, n in run] = sum of part over lanes
          z[m, n in run] = f(y)

* *column*: the rows, ``w[k, n]``; each lane has a vector of them, and groups of lanes a part of
  the sum each. Their partial sums meet in shared memory (``rfactor`` over groups)::

      for n_block in blockIdx:  for k_group, n_lane in threadIdx.x:
          part[m, n in vector] = 0
          for k_step:
              x_own[m, k in unroll], w_own[k in unroll, n in vector] = loads of one vector each
              for k in unroll, m, n in vector:  part[m, n] += x_own * w_own
      for m, n in threadIdx.x:
          y = sum of part over groups
          z = f(y)

Where a step goes on behind the end of the sum, loads give zeros there.

What makes ``x``, such as a norm of its rows, each block does anew, before all that. Its sums are
over all threads, and end in registers; ``x`` itself is in shared memory, behind a barrier::

    for n_block in blockIdx:
        s[m] = sum of g(a[m, k]) over k in threads
        for m, k in threads:  x_shared[m, k] = h(a[m, k], s[m])
        (the loops above, which read x_shared)

Products of one ``x`` are ``stacked_sums.py``: a thread adds up those of all of them, for
the same ``n``, and has them in registers where ``f`` takes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_tile.device.device import Device
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.s_tir.few_vectors import FewVectors, find_few_vectors
from tvm_tile.schedule.s_tir.guards import (
    copy_guard,
    drop_guards,
    hoist_guard,
    zero_outside,
)
from tvm_tile.schedule.s_tir.merge import restore
from tvm_tile.schedule.s_tir.ring import ringed
from tvm_tile.schedule.s_tir.short_operand import make_operand, with_stores
from tvm_tile.schedule.s_tir.steps import (
    LoopRV,
    SBlockRV,
    blocks_named,
    extent,
    fuse,
    keep_sum,
    shared_scope,
    unroll_part,
)
from tvm_tile.schedule.s_tir.widened import with_wide_numbers
from tvm_tile.tile.few_rows.few_vectors import Matvec, vector_along
from tvm_tile.tile.few_rows.matvec import SUMS_IN_FLIGHT, construct_matvec
from tvm_tile.tile.few_rows.matvec_tile import MatvecTile
from tvm_tile.tile.rules import MATVEC

_GATHER_LOOPS = 3  # around that: of blocks, of results, of threads


def schedule_matvec(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a product that is bound by reading its longer operand; none for any other."""
    form = find_few_vectors(task)
    if form is None:
        return ()
    draft = _Draft(form, task.device)
    sizes = form.operator, form.product, task.device, count, task.scene
    tiles = construct_matvec(*sizes, may_overhang=form.ignores_zeros)
    return choices_of(MATVEC, tiles, draft.write)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A product, to be written for one tile or another."""

    form: FewVectors
    device: Device

    @property
    def product(self) -> Matvec:
        """The parts of its axes."""
        return self.form.product

    def write(self, tile: MatvecTile) -> tirx.PrimFunc:
        """The function as its kernel.

        Raises:
            ScheduleError: TVM cannot analyse a step.
        """
        sch = self.form.sch.copy()
        main = sch.get_sblock(self.form.main)
        made = self.form.prologue or self._staged(sch, main, tile)
        nest = (self._rows if tile.form == "row" else self._columns)(sch, main, tile, made)
        length = tile.vector if tile.form == "row" else tile.unroll
        summed = self.form.operator.axes[self.product.summed]
        along = math.gcd(length, vector_along(self.product.reused, summed, self.form.operator))
        streamed = (self.product.streamed, *self.product.beside)
        long = [read.tensor.name for read in streamed]
        own = _load(sch, nest, _other_read(sch, nest, long), along)
        copies = [_load(sch, nest, name, tile.vector) for name in long]
        for gather in self.form.gathers:
            sch.compute_inline(gather)
        init = sch.decompose_reduction(nest.part, nest.step)
        above = len(sch.get_loops(init)) - nest.spatial
        for loop in (*nest.inner, *list(sch.get_loops(init))[above:]):
            sch.unroll(loop)
        names = frozenset(str(sch.get(block).name_hint) for block in (nest.part, init))
        func = drop_guards(copy_guard(sch, main, nest.after), names, ())
        before = blocks_named(self.form.sch, self.form.prologue)
        makers = {str(own.name_hint): own.writes[0].source for own in before}
        func = with_stores(func, self.form.stores, makers, nest.read)
        if tile.form == "column":
            loop = list(sch.get_loops(main))[_GATHER_LOOPS]
            func = hoist_guard(func, str(sch.get(main).name_hint), sch.get(loop).loop_var)
        func = zero_outside(func, (own, *copies)) if tile.overhangs else func
        func = restore(func, self.form.merged)
        if not tile.stages:
            return with_wide_numbers(func, self.device)
        scope = shared_scope(self.device, tile.shared_bytes)
        waits = self.device.supports_dependent_launches
        constant = tuple(nest.read[name] for name in self.form.constants if name in nest.read)
        return ringed(func, copies, tile.stages, scope, constant, waits=waits)

    def _staged(self, sch: Schedule, main: SBlockRV, tile: MatvecTile) -> tuple[str, ...]:
        """A copy of the short operand in shared memory, if rings are to find it there."""
        if not tile.stages:
            return ()
        reads = [region.source.name for region in sch.get(main).reads]
        place = reads.index(self.product.reused.tensor.name)
        copy = sch.cache_read(main, place, shared_scope(self.device, tile.shared_bytes))
        return (str(sch.get(copy).name_hint),)

    def _split(self, sch: Schedule, main: SBlockRV, factors: list[int | None]) -> list[LoopRV]:
        """Split the summed loop of a block by these factors."""
        return list(sch.split(sch.get_loops(main)[self.product.summed], factors))

    def _rows(
        self, sch: Schedule, main: SBlockRV, tile: MatvecTile, made: Sequence[str]
    ) -> _MatvecNest:
        """The loops of the row form: lanes share a sum, groups have rows of their own."""
        lane = self._split(sch, main, [None, tile.unroll, tile.lanes, tile.vector])[2]
        part = sch.rfactor(lane, 0)
        *spatial, lane = sch.get_loops(main)
        outer, run = sch.split(spatial[tile.axis], [None, tile.run])
        others, vectors, parts = self._others(spatial, tile), *self._within(spatial)
        sch.reorder(*others, outer, run, *vectors, *parts, lane)
        turns = [tile.turns] if tile.stages else []
        levels = sch.split(fuse(sch, [*others, outer]), [None, *turns, tile.groups])
        block, group = levels[0], levels[-1]
        sch.bind(block, "blockIdx.x")
        sch.bind(group, "threadIdx.y")
        sch.bind(lane, "threadIdx.x")
        for loop in (run, *vectors, *parts):
            sch.unroll(loop)
        sch.compute_at(part, group, preserve_unit_loops=True)
        threads = {"threadIdx.y": tile.groups, "threadIdx.x": tile.lanes}
        scope, read = shared_scope(self.device, tile.shared_bytes), {}
        if made:
            read = make_operand(sch, block, made, threads, scope)
        sch.set_scope(part, 0, "local")
        after = keep_sum(sch, main, self.form.outputs)
        sch.reverse_compute_at(after, group, preserve_unit_loops=True)
        for loop in list(sch.get_loops(after))[len(levels) :]:
            sch.unroll(loop)

        lane, *own = list(sch.get_loops(part))[len(levels) :]
        spatial, (step, unroll, vector), units = self._own(own, 3)
        run, vectors, parts = spatial[tile.axis], *self._within(spatial)
        others = self._others(spatial, tile)
        inner = (unroll, *parts, run, *vectors, vector)
        sch.reorder(lane, *others, step, *units, *inner)
        sch.bind(lane, "threadIdx.x")
        return _MatvecNest(part, after, step, unroll, inner, len(spatial), read)

    def _columns(
        self, sch: Schedule, main: SBlockRV, tile: MatvecTile, made: Sequence[str]
    ) -> _MatvecNest:
        """The loops of the column form: lanes have columns, groups share a sum."""
        group = self._split(sch, main, [None, tile.groups, tile.unroll])[1]
        part = sch.rfactor(group, 0)
        *spatial, group = sch.get_loops(main)
        outer, width = sch.split(spatial[tile.axis], [None, tile.lanes * tile.vector])
        others, vectors, parts = self._others(spatial, tile), *self._within(spatial)
        sch.reorder(*others, outer, *vectors, width, *parts, group)
        block = fuse(sch, [*others, outer])
        sch.bind(block, "blockIdx.x")
        for loop in parts:
            sch.unroll(loop)
        sch.compute_at(part, block, preserve_unit_loops=True)
        scope, read = shared_scope(self.device, tile.shared_bytes), dict[str, str]()
        if made:
            threads = {"threadIdx.x": tile.block_size}
            read = make_operand(sch, block, made, threads, scope)
        sch.set_scope(part, 0, scope)
        _, gather = sch.split(fuse(sch, [*vectors, width]), [None, tile.block_size])
        sch.bind(gather, "threadIdx.x")
        after = keep_sum(sch, main, self.form.outputs)
        sch.reverse_compute_at(after, gather, preserve_unit_loops=True)
        sch.decompose_reduction(main, group)
        unroll_part(sch, group, SUMS_IN_FLIGHT)

        store = sch.cache_write(part, 0, "local")
        group, *own = list(sch.get_loops(part))[1:]
        spatial, (step, unroll), units = self._own(own, 2)
        lane, vector = sch.split(spatial[tile.axis], [None, tile.vector])
        others, vectors, parts = self._others(spatial, tile), *self._within(spatial)
        inner = (unroll, *parts, *vectors, vector)
        sch.reorder(group, lane, *others, step, *units, *inner)
        thread = fuse(sch, [group, lane])
        sch.bind(thread, "threadIdx.x")
        sch.reverse_compute_at(store, thread, preserve_unit_loops=True)
        for loop in list(sch.get_loops(store))[2:]:
            sch.unroll(loop)
        return _MatvecNest(part, after, step, step, inner, len(spatial), read)

    def _within(self, spatial: Sequence[LoopRV]) -> tuple[list[LoopRV], list[LoopRV]]:
        """The loops of vectors, and those of products side by side."""
        product = self.product
        return [spatial[p] for p in product.vectors], [spatial[p] for p in product.parts]

    def _others(self, spatial: Sequence[LoopRV], tile: MatvecTile) -> list[LoopRV]:
        """The loops of batches and rows, but for the one that is cut."""
        places = (*self.product.batch, *self.product.rows)
        return [spatial[place] for place in places if place != tile.axis]

    def _own(
        self, loops: list[LoopRV], pieces: int
    ) -> tuple[list[LoopRV], list[LoopRV], list[LoopRV]]:
        """Loops of partial sums: spatial ones, the pieces of the long sum, sums of one element."""
        count = len(self.form.operator.spatial_axes)
        spatial, reduce = loops[:count], loops[count:]
        first = self.product.summed - count
        last = first + pieces
        return spatial, reduce[first:last], [*reduce[:first], *reduce[last:]]


@dataclass(frozen=True, slots=True)
class _MatvecNest:
    """The blocks and loops of a thread's partial sums.

    Attributes:
        part: the block that adds them up.
        after: the block behind the whole sum.
        step: the loop over steps.
        loads: the loop in which operands are loaded.
        inner: loops to unroll.
        spatial: number of the loops that set them to zero and are of one thread.
        read: tensors that make the short operand, and the blocks that copy them to registers.
    """

    part: SBlockRV
    after: SBlockRV
    step: LoopRV
    loads: LoopRV
    inner: tuple[LoopRV, ...]
    spatial: int
    read: Mapping[str, str]


def _other_read(sch: Schedule, nest: _MatvecNest, names: Sequence[str]) -> str:
    """The name of the operand of partial sums that is none of these: the short one."""
    block = sch.get(nest.part)
    known = {*names, str(block.writes[0].source.name)}
    (found,) = {str(region.source.name) for region in block.reads} - known
    return found


def _load(sch: Schedule, nest: _MatvecNest, name: str, width: int) -> str:
    """Load the operand of that name to registers; gives the name of the block that does."""
    reads = [region.source for region in sch.get(nest.part).reads]
    place = next(place for place, source in enumerate(reads) if source.name == name)
    copy = sch.cache_read(nest.part, place, "local")
    sch.compute_at(copy, nest.loads, preserve_unit_loops=True)
    loops = list(sch.get_loops(copy))[-len(reads[place].ty.shape) :]
    if width > 1:
        place = max(i for i, loop in enumerate(loops) if extent(sch, loop) > 1)
        loops[place], vector = sch.split(loops[place], [None, width])
        sch.vectorize(vector)
    for loop in loops:
        sch.unroll(loop)
    return str(sch.get(copy).name_hint)
