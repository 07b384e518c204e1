"""Copies whose output does not lie in memory as what they read does: transposes, shuffles, pads.

Before → after, for a transpose through shared memory::

    for i, j: B[i, j] = f(A[j, i])

    for box in blockIdx:  for thread in threadIdx:
        for round:  own[round, 0:8] = A[j, i:i+8]
        for round:  S[i, j] = own[round, v]                       for each v
        barrier
        for round:  out[v] = f(S[i, j + v]) for each v;  B[i, j:j+8] = out[0:8]

Without shared memory, threads run through all outputs, and only the last line is left. Either
way a thread divides an index once for several elements. ``tile/transpose.py`` chooses;
:mod:`tvm_tile.schedule.digits` makes the accesses affine first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract_operator, loads_in
from tvm_tile.graph.tile_graph import Access, Axis, Tensor
from tvm_tile.schedule.digits import Digits, read_digits
from tvm_tile.schedule.guards import conjunction, substituted
from tvm_tile.schedule.normalize import inline_spatial
from tvm_tile.schedule.rule import Choice, Scheduled, Task
from tvm_tile.tile.plain import construct_plain
from tvm_tile.tile.transpose import Copy, Source, TransposeTile, construct_transpose

_IF = ir.Op.get("prim.if_then_else")
_WORD = 4  # bytes of a bank of shared memory
Values = Mapping[str, Any]
"""What stands for a digit, by its name."""


@dataclass(frozen=True, slots=True)
class _Output:
    """One output: its digits, the parts of its expression that read, and both as plain data."""

    digits: Digits
    value: Any
    parts: tuple[tuple[Any, Any], ...]
    copy: Copy


def schedule_transpose(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for copies that one element a thread, or plain vectors, would read badly."""
    if task.graph.reductions:
        return ()
    sch = Schedule(task.func)
    form = inline_spatial(sch, keep_producers=False)
    if form is None or form.producers or not form.outputs:
        return ()
    blocks = [sch.get(sch.get_sblock(name)) for name in form.outputs]
    known = [output for output in map(_read, blocks) if output is not None]
    if len(known) < len(blocks):
        return ()
    choices = [construct_transpose(output.copy, task.device) for output in known]
    firsts = zip(blocks, (tiles[0] for tiles in choices), strict=True)
    if all(_is_plain(block, tile, task.device) for block, tile in firsts):
        return ()
    together = list(zip(*choices, strict=False))[:count]
    return tuple(partial(_written, sch.mod["main"], known, tiles) for tiles in together)


def _is_plain(block: SBlock, tile: TransposeTile, device: Device) -> bool:
    """Whether the rule for element-wise functions reads and stores as this tile does."""
    operator = extract_operator(block)
    if operator is None or tile.extents or any(load < tile.vector for load in tile.loads):
        return False
    return construct_plain(operator, device)[0].vector >= tile.vector


def _read(block: SBlock) -> _Output | None:
    digits = read_digits(block)
    if digits is None or not digits.axes:
        return None
    value, parts = _parted(digits.value)
    axes = tuple(Axis(str(var.name), extent) for var, extent in digits.axes)
    write = _access(digits, digits.buffers[-1][0], digits.place)
    sources = []
    for _, part in parts:
        reads = [_access(digits, load.source, load.indices[0]) for load in loads_in(part)]
        sources.append(Source(tuple(dict.fromkeys(reads)), digits.used(part)))
    accesses = [write, *(read for source in sources for read in source.reads)]
    strides = [write.indices[0].coefficient(axis.name) for axis in axes]
    is_in_order = strides == [math.prod(a.extent for a in axes[n + 1 :]) for n in range(len(axes))]
    if not sources or not is_in_order or not all(access.is_exact for access in accesses):
        return None
    return _Output(digits, value, parts, Copy(axes, tuple(sources), write))


def _access(digits: Digits, buffer: Any, place: Any) -> Access:
    shape = tuple(int(extent) for extent in buffer.ty.shape)
    tensor = Tensor(str(buffer.name), shape, str(buffer.ty.dtype))
    return Access(tensor, (digits.affine(place),))


def _parted(expr: Any) -> tuple[Any, tuple[tuple[Any, Any], ...]]:
    """``expr`` with variables for its parts that read, and these: (variable, part).

    Such a part is an outermost load, or an outermost choice that holds loads; each occurs once.
    """
    found: list[tuple[Any, Any]] = []

    def visit(node: Any) -> Any:
        if isinstance(node, ir.Call) and not (node.op.same_as(_IF) and loads_in(node)):
            return node
        for var, part in found:
            if tvm_ffi.structural_equal(part, node):
                return var
        found.append((tirx.Var(f"part_{len(found)}", str(node.ty.dtype)), node))
        return found[-1][0]

    value = tvm_ffi.structural_map(expr, ((ir.TensorLoad, ir.Call), visit), order="pre")
    return value, tuple(found)


