"""Steps of loops whose operands are on their way some steps ahead, through shared memory.

Each thread copies what it alone reads, so it has slots of its own, one for each step ahead. Before
→ after, for a kernel whose blocks go through ``turns`` of ``steps``::

    x_shared = ...
    for turn:  for step:
        w_own[v] = w[place(turn, step) + v]
        (the rest of the step)

    for item in the first stages:  ask for the vectors of w of that item
    wait for the kernel before this one
    x_shared = ...
    for turn:  for step:
        wait for the oldest item;  w_own[v] = slot[v];  ask for the item that is stages ahead
        (the rest of the step)

So what the first items need is asked for before the kernel waits for the one before it, which
:mod:`tvm_tile.build.early.dependent_launches` allows where ``w`` is a constant, and as soon as a
block begins, before it makes ``x``. Copies in flight take shared memory instead of registers.

Why this is free of races: a slot is written and read by one thread. It reads a slot behind the
wait for its own copies into it, and asks for others in its place behind that, in its own order.
Each item commits one group of copies, even where there is nothing left to ask for, so that the wait
for all but the last ``stages - 1`` groups is one for the oldest item.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.script import tirx as T

from tvm_tile.build.launched import in_threads, launches
from tvm_tile.build.tir_passes import open_blocks
from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.cp_async import asked


def ringed(
    func: tirx.PrimFunc,
    names: Sequence[str],
    stages: int,
    scope: str,
    constant: Sequence[str] = (),
    *,
    waits: bool,
) -> tirx.PrimFunc:
    """A scheduled function whose copies to registers come some steps ahead of their use.

    Args:
        func: the function, whose copies stand side by side in the innermost of its serial loops.
        names: blocks of the copies, as they were scheduled: vectors of neighbours, to registers.
        stages: steps ahead; one at least.
        scope: TVM's name for shared memory.
        constant: blocks of other copies to registers, which are made once, before the wait.
        waits: whether the device has kernels that start while the one before them ends.
    """
    buffers = [_written(func, name) for name in names]
    once = [_written(func, name) for name in constant]
    func = open_blocks(tvm.IRModule({"main": func}))["main"]
    walk = _Items.of(func.body, buffers)
    stages = min(stages, walk.items)
    ring = _Ring.of(walk, stages, scope, launches(func.body))
    first = [tirx.const(item, walk.dtype) for item in range(stages)]
    asks = [tirx.AllocBuffer(ring.slots), *(own for item in first for own in ring.ask(item))]
    wait = [tirx.Evaluate(T.ptx.griddepcontrol.wait())] if waits else []

    def take(statement: Any) -> Any:
        if not statement.same_as(walk.body):
            return statement
        taken = tirx.SeqStmt([ring.taken(own) for own in statement])
        return taken if walk.unrolled else ring.step(taken)

    def step(loop: Any) -> Any:
        is_outer = walk.unrolled and loop.loop_var.same_as(walk.unrolled[0].loop_var)
        return ring.step(loop) if is_outer else loop

    def begin(own: Any) -> Any:
        early = [s for s in own if _stores(s, once)]
        late = [s for s in own if not any(s.same_as(other) for other in early)]
        return tirx.SeqStmt([*asks, *early, *wait, *late])

    visits = [(tirx.SeqStmt, take), (tirx.For, step)]
    body = tvm_ffi.structural_map(func.body, visits, order="post")
    return func.with_body(in_threads(body, begin))


def _written(func: tirx.PrimFunc, name: str) -> str:
    """The name of the buffer that a block writes."""
    blocks = nodes_in(func.body, tvm.s_tir.SBlock)
    return next(str(b.writes[0].source.name) for b in blocks if b.name_hint == name)


def _stores(statement: Any, buffers: Sequence[str]) -> bool:
    """Whether a statement is a copy into one of these buffers, or their allocation."""
    if isinstance(statement, tirx.AllocBuffer):
        return str(statement.buffer.name) in buffers
    while isinstance(statement, tirx.For | tirx.IfThenElse):
        is_choice = isinstance(statement, tirx.IfThenElse)
        if is_choice and statement.else_case is not None:
            return False
        statement = statement.then_case if is_choice else statement.body
    return isinstance(statement, tirx.BufferStore) and str(statement.buffer.name) in buffers


@dataclass(frozen=True, slots=True)
class _OwnCopy:
    """A copy to registers: vectors of neighbours, in loops that are unrolled.

    Attributes:
        loops: the loops around a vector.
        along: the loop along it.
        store: the store of one element of it.
    """

    loops: tuple[tirx.For, ...]
    along: tirx.For
    store: tirx.BufferStore

    @classmethod
    def of(cls, statement: Any, buffers: Sequence[str]) -> _OwnCopy | None:
        """A statement as a copy into one of these buffers; ``None`` where it is none."""
        loops = []
        while isinstance(statement, tirx.For):
            loops.append(statement)
            statement = statement.body
        is_copy = isinstance(statement, tirx.BufferStore) and str(statement.buffer.name) in buffers
        return cls(tuple(loops[:-1]), loops[-1], statement) if is_copy else None

    @property
    def count(self) -> int:
        """Vectors of a thread."""
        return math.prod(int(loop.extent) for loop in self.loops)


def _nest(loops: Sequence[tirx.For], inner: Any) -> Any:
    """Unrolled loops, with the variables of others, around what is done in each."""
    for loop in reversed(loops):
        inner = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, inner)
    return inner


def _number(loops: Sequence[tirx.For], dtype: str) -> Any:
    """The number of an iteration of nested loops, by their variables."""
    found = tirx.const(0, dtype)
    for loop in loops:
        found = found * int(loop.extent) + loop.loop_var
    return found


@dataclass(frozen=True, slots=True)
class _Items:
    """The serial loops around the copies.

    Attributes:
        loops: the loops, outer ones first.
        unrolled: unrolled loops in these, around the copies.
        body: statements of the innermost one.
        copies: the copies in it.
    """

    loops: tuple[tirx.For, ...]
    unrolled: tuple[tirx.For, ...]
    body: tirx.SeqStmt
    copies: tuple[_OwnCopy, ...]

    @classmethod
    def of(cls, body: Any, buffers: Sequence[str]) -> _Items:
        """The loops of a kernel that has such copies."""

        def copies_in(statement: Any) -> tuple[_OwnCopy, ...]:
            found = [_OwnCopy.of(own, buffers) for own in statement]
            return tuple(copy for copy in found if copy is not None)

        own = next(s for s in nodes_in(body, tirx.SeqStmt) if len(copies_in(s)) == len(buffers))
        loops = nodes_in(body, tirx.For)
        around = [s for s in loops if any(own.same_as(o) for o in nodes_in(s, tirx.SeqStmt))]
        serial, unrolled = (
            tuple(loop for loop in around if loop.kind == kind)
            for kind in (tirx.ForKind.SERIAL, tirx.ForKind.UNROLLED)
        )
        return cls(serial, unrolled, own, copies_in(own))

    @property
    def dtype(self) -> str:
        """Type of the items' numbers."""
        return str(self.copies[0].along.loop_var.ty.dtype)

    @property
    def items(self) -> int:
        """Number of times that the copies are made."""
        return math.prod(int(loop.extent) for loop in self.loops)

    def at(self, item: Any) -> dict[Any, Any]:
        """The loops' variables at an item."""
        values, rest = {}, item
        for loop in reversed(self.loops):
            values[loop.loop_var] = rest % int(loop.extent)
            rest = rest // int(loop.extent)
        return values


