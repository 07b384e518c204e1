"""Copies whose output does not lie in memory as what they read does: transposes, shuffles, pads.

Before → after, for a transpose through shared memory::

    for i, j: B[i, j] = f(A[j, i])

    for box in blockIdx:  for thread in threadIdx:
        for round:  own[round, 0:8] = A[j, i:i+8]
        for round:  S[i, j] = own[round, v]                       for each v
        barrier
        for round:  out[v] = f(S[i, j + v]) for each v;  B[i, j:j+8] = out[0:8]

Without shared memory, threads run through all outputs, and only the last line is left. Either
way a thread divides an index once for several elements. ``tile/moves/transpose.py`` chooses;
:mod:`tvm_tile.schedule.s_tir.digits` makes the accesses affine first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import digits, split, substituted
from tvm_tile.graph.tile_graph import Axis, element_size
from tvm_tile.schedule.rule import Choice, Scheduled, Task, as_written, choices_of_outputs
from tvm_tile.schedule.s_tir.guards import conjunction
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.output import Output, plain_tile, read_output
from tvm_tile.schedule.s_tir.steps import blocks_named, launched, loop
from tvm_tile.tile.moves.sectors import pitches
from tvm_tile.tile.moves.transpose import TransposeTile, construct_transpose, is_same_for
from tvm_tile.tile.rules import TRANSPOSE
from tvm_tile.tile.tile import priced

_WORTHWHILE = 0.95  # of what the rule for element-wise functions takes
Values = Mapping[str, Any]
"""What stands for a digit, by its name."""


def schedule_transpose(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for copies that the rule for element-wise functions would read badly."""
    found = _read(task)
    if found is None:
        return ()
    tiles = [plain_tile(block, output, task.device) for block, output in found]
    plain = sum(tile.seconds for tile in priced(tiles, task.device, task.scene))
    outputs = tuple(output for _, output in found)
    choices = [
        construct_transpose(output.copy, task.device, count, task.scene) for output in outputs
    ]
    if sum(tiles[0].seconds for tiles in choices) > _WORTHWHILE * plain:
        return ()
    return choices_of_outputs(
        TRANSPOSE, choices, count, partial(write_transpose, task.func, outputs)
    )


def _read(task: Task) -> list[tuple[SBlock, Output]] | None:
    """The outputs of a function of copies; ``None`` if one is none."""
    if task.graph.reductions:
        return None
    sch, form = inlined(task.func, keep_producers=False)
    if form is None or form.producers or not form.outputs:
        return None
    blocks = blocks_named(sch, form.outputs)
    outputs = [(block, output) for block in blocks if (output := read_output(block)) is not None]
    return outputs if len(outputs) == len(blocks) else None


@dataclass(frozen=True, slots=True)
class _Rounds:
    """How a block's threads go through its outputs.

    Attributes:
        var: variable of the loop, one iteration a round.
        count: its extent.
        lane: variable of the neighbours that a thread takes at once.
        vector: its extent.
        first: places in the box of the first of these, by the digit's name.
        each: place of each output, in terms of ``lane``.
        test: whether these are outputs; ``None`` if all are.
    """

    var: Any
    count: int
    lane: Any
    vector: int
    first: Values
    each: Values
    test: Any


