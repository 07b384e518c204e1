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

from tvm_tile.graph.expression import substituted
from tvm_tile.graph.extract import is_choice, loads_in, nodes_in
from tvm_tile.schedule.s_tir.guards import conjunction
from tvm_tile.schedule.s_tir.padding import implies, padding_of
from tvm_tile.schedule.s_tir.steps import launched, loop
from tvm_tile.schedule.s_tir.window_blocks import WindowBlocks
from tvm_tile.tile.windows.window import Line, WindowTile

Values = Mapping[str, Any]
"""What stands for an axis of the sum, by its name."""
Loops = list[tuple[Any, int]]
"""Loop variables and their extents."""


@dataclass(frozen=True, slots=True)
class HeldStrip:
    """The registers in which a thread holds a row of what slides.

    Attributes:
        line: the row.
        buffer: registers for a row, as the sum takes its elements.
        vectors: registers for what is read at once, as it lies in memory; ``None`` where each
            element is read by itself.
    """

    line: Line
    buffer: Any
    vectors: Any


def write_strips(blocks: WindowBlocks, tile: WindowTile) -> tirx.PrimFunc:
    """``blocks.func`` as a kernel that sums strips as the tile says."""
    return blocks.func.with_body(_StripWriter(blocks, tile).write())


class _StripWriter:
    """Writes the kernel of one tile."""

    def __init__(self, blocks: WindowBlocks, tile: WindowTile) -> None:
        self.blocks, self.tile = blocks, tile
        self.spatial = blocks.operator.spatial_axes
        self.index_type = str(blocks.main.iter_vars[0].var.ty.dtype)
        self.summed = blocks.main.writes[0].source
        own = [tile.own(axis.name) for axis in self.spatial]
        self.sums = _registers("sums", own, str(self.summed.ty.dtype))
        self.lines = [self.held(line, f"line_{i}") for i, line in enumerate(tile.lines)]
        # What is stored at once, in the output's type.
        self.stored = _registers("stored", [tile.vectors.count], str(self.output.ty.dtype))

    @property
    def output(self) -> Any:
        """The tensor that the kernel writes."""
        after = self.blocks.after
        return self.summed if after is None else after.body.buffer

    def held(self, line: Line, name: str) -> HeldStrip:
        """The registers for the rows of an access."""
        buffer = _registers(name, line.extents, self.line_type(line))
        if self.tile.vectors.count == 1:
            return HeldStrip(line, buffer, None)
        extents = list(line.extents)
        extents[line.lane] = self.tile.vectors.count
        producer = self.blocks.producer_of(line.read.tensor.name)
        source = loads_in(producer.body.value)[0] if producer else self.load_of(line)
        return HeldStrip(line, buffer, _registers(f"{name}_vectors", extents, str(source.ty.dtype)))

    def line_type(self, line: Line) -> str:
        """Type of elements in registers: as the sum takes them, widened once for all outputs."""
        casts = nodes_in(self.blocks.main.body.value, tirx.Cast)
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
        origin, has_outputs = self.origin(block * tile.block_size + thread)
        body: Any = tirx.SeqStmt([self.start(), *self.work(origin)])
        if has_outputs is not None:
            body = tirx.IfThenElse(has_outputs, body, None)
        body = launched(body, (block, tile.grid), (thread, tile.block_size))
        registers = [self.sums, *(held.buffer for held in self.lines)]
        if tile.vectors.count > 1:
            registers += [self.stored, *(held.vectors for held in self.lines)]
        return SBlockRealize([], True, SBlock([], [], [], "root", body, None, registers))

    def origin(self, flat: Any) -> tuple[dict[str, Any], Any]:
        """The first output of a thread; and the test of whether it has one, if not all have.

        Threads run through all strips regardless of rows, so that warps are full.
        """
        origin, count = {}, 1
        for axis in reversed(self.spatial):
            own = self.tile.own(axis.name)
            strips = -(-axis.extent // own)
            origin[axis.name] = tirx.floormod(tirx.floordiv(flat, count), strips) * own
            count *= strips
        return origin, None if count % self.tile.block_size == 0 else flat < count

    def start(self) -> Any:
        """A nest that sets all sums to what they start from."""
        places, loops = self.own_places()
        return self.nest(loops, tirx.BufferStore(self.sums, self.blocks.main.init.value, places))

    def work(self, origin: Values) -> Iterator[Any]:
        """A nest that reads row after row, adds each to outputs, and stores the finished ones."""
        tile = self.tile
        for row in range(tile.rows):
            taps = tile.taps(row)
            if not taps:
                continue
            for line in self.lines:
                yield from self.read(line, origin, row)
            yield self.add(origin, row, taps)
            if taps[-1] == tile.window.size - 1 and not tile.stores_late:
                yield from self.store(origin, (row - taps[-1]) // tile.step)
        if tile.stores_late:
            for finished in range(tile.strip):
                yield from self.store(origin, finished)

    def read(self, held: HeldStrip, origin: Values, row: int) -> Iterator[Any]:
        """A nest that reads one row of what slides into registers."""
        loops = self.loops_over(held.line.extents)
        at = [var for var, _ in loops]
        if held.vectors is None:
            value = self.element(held.line, at, origin, row)
        else:
            element = self.tile.place_in_vector(row)
            if row == 0 or element == 0:
                yield self.read_vectors(held, origin, row - element)
            places = list(at)
            if self.tile.are_rows_neighbours:
                places[held.line.dimension] = self.number(element)
            value = tirx.BufferLoad(held.vectors, places)
        if str(held.buffer.ty.dtype) != str(value.ty.dtype):
            value = tirx.Cast(held.buffer.ty.dtype, value)
        yield self.nest(loops, tirx.BufferStore(held.buffer, value, at))

    def element(self, line: Line, at: Sequence[Any], origin: Values, row: int) -> Any:
        """The value of one element of a row, or of its padding."""
        places, guards = self.places_of(line, at, origin, row)
        load = self.load_of(line)
        value: Any = tirx.BufferLoad(load.source, places)
        producer = self.blocks.producer_of(line.read.tensor.name)
        if producer:
            value = substituted(producer.body.value, self.pairs(producer, places))
        for guard in guards:
            value = tirx.if_then_else(guard, value, tirx.const(0, load.ty.dtype))
        return value

    def read_vectors(self, held: HeldStrip, origin: Values, row: int) -> Any:
        """A nest that reads a row, or all that a vector holds from ``row`` on, a vector at a time.

        A vector lies within the tensor or without as a whole: its first element tells.
        """
        line, vectors = held.line, held.vectors
        loops = self.loops_over(vectors.ty.shape)
        at = [var for var, _ in loops]
        lane, _ = loops.pop(line.lane)
        first = [self.number(0) if var is lane else var for var in at]
        places, _ = self.places_of(line, at, origin, row)
        tested, guards = self.places_of(line, first, origin, row)
        value: Any = tirx.BufferLoad(self.load_of(line).source, places)
        outside = tirx.const(0, vectors.ty.dtype)
        producer = self.blocks.producer_of(line.read.tensor.name)
        if producer and (padding := padding_of(producer)):
            value = substituted(padding.load, self.pairs(producer, places))
            outside = padding.outside
            guards.append(substituted(padding.condition, self.pairs(producer, tested)))

        def stored(what: Any) -> Any:
            return self.vector(lane, tirx.BufferStore(vectors, what, at))

        body = stored(value)
        if guards:
            inside = tirx.IfThenElse(conjunction(guards), body, None)
            body = tirx.SeqStmt([stored(outside), inside])
        return self.nest(loops, body)

    def places_of(
        self, line: Line, at: Sequence[Any], origin: Values, row: int
    ) -> tuple[list[Any], list[Any]]:
        """The place of a row's element in its tensor, and the conditions for it to be there."""
        load, start = self.load_of(line), self.values(origin)
        producer = self.blocks.producer_of(line.read.tensor.name)
        places, guards = [], []
        for dimension, own in enumerate(at):
            offset = own * line.scales[dimension]
            if dimension == line.dimension:
                offset = self.number(row * self.tile.spacing)
                offset = offset + own if self.tile.are_rows_neighbours else offset
            place = substituted(load.indices[dimension], start) + offset
            places.append(place)
            safe, extent = line.safe[dimension], line.read.tensor.shape[dimension]
            if producer and _pads(producer, dimension, extent):
                continue
            if safe is not None:
                guards.append(tirx.any(offset < self.number(safe), place < self.number(extent)))
            if line.least[dimension] < 0:
                guards.append(place >= self.number(0))
        return places, guards

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
            for held in self.lines:
                if str(load.source.name) == held.line.read.tensor.name:
                    return tirx.BufferLoad(held.buffer, self.within(held.line, local))
            return load

        value = tvm_ffi.structural_map(main.body.value, (ir.TensorLoad, visit), order="post")
        value = substituted(value, self.values(whole))
        return self.nest([*loops, *own_loops], tirx.BufferStore(self.sums, value, places))

    def within(self, line: Line, local: Values) -> list[Any]:
        """The place in a row's registers of the element that an output takes."""
        places = []
        for dimension, index in enumerate(line.read.indices):
            place: Any = self.number(0)
            for axis, factor in index.terms:
                if dimension != line.dimension and self.tile.is_local(axis):
                    place = place + local[axis] * (factor // line.scales[dimension])
            places.append(place)
        return places

    def store(self, origin: Values, finished: int) -> Iterator[Any]:
        """Take a finished output of the strip, in all columns, to global memory.

        Where vectors lie along the strip, the last output of one takes the others along.
        """
        tile, axis = self.tile, self.tile.window.axis
        lane, count = tile.vectors.axis, tile.vectors.count
        if tile.are_rows_neighbours and (finished + 1) % count:
            return
        places, loops = self.own_places({axis, lane})
        names = [a.name for a in self.spatial]
        places[names.index(axis)] = self.number(finished)
        if count == 1:
            body = self.store_at(origin, places, self.finished(origin, places))
            yield self.nest(loops, self.guarded(origin, places, body))
            return
        at = names.index(lane)
        places[at] = self.number(finished + 1 - count if lane == axis else 0)
        each, together = self.var("each"), self.var("together")
        one, all_ = ([*places[:at], places[at] + v, *places[at + 1 :]] for v in (each, together))
        rounded = tirx.BufferStore(self.stored, self.finished(origin, one), [each])
        store = self.store_at(origin, all_, tirx.BufferLoad(self.stored, [together]))
        body = tirx.SeqStmt([self.nest([(each, count)], rounded), self.vector(together, store)])
        yield self.nest(loops, self.guarded(origin, places, body))

    def finished(self, origin: Values, places: Sequence[Any]) -> Any:
        """The output that a finished sum becomes."""
        value: Any = tirx.BufferLoad(self.sums, places)
        after = self.blocks.after
        if after is None:
            return value
        whole = [origin[a.name] + p for a, p in zip(self.spatial, places, strict=True)]
        result = tvm_ffi.structural_map(
            after.body.value,
            (ir.TensorLoad, lambda load: value if load.source.same_as(self.summed) else load),
            order="post",
        )
        return substituted(result, self.pairs(after, whole))

    def store_at(self, origin: Values, places: Sequence[Any], value: Any) -> Any:
        """The store of the output whose sum is at ``places``."""
        whole = [origin[a.name] + p for a, p in zip(self.spatial, places, strict=True)]
        after = self.blocks.after
        if after is not None:
            pairs = self.pairs(after, whole)
            whole = [substituted(index, pairs) for index in after.body.indices]
        return tirx.BufferStore(self.output, value, whole)

    def guarded(self, origin: Values, places: Sequence[Any], body: Any) -> Any:
        """``body`` for outputs that are not behind the tensor's end."""
        for axis, place in zip(self.spatial, places, strict=True):
            if axis.extent % self.tile.own(axis.name):
                body = tirx.IfThenElse(origin[axis.name] + place < axis.extent, body, None)
        return body

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

    def values(self, values: Values) -> dict[Any, Any]:
        """The variables of the summing block with ``values`` for them; zero where none is given."""
        axes = zip(self.blocks.main.iter_vars, self.blocks.operator.axes, strict=True)
        return {v.var: values.get(axis.name, self.number(0)) for v, axis in axes}

    def pairs(self, block: SBlock, places: Sequence[Any]) -> dict[Any, Any]:
        """The variables of a block with the values that they have."""
        return {v.var: place for v, place in zip(block.iter_vars, places, strict=True)}

    def loops_over(self, extents: Sequence[Any]) -> Loops:
        """A loop for each dimension of registers."""
        return [(self.var(f"at_{d}"), int(extent)) for d, extent in enumerate(extents)]

    def nest(self, loops: Loops, body: Any) -> Any:
        """Unrolled loops around ``body``."""
        for var, extent in reversed(loops):
            body = loop(var, extent, tirx.ForKind.UNROLLED, body)
        return body

    def vector(self, var: Any, body: Any) -> Any:
        """``body`` for all elements of a vector at once."""
        return loop(var, self.tile.vectors.count, tirx.ForKind.VECTORIZED, body)

    def var(self, name: str) -> Any:
        """A variable of the function's index type."""
        return tirx.Var(name, self.index_type)

    def number(self, value: int) -> Any:
        """A number of the function's index type."""
        return tirx.IntImm(self.index_type, value)


def _pads(producer: SBlock, dimension: int, extent: int) -> bool:
    """Whether padding tests by itself that a place is not behind the end of a dimension."""
    value = producer.body.value
    if not is_choice(value):
        return False
    return implies(value.args[0], producer.iter_vars[dimension].var < extent)


def _registers(name: str, extents: Sequence[int], dtype: str) -> Any:
    """A buffer in registers."""
    return tirx.decl_buffer(list(extents), dtype, name, scope="local")