@dataclass(frozen=True, slots=True)
class _Ring:
    """The slots of a block's threads.

    Attributes:
        walk: the loops.
        stages: items that are on their way.
        starts: number of the first vector of each copy.
        slots: shared memory: stages, vectors of an item, threads, elements of a vector.
        thread: the thread's number in the block.
    """

    walk: _Items
    stages: int
    starts: tuple[int, ...]
    slots: Any
    thread: Any

    @classmethod
    def of(cls, walk: _Items, stages: int, scope: str, axes: Sequence[Any]) -> _Ring:
        """Slots for the copies of a walk, whose vectors are alike, in a kernel of some axes."""
        named = {str(axis.node.thread_tag): axis for axis in axes}
        threads = [named[tag] for tag in sorted(named, reverse=True) if tag.startswith("threadIdx")]
        often = math.prod(int(loop.extent) for loop in walk.unrolled)
        vectors = [often * copy.count for copy in walk.copies]
        first, count = walk.copies[0], math.prod(int(axis.value) for axis in threads)
        shape = (stages, sum(vectors), count, int(first.along.extent))
        dtype = str(first.store.buffer.ty.dtype)
        thread = tirx.const(0, walk.dtype)
        for axis in threads:
            thread = thread * int(axis.value) + tirx.Cast(walk.dtype, axis.node.var)
        starts = tuple(itertools.accumulate(vectors, initial=0))[:-1]
        slots = tirx.decl_buffer(shape, dtype, "ring", scope=scope)
        return cls(walk, stages, starts, slots, thread)

    def _place(self, item: Any, copy: _OwnCopy, element: Any) -> list[Any]:
        """The place of an element of a copy's vector, by the loops around it."""
        loops = (*self.walk.unrolled, *copy.loops)
        number = self.starts[self.walk.copies.index(copy)] + _number(loops, self.walk.dtype)
        return [item % self.stages, number, self.thread, element]

    def ask(self, item: Any) -> Iterator[Any]:
        """Ask for an item, if there is one, and commit."""
        walk = self.walk
        values, asks = walk.at(item), []
        for copy in walk.copies:
            value, inside = copy.store.value, []
            at = {copy.along.loop_var: tirx.const(0, walk.dtype), **values}
            if not isinstance(value, ir.TensorLoad):  # where it is guarded
                condition, value, _ = value.args
                inside = [substituted(condition, at)]
            source = value.source.ptr_to([substituted(index, at) for index in value.indices])
            size = int(copy.along.extent) * element_size(str(self.slots.ty.dtype))
            call = asked(self.slots.ptr_to(self._place(item, copy, 0)), source, size, inside)
            asks.append(_nest((*walk.unrolled, *copy.loops), tirx.Evaluate(call)))
        every = asks[0] if len(asks) == 1 else tirx.SeqStmt(asks)
        is_static = isinstance(item, tirx.IntImm)
        yield every if is_static else tirx.IfThenElse(item < walk.items, every, None)
        yield tirx.Evaluate(T.ptx["cp.async.commit_group"]())

    def taken(self, statement: Any) -> Any:
        """A statement of a step; a copy takes its vectors out of their slots."""
        walk = self.walk
        copy = next((copy for copy in walk.copies if _is_of(copy, statement)), None)
        if copy is None:
            return statement
        along, item = copy.along, _number(walk.loops, walk.dtype)
        value = self.slots[self._place(item, copy, along.loop_var)]
        store = tirx.BufferStore(copy.store.buffer, value, copy.store.indices)
        vector = tirx.For(along.loop_var, along.min, along.extent, along.kind, store)
        return _nest(copy.loops, vector)

    def step(self, statement: Any) -> Any:
        """A step behind the wait for its item, and ahead of asking for a later one."""
        item = _number(self.walk.loops, self.walk.dtype)
        wait = tirx.Evaluate(T.ptx["cp.async.wait_group"](self.stages - 1))
        later = [tirx.Evaluate(T.ptx["cp.async.commit_group"]())]
        if self.walk.items > self.stages:
            later = [*self.ask(item + self.stages)]
        return tirx.SeqStmt([wait, statement, *later])


def _is_of(copy: _OwnCopy, statement: Any) -> bool:
    """Whether a statement is a copy's."""
    outer = copy.loops[0] if copy.loops else copy.along
    return bool(statement.same_as(outer))