class _CopyWriter:
    """Writes one output's kernel."""

    def __init__(self, output: Output, tile: TransposeTile) -> None:
        self.digits, self.copy, self.tile = output.digits, output.copy, tile
        self.value, self.parts = output.value, output.parts
        self.index_type = str(output.digits.axes[0][0].ty.dtype)
        self.buffers: list[Any] = []
        extents = tile.extents or tuple(axis.extent for axis in self.copy.axes)
        self.own = {axis.name: n for axis, n in zip(self.copy.axes, extents, strict=True)}
        self.block, self.thread = self.var("block"), self.var("thread")
        self.origin = self.origins()

    def write(self) -> Any:
        """Write the kernel: loops over blocks and threads, and what is in them."""
        tile = self.tile
        stored: dict[str, Any] = {}
        body: list[Any] = []
        for place, (var, part) in enumerate(self.parts):
            if tile.staged[place]:
                statements, stored[str(var.name)] = self.stage(place, part)
                body += statements
        body.append(self.store(stored))
        whole: Any = body[0] if len(body) == 1 else tirx.SeqStmt(body)
        threads = self.thread, tile.block_size
        return self.with_shapes(launched(whole, (self.block, tile.grid), threads))

    def origins(self) -> dict[str, Any]:
        """The places at which a block's box begins, by the names of the axes."""
        if not self.tile.extents:
            return {axis.name: self.number(0) for axis in self.copy.axes}
        counts = [-(-axis.extent // self.own[axis.name]) for axis in self.copy.axes]
        at = digits(self.block, self.copy.axes, counts)
        return {name: place * self.own[name] for name, place in at}

    def rounds(self, order: Sequence[Axis], vector: int) -> _Rounds:
        """How a block's threads go through its outputs along ``order``, ``vector`` at a time."""
        tile, var = self.tile, self.var("round")
        extents = [self.own[axis.name] for axis in order]
        points = math.prod(extents)
        count = -(-points // (tile.block_size * vector)) if tile.extents else 1
        group = var if tile.extents else self.block
        piece = group * tile.block_size + self.thread
        first = dict(digits(piece * vector, order, extents))
        tests = [
            self.origin[axis.name] + first[axis.name] < axis.extent
            for axis in order
            if axis.extent % self.own[axis.name]
        ]
        if points % (tile.block_size * vector):
            tests.insert(0, piece < points // vector)
        lane = self.var("lane")
        each = dict(digits(piece * vector + lane, order, extents))
        return _Rounds(var, count, lane, vector, first, each, conjunction(tests) if tests else None)

    def stage(self, place: int, part: Any) -> tuple[list[Any], Any]:
        """Copy a part to shared memory; gives also what reads it back, at places in the box."""
        order = self.copy.sources[place].order(self.copy.axes)
        rounds = self.rounds(order, self.tile.loads[place])
        dtype = str(part.ty.dtype)
        box = [Axis(axis.name, self.own[axis.name]) for axis in self.copy.axes]
        strides, size = pitches(box, order[-1].name, element_size(dtype))
        shared = self.buffer(f"shared_{place}", size, dtype, "shared")
        own = self.buffer(f"fetched_{place}", rounds.count * rounds.vector, dtype, "local")

        def position(at: Values) -> Any:
            return sum((at[name] * stride for name, stride in strides.items()), self.number(0))

        slot = rounds.var * rounds.vector + rounds.lane
        fetched = tirx.BufferStore(own, self.wide(part, rounds), [slot])
        kept = tirx.BufferStore(shared, tirx.BufferLoad(own, [slot]), [position(rounds.each)])
        kinds = ((fetched, tirx.ForKind.VECTORIZED), (kept, tirx.ForKind.UNROLLED))
        statements = [
            self.loop(
                rounds.var,
                rounds.count,
                tirx.ForKind.UNROLLED,
                self.guarded(rounds.test, self.loop(rounds.lane, rounds.vector, kind, body)),
            )
            for body, kind in kinds
        ]
        return statements, lambda at: tirx.BufferLoad(shared, [position(at)])

    def store(self, staged: Mapping[str, Any]) -> Any:
        """Store the outputs of a thread: its reads of global memory, the expression, its stores."""
        rounds = self.rounds(self.copy.axes, self.tile.vector)
        lane, vector = rounds.lane, rounds.vector
        statements: list[Any] = []
        values: dict[Any, Any] = {}
        for place, (var, part) in enumerate(self.parts):
            if str(var.name) in staged:
                values[var] = staged[str(var.name)](rounds.each)
            elif is_same_for(vector, self.copy.sources[place], self.copy.axes, self.own):
                values[var] = self.placed(part, rounds.first)
            elif self.tile.loads[place] > 1:
                own = self.buffer(f"fetched_{place}", vector, str(part.ty.dtype), "local")
                body = tirx.BufferStore(own, self.wide(part, rounds), [lane])
                statements.append(self.loop(lane, vector, tirx.ForKind.VECTORIZED, body))
                values[var] = tirx.BufferLoad(own, [lane])
            else:
                values[var] = self.placed(part, rounds.each)
        target = self.digits.buffers[-1][0]
        value = substituted(self.placed(self.value, rounds.each), values)
        first = self.placed(self.digits.place, rounds.first)
        if vector > 1:
            own = self.buffer("result", vector, str(target.ty.dtype), "local")
            body = tirx.BufferStore(own, value, [lane])
            statements.append(self.loop(lane, vector, tirx.ForKind.UNROLLED, body))
            value = tirx.BufferLoad(own, [lane])
        body = tirx.BufferStore(*self.wide_place(target, first, lane, value))
        statements.append(self.loop(lane, vector, tirx.ForKind.VECTORIZED, body))
        inner: Any = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
        guarded = self.guarded(rounds.test, inner)
        return self.loop(rounds.var, rounds.count, tirx.ForKind.UNROLLED, guarded)

    def wide(self, part: Any, rounds: _Rounds) -> Any:
        """A part with loads that go on by a lane each from the first, and tests that do not."""

        def load(node: ir.TensorLoad) -> Any:
            return tirx.BufferLoad(*self.wide_place(node.source, node.indices[0], rounds.lane))

        moved = tvm_ffi.structural_map(part, (ir.TensorLoad, load), order="post")
        return self.placed(moved, rounds.first)

    def placed(self, expr: Any, local: Values) -> Any:
        """``expr`` at these places of the block's box."""
        names = {var: str(var.name) for var, _ in self.digits.axes}
        return substituted(expr, {v: self.origin[n] + local[n] for v, n in names.items()})

    def with_shapes(self, statement: Any) -> Any:
        """``statement`` with loads from the tensors that callers know for their stand-ins."""

        def load(node: ir.TensorLoad) -> Any:
            is_flat = any(flat.same_as(node.source) for flat, _ in self.digits.buffers)
            return tirx.BufferLoad(*self.shaped(node.source, node.indices[0])) if is_flat else node

        return tvm_ffi.structural_map(statement, ((ir.TensorLoad, load),), order="post")

    def shaped(self, stand_in: Any, place: Any) -> tuple[Any, list[Any]]:
        """The tensor that a flat one stands for, and its indices of a flat place."""
        (tensor,) = (own for flat, own in self.digits.buffers if flat.same_as(stand_in))
        return tensor, split(place, [int(extent) for extent in tensor.ty.shape])

    def wide_place(self, stand_in: Any, first: Any, lane: Any, *value: Any) -> tuple[Any, ...]:
        """The tensor that a flat one stands for, ``value`` if it is to be stored, and the indices
        of a vector's elements, given the first's place.

        They count on in the last dimension, as memory does: divided among the dimensions, TVM would
        compute an index for each element, and not see that they are neighbours.
        """
        (tensor,) = (own for flat, own in self.digits.buffers if flat.same_as(stand_in))
        last = [first + lane] if tensor.ty.shape else []
        indices = [self.number(0) for _ in list(tensor.ty.shape)[1:]] + last
        return (tensor, *value, indices)

    def loop(self, var: Any, extent: int, kind: Any, body: Any) -> Any:
        """A loop around ``body``, with a variable of its own."""
        own = self.var(str(var.name))
        if extent == 1:
            return substituted(body, {var: self.number(0)})
        return loop(own, extent, kind, substituted(body, {var: own}))

    def guarded(self, test: Any, body: Any) -> Any:
        """The statement, under a test if there is one."""
        return body if test is None else tirx.IfThenElse(test, body, None)

    def buffer(self, name: str, size: int, dtype: str, scope: str) -> Any:
        """A new buffer of one dimension."""
        self.buffers.append(tirx.decl_buffer([size], dtype, name, scope=scope))
        return self.buffers[-1]

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block takes, once it is written."""
        shared = (buffer for buffer in self.buffers if buffer.scope() == "shared")
        return sum(int(own.ty.shape[0]) * element_size(str(own.ty.dtype)) for own in shared)

    def var(self, name: str) -> Any:
        """A variable of the function's index type."""
        return tirx.Var(name, self.index_type)

    def number(self, value: int) -> Any:
        """A number of the function's index type."""
        return tirx.IntImm(self.index_type, value)


def write_transpose(
    func: tirx.PrimFunc, outputs: Sequence[Output], tiles: tuple[TransposeTile, ...]
) -> Scheduled:
    """``func`` as one kernel an output, with these tiles."""
    writers = [_CopyWriter(output, tile) for output, tile in zip(outputs, tiles, strict=True)]
    kernels = [writer.write() for writer in writers]
    body = kernels[0] if len(kernels) == 1 else tirx.SeqStmt(kernels)
    buffers = [buffer for writer in writers for buffer in writer.buffers]
    root = SBlock([], [], [], "root", body, None, buffers)
    main = max(tiles, key=lambda tile: tile.seconds)
    whole = replace(
        main,
        seconds=sum(tile.seconds for tile in tiles),
        shared_bytes=max(writer.shared_bytes for writer in writers),
        registers=max(tile.registers for tile in tiles),
    )
    return as_written(func.with_body(SBlockRealize([], True, root)), TRANSPOSE, whole)
