"""Write a sliding window's kernel, in which each thread sums a strip of outputs.

``window.py`` shows the kernel. Rows are written out one after another, so that TVM and the
compiler know of each which outputs it is added to, and whether it can lie outside the image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.extract import loads_in
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.schedule.guards import substituted
from tvm_tile.schedule.padding import implies
from tvm_tile.tile.window import Line, WindowTile

Values = Mapping[str, Any]
"""What stands for an axis of the sum, by its name."""
Loops = list[tuple[Any, int]]
"""Loop variables and their extents."""

_IF = ir.Op.get("prim.if_then_else")


@dataclass(frozen=True, slots=True)
class Blocks:
    """The parts of a function that sums windows.

    Attributes:
        func: the whole.
        operator: the sum.
        main: its block.
        producers: blocks that pad what slides.
        after: the block that takes each sum to the output, if that is more than a copy.
    """

    func: tirx.PrimFunc
    operator: Operator
    main: SBlock
    producers: tuple[SBlock, ...]
    after: SBlock | None


def write_strips(blocks: Blocks, tile: WindowTile) -> tirx.PrimFunc:
    """``blocks.func`` as a kernel with that tile."""
    return blocks.func.with_body(_Writer(blocks, tile).write())


class _Writer:
    """Writes one tile."""

    def __init__(self, blocks: Blocks, tile: WindowTile) -> None:
        self.blocks, self.tile = blocks, tile
        self.spatial = blocks.operator.spatial_axes
        self.index_type = str(blocks.main.iter_vars[0].var.ty.dtype)
        self.summed = blocks.main.writes[0].source
        own = [tile.own(axis.name) for axis in self.spatial]
        self.sums = _registers("sums", own, str(self.summed.ty.dtype))
        self.lines = [
            (line, _registers(f"line_{i}", line.extents, self.line_type(line)))
            for i, line in enumerate(tile.lines)
        ]

    def line_type(self, line: Line) -> str:
        """What registers hold: the element as the sum takes it, widened once for all outputs."""
        casts: list[Any] = []
        tvm_ffi.structural_walk(self.blocks.main.body.value, (tirx.Cast, casts.append), order="pre")
        load = self.load_of(line)
        wider = [str(cast.ty.dtype) for cast in casts if cast.value.same_as(load)]
        return wider[0] if wider else str(load.ty.dtype)

    def load_of(self, line: Line) -> Any:
        """The load of the summing block that ``line`` is for."""
        loads = loads_in(self.blocks.main.body.value)
        return next(load for load in loads if str(load.source.name) == line.read.tensor.name)

    def write(self) -> Any:
        """The body of the function."""
        tile = self.tile
        block, thread = self.var("block"), self.var("thread")
        origin, has_outputs = self.origin(block * tile.threads + thread)
        body: Any = tirx.SeqStmt([self.start(), *self.work(origin)])
        if has_outputs is not None:
            body = tirx.IfThenElse(has_outputs, body, None)
        for var, extent, tag in (
            (thread, tile.threads, "threadIdx.x"),
            (block, tile.grid, "blockIdx.x"),
        ):
            axis = tirx.IterVar(None, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)
            bounds = (self.number(0), self.number(extent))
            body = tirx.For(var, *bounds, tirx.ForKind.THREAD_BINDING, body, axis)
        registers = [self.sums, *(buffer for _, buffer in self.lines)]
        return SBlockRealize([], True, SBlock([], [], [], "root", body, None, registers))

    def origin(self, flat: Any) -> tuple[dict[str, Any], Any]:
        """The first output of a thread; and whether it has one, if not all have.

        Threads run through all strips regardless of rows, so that warps are full.
        """
        origin, count = {}, 1
        for axis in reversed(self.spatial):
            own = self.tile.own(axis.name)
            strips = -(-axis.extent // own)
            origin[axis.name] = tirx.floormod(tirx.floordiv(flat, count), strips) * own
            count *= strips
        return origin, None if count % self.tile.threads == 0 else flat < count

    def start(self) -> Any:
        """Nothing is summed yet."""
        places, loops = self.own_places()
        return self.nest(loops, tirx.BufferStore(self.sums, self.blocks.main.init.value, places))

    def work(self, origin: Values) -> Iterator[Any]:
        """Row after row: read it, add it to the outputs that it belongs to, store the finished."""
        tile = self.tile
        for row in range(tile.rows):
            taps = tile.taps(row)
            if not taps:
                continue
            for line, buffer in self.lines:
                yield self.read(line, buffer, origin, row)
            yield self.add(origin, row, taps)
            if taps[-1] == tile.window.size - 1 and not tile.stores_late:
                yield self.store(origin, (row - taps[-1]) // tile.step)
        if tile.stores_late:
            yield from (self.store(origin, finished) for finished in range(tile.strip))

    def read(self, line: Line, buffer: Any, origin: Values, row: int) -> Any:
        """One row of what slides, into registers."""
        loops = [(self.var(f"at_{d}"), extent) for d, extent in enumerate(line.extents)]
        load, start = self.load_of(line), self.values(origin)
        producer = next(
            (p for p in self.blocks.producers if p.writes[0].source.same_as(load.source)), None
        )
        places, guards = [], []
        for dimension, (own, _) in enumerate(loops):
            offset = own * line.scales[dimension]
            if dimension == line.dimension:
                offset = self.number(row * self.tile.spacing)
            place = substituted(load.indices[dimension], start) + offset
            places.append(place)
            safe, extent = line.safe[dimension], line.read.tensor.shape[dimension]
            if safe is not None and not (producer and _pads(producer, dimension, extent)):
                guards.append(tirx.any(offset < self.number(safe), place < self.number(extent)))
        value: Any = tirx.BufferLoad(load.source, places)
        if producer:
            pairs = [(v.var, p) for v, p in zip(producer.iter_vars, places, strict=True)]
            value = substituted(producer.body.value, pairs)
        for guard in guards:
            value = tirx.if_then_else(guard, value, tirx.const(0, load.ty.dtype))
        if str(buffer.ty.dtype) != str(load.ty.dtype):
            value = tirx.Cast(buffer.ty.dtype, value)
        return self.nest(loops, tirx.BufferStore(buffer, value, [var for var, _ in loops]))

    def add(self, origin: Values, row: int, taps: Sequence[int]) -> Any:
        """Add a row to each output whose window holds it, as one of its ``taps``."""
        tile, main = self.tile, self.blocks.main
        places, own_loops = self.own_places({tile.window.axis})
        tap = self.var("tap")
        position = [axis.name for axis in self.spatial].index(tile.window.axis)
        places[position] = self.number((row - taps[0]) // tile.step) - tap
        local = {axis.name: place for axis, place in zip(self.spatial, places, strict=True)}
        local[tile.window.tap] = tap * tile.step + taps[0]
        loops: Loops = [(tap, len(taps))]
        for axis in self.blocks.operator.reduce_axes:
            if axis.name not in local:
                local[axis.name] = self.var(axis.name)
                loops.append((local[axis.name], axis.extent))
        whole = {name: origin[name] + v if name in origin else v for name, v in local.items()}

        def visit(load: ir.TensorLoad) -> Any:
            if load.source.same_as(self.summed):
                return tirx.BufferLoad(self.sums, places)
            for line, buffer in self.lines:
                if str(load.source.name) == line.read.tensor.name:
                    return tirx.BufferLoad(buffer, self.within(line, local))
            return load

        value = tvm_ffi.structural_map(main.body.value, (ir.TensorLoad, visit), order="post")
        value = substituted(value, self.values(whole))
        return self.nest([*loops, *own_loops], tirx.BufferStore(self.sums, value, places))

    def within(self, line: Line, local: Values) -> list[Any]:
        """Where in the registers of a row the element is that an output takes."""
        places = []
        for dimension, index in enumerate(line.read.indices):
            place: Any = self.number(0)
            for axis, factor in index.terms:
                if dimension != line.dimension and self.tile.is_local(axis):
                    place = place + local[axis] * (factor // line.scales[dimension])
            places.append(place)
        return places

    def store(self, origin: Values, finished: int) -> Any:
        """Take a finished output of the strip, in all columns, to global memory."""
        axis = self.tile.window.axis
        places, loops = self.own_places({axis})
        places[[a.name for a in self.spatial].index(axis)] = self.number(finished)
        whole = [origin[a.name] + p for a, p in zip(self.spatial, places, strict=True)]
        overhanging = [
            place < a.extent
            for a, place in zip(self.spatial, whole, strict=True)
            if a.extent % self.tile.own(a.name)
        ]
        value: Any = tirx.BufferLoad(self.sums, places)
        after = self.blocks.after
        if after is None:
            body: Any = tirx.BufferStore(self.summed, value, whole)
        else:
            sums = value
            value = tvm_ffi.structural_map(
                after.body.value,
                (ir.TensorLoad, lambda load: sums if load.source.same_as(self.summed) else load),
                order="post",
            )
            pairs = [(v.var, p) for v, p in zip(after.iter_vars, whole, strict=True)]
            indices = [substituted(index, pairs) for index in after.body.indices]
            body = tirx.BufferStore(after.body.buffer, substituted(value, pairs), indices)
        for test in overhanging:
            body = tirx.IfThenElse(test, body, None)
        return self.nest(loops, body)

    def own_places(
        self, without: frozenset[str] | set[str] = frozenset()
    ) -> tuple[list[Any], Loops]:
        """Places of a thread's outputs among its sums, and the loops over them."""
        places: list[Any] = []
        loops: Loops = []
        for axis in self.spatial:
            own = self.tile.own(axis.name)
            places.append(self.number(0))
            if own > 1 and axis.name not in without:
                places[-1] = self.var(f"own_{axis.name}")
                loops.append((places[-1], own))
        return places, loops

    def values(self, values: Values) -> list[tuple[Any, Any]]:
        """Variables of the summing block, and ``values`` for them; zero where none is given."""
        axes = zip(self.blocks.main.iter_vars, self.blocks.operator.axes, strict=True)
        return [(v.var, values.get(axis.name, self.number(0))) for v, axis in axes]

    def nest(self, loops: Loops, body: Any) -> Any:
        """Unrolled loops around ``body``."""
        for var, extent in reversed(loops):
            bounds = (self.number(0), self.number(extent))
            body = tirx.For(var, *bounds, tirx.ForKind.UNROLLED, body)
        return body

    def var(self, name: str) -> Any:
        return tirx.Var(name, self.index_type)

    def number(self, value: int) -> Any:
        return tirx.IntImm(self.index_type, value)


def _pads(producer: SBlock, dimension: int, extent: int) -> bool:
    """Whether padding tests by itself that a place is not behind the end of a dimension."""
    value = producer.body.value
    if not (isinstance(value, ir.Call) and value.op.same_as(_IF)):
        return False
    return implies(value.args[0], producer.iter_vars[dimension].var < extent)


def _registers(name: str, extents: Sequence[int], dtype: str) -> Any:
    return tirx.decl_buffer(list(extents), dtype, name, scope="local")