class _Writer:
    """Writes one output's kernel."""

    def __init__(self, output: _Output, tile: TransposeTile) -> None:
        self.digits, self.copy, self.tile = output.digits, output.copy, tile
        self.value, self.parts = output.value, output.parts
        self.index_type = str(output.digits.axes[0][0].ty.dtype)
        self.buffers: list[Any] = []
        extents = tile.extents or tuple(axis.extent for axis in self.copy.axes)
        self.own = {axis.name: n for axis, n in zip(self.copy.axes, extents, strict=True)}
        self.block, self.thread = self.var("block"), self.var("thread")
        self.origin = self.origins()

    def write(self) -> Any:
        """The kernel: loops over blocks and threads, and what is in them."""
        tile = self.tile
        stored: dict[str, Any] = {}
        body: list[Any] = []
        for place, (var, part) in enumerate(self.parts):
            if tile.staged[place]:
                statements, stored[str(var.name)] = self.stage(place, part)
                body += statements
        body.append(self.store(stored))
        whole: Any = body[0] if len(body) == 1 else tirx.SeqStmt(body)
        loops = ((self.thread, tile.threads, "threadIdx.x"), (self.block, tile.grid, "blockIdx.x"))
        for var, extent, tag in loops:
            axis = tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)
            bounds = (self.number(0), self.number(extent))
            whole = tirx.For(var, *bounds, tirx.ForKind.THREAD_BINDING, whole, axis)
        return self.with_shapes(whole)

    def origins(self) -> dict[str, Any]:
        """Where a block's box begins."""
        if not self.tile.extents:
            return {axis.name: self.number(0) for axis in self.copy.axes}
        counts = [(axis.name, -(-axis.extent // self.own[axis.name])) for axis in self.copy.axes]
        at = self.split(self.block, counts)
        return {name: at[name] * self.own[name] for name, _ in counts}

    def split(self, flat: Any, extents: Sequence[tuple[str, int]]) -> dict[str, Any]:
        """A flat number as digits, the last one fastest."""
        found, count = {}, 1
        for place, (name, extent) in reversed(list(enumerate(extents))):
            high = tirx.floordiv(flat, count) if count > 1 else flat
            found[name] = tirx.floormod(high, extent) if place else high
            count *= extent
        return found

    def rounds(self, order: Sequence[Axis], vector: int) -> tuple[Any, int, dict[str, Any], Any]:
        """How a block's threads go through its outputs along ``order``, ``vector`` at a time.

        Returns:
            The loop variable and its extent, places in the box, and the test whether they are
            outputs, if not all are.
        """
        tile, round_ = self.tile, self.var("round")
        extents = [(axis.name, self.own[axis.name]) for axis in order]
        points = math.prod(extent for _, extent in extents)
        tests = []
        if not tile.extents:
            piece: Any = self.block * tile.threads + self.thread
            count = 1
            if points % (tile.threads * vector):
                tests.append(piece < points // vector)
        else:
            piece = round_ * tile.threads + self.thread
            count = -(-points // (tile.threads * vector))
            if points % (tile.threads * vector):
                tests.append(piece < points // vector)
        local = self.split(piece * vector, extents)
        for axis in order:
            if axis.extent % self.own[axis.name]:
                tests.append(self.origin[axis.name] + local[axis.name] < axis.extent)
        return round_, count, local, conjunction(tests) if tests else None

    def stage(self, place: int, part: Any) -> tuple[list[Any], Any]:
        """A part from global to shared memory; also what reads it back, given places in the box."""
        source, vector = self.copy.sources[place], self.tile.loads[place]
        order = source.order(self.copy.axes)
        round_, count, local, test = self.rounds(order, vector)
        strides, size = self.pitches(order[-1].name, part)
        dtype = str(part.ty.dtype)
        shared = self.buffer(f"shared_{place}", size, dtype, "shared")
        own = self.buffer(f"fetched_{place}", count * vector, dtype, "local")

        def position(at: Values) -> Any:
            return sum((at[name] * stride for name, stride in strides.items()), self.number(0))

        lane = self.var("lane")
        here = {**local, order[-1].name: local[order[-1].name] + lane}
        fetched = tirx.BufferStore(own, self.placed(part, here), [round_ * vector + lane])
        kept = tirx.BufferLoad(own, [round_ * vector + lane])
        shelved = tirx.BufferStore(shared, kept, [position(here)])
        statements = []
        for body, kind in ((fetched, tirx.ForKind.VECTORIZED), (shelved, tirx.ForKind.UNROLLED)):
            inner = self.guarded(test, self.loop(lane, vector, kind, body))
            statements.append(self.loop(round_, count, tirx.ForKind.UNROLLED, inner))
        return statements, lambda at: tirx.BufferLoad(shared, [position(at)])

    def pitches(self, across: str, part: Any) -> tuple[dict[str, int], int]:
        """Strides of a staged box, and its size: an odd number of words along its loads."""
        words = max(1, _WORD // Tensor("", (), str(part.ty.dtype)).element_size)
        strides, stride = {}, 1
        for axis in reversed(self.copy.axes):
            if axis.name == across:
                stride = -(-stride // words) * words
                stride += words * (stride // words % 2 == 0)
            strides[axis.name] = stride
            stride *= self.own[axis.name]
        return strides, stride

    def store(self, staged: Mapping[str, Any]) -> Any:
        """The outputs of a thread: its reads of global memory, the expression, its stores."""
        tile, vector = self.tile, self.tile.vector
        last = self.copy.axes[-1].name
        round_, count, local, test = self.rounds(self.copy.axes, vector)
        lane = self.var("lane")
        here = {**local, last: local[last] + lane}
        statements, values = [], []
        for place, (var, part) in enumerate(self.parts):
            if str(var.name) in staged:
                values.append((var, staged[str(var.name)](here)))
            elif tile.loads[place] > 1:
                own = self.buffer(f"fetched_{place}", vector, str(part.ty.dtype), "local")
                body = tirx.BufferStore(own, self.placed(part, here), [lane])
                statements.append(self.loop(lane, vector, tirx.ForKind.VECTORIZED, body))
                values.append((var, tirx.BufferLoad(own, [lane])))
            else:
                values.append((var, self.placed(part, here)))
        value = substituted(self.placed(self.value, here), values)
        target = self.digits.buffers[-1][0]
        index = self.placed(self.digits.place, here)
        if vector == 1:
            statements.append(self.loop(lane, 1, tirx.ForKind.UNROLLED, tirx.BufferStore(target, value, [index])))
        else:
            own = self.buffer("result", vector, str(target.ty.dtype), "local")
            body = tirx.BufferStore(own, value, [lane])
            statements.append(self.loop(lane, vector, tirx.ForKind.UNROLLED, body))
            body = tirx.BufferStore(target, tirx.BufferLoad(own, [lane]), [index])
            statements.append(self.loop(lane, vector, tirx.ForKind.VECTORIZED, body))
        inner: Any = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
        return self.loop(round_, count, tirx.ForKind.UNROLLED, self.guarded(test, inner))

    def placed(self, expr: Any, local: Values) -> Any:
        """``expr`` at these places of the block's box."""
        pairs = [
            (var, self.origin[str(var.name)] + local[str(var.name)]) for var, _ in self.digits.axes
        ]
        return substituted(expr, pairs)

    def with_shapes(self, statement: Any) -> Any:
        """``statement`` with the tensors that callers know for their flat stand-ins."""

        def shaped(buffer: Any, flat: Any) -> tuple[Any, list[Any]] | None:
            for own, original in self.digits.buffers:
                if own.same_as(buffer):
                    return original, _unflattened(flat, [int(n) for n in original.ty.shape])
            return None

        def load(node: ir.TensorLoad) -> Any:
            found = shaped(node.source, node.indices[0])
            return tirx.BufferLoad(*found) if found else node

        def store(node: tirx.BufferStore) -> Any:
            found = shaped(node.buffer, node.indices[0])
            return tirx.BufferStore(found[0], node.value, found[1]) if found else node

        entries = [(ir.TensorLoad, load), (tirx.BufferStore, store)]
        return tvm_ffi.structural_map(statement, entries, order="post")

    def loop(self, var: Any, extent: int, kind: Any, body: Any) -> Any:
        """A loop around ``body``, with a variable of its own."""
        own = self.var(str(var.name))
        if extent == 1:
            return substituted(body, [(var, self.number(0))])
        return tirx.For(own, self.number(0), self.number(extent), kind, substituted(body, [(var, own)]))

    def guarded(self, test: Any, body: Any) -> Any:
        return body if test is None else tirx.IfThenElse(test, body, None)

    def buffer(self, name: str, size: int, dtype: str, scope: str) -> Any:
        self.buffers.append(tirx.decl_buffer([size], dtype, name, scope=scope))
        return self.buffers[-1]

    def var(self, name: str) -> Any:
        return tirx.Var(name, self.index_type)

    def number(self, value: int) -> Any:
        return tirx.IntImm(self.index_type, value)


def _unflattened(flat: Any, shape: Sequence[int]) -> list[Any]:
    places, count = [], 1
    for dimension, extent in reversed(list(enumerate(shape))):
        high = tirx.floordiv(flat, count) if count > 1 else flat
        places.append(tirx.floormod(high, extent) if dimension else high)
        count *= extent
    return places[::-1]


def _written(func: tirx.PrimFunc, outputs: Sequence[_Output], tiles: tuple[TransposeTile, ...]) -> Scheduled:
    writers = [_Writer(output, tile) for output, tile in zip(outputs, tiles, strict=True)]
    kernels = [writer.write() for writer in writers]
    body = kernels[0] if len(kernels) == 1 else tirx.SeqStmt(kernels)
    buffers = [buffer for writer in writers for buffer in writer.buffers]
    root = SBlock([], [], [], "root", body, None, buffers)
    main = max(tiles, key=lambda tile: tile.seconds)
    return Scheduled(
        func.with_body(SBlockRealize([], True, root)),
        "transpose",
        main.describe(),
        main.grid,
        main.threads,
        sum(tile.seconds for tile in tiles),
    )
