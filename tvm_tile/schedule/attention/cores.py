"""Attention on CUDA cores: products of float32 numbers from shared memory, thread by thread.

The threads of a block are a grid, ``down`` the rows and ``across`` the keys. A thread's rows are
``down`` apart, its keys ``across``, its columns vectors that are ``across`` vectors apart: so
neighbouring threads read neighbouring rows of a pitch that puts these on different banks. Along
the depth of either product it loads four numbers at once::

    for d in fours: scores[i, j] += queries[i, d] * keys[j, d]        queries, keys: by rows
    for k in fours: sums[i, n]   += weights[i, k] * values[k, n]      weights, values: by rows

What threads that share a row know of it, its largest score and its sum, they lay down in shared
memory, wait for one another, and each combines all of it.

Why this is free of races, beside what ``kernel.py`` says: nothing is asked for ahead; a tile of
keys is stored in front of the wait for it, behind the wait for the values before it, in front of
which all had read the former keys; values and weights are stored in front of the wait for them,
behind the wait for keys, in front of which all had read the former ones. What rows exchange is
written behind one of these waits, and read in front of the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.attention.kernel import KEYS, QUERIES, write_attention
from tvm_tile.schedule.tensor_cores.place import Boxed, Place, linear, value_of
from tvm_tile.schedule.tensor_cores.store import Guard, SumStore, when
from tvm_tile.schedule.threads import BoundLoops, ThreadLevel, Threads
from tvm_tile.tile.attention.cores import TOGETHER, VECTOR, CoreTile, copied_vector
from tvm_tile.tile.staging import Room
from tvm_tile.tile.units.product import Operand

_COMBINE = {"max": ib.max, "sum": lambda a, b: a + b}


def write_on_cores(device: Device, found: AttentionMatch, tile: CoreTile) -> tirx.PrimFunc:
    """The function of a chain of two products, for CUDA cores."""
    # Devices without matrix units stand for what takes nothing but blocks, too: OpenCL, TVM's own
    # build.
    threads: Threads
    if device.matrix_instructions:
        threads = ThreadLevel(device.memory(MemoryLevel.SHARED).scope)
    else:
        threads = BoundLoops(device, tile.shared_bytes)
    return write_attention(found, tile, threads, partial(_Cores, tile, threads))


@dataclass(frozen=True, slots=True)
class _Shared:
    """Rows of float32 numbers in shared memory.

    They are a flat buffer, as TVM leaves out of others what only keeps rows apart.
    """

    pitch: int
    data: Any

    def at(self, row: Any, column: Any) -> list[Any]:
        """The index of a number, given its row and its column."""
        return [row * self.pitch + column]

    def load(self, row: Any, column: Any) -> Any:
        """The number in a row and a column."""
        return self.data[row * self.pitch + column]


class _HeldByCores:
    """Registers of one thread, as :class:`~tvm_tile.schedule.attention.rows.HeldScores` asks."""

    def __init__(
        self, tile: CoreTile, threads: Threads, known: _Shared, down: Any, across: Any
    ) -> None:
        self._tile, self._down, self._across = tile, down, across
        self.rows, self.keys = tile.thread_rows, tile.keys
        self.first, self.span, self.block_rows = tirx.const(0), tile.rows, tile.rows
        self.scores = ib.alloc_buffer((self.rows * tile.thread_keys,), "float32", scope="local")
        self.sums = ib.alloc_buffer((self.rows * tile.thread_columns,), "float32", scope="local")
        self._known, self._threads = known, threads
        self._others = ib.alloc_buffer((tile.across,), "float32", scope="local")

    def row(self, number: int) -> Any:
        """The place of one of the thread's rows: the thread's rows are ``down`` apart."""
        return number * self._tile.down + self._down

    def key(self, number: Any) -> Any:
        """The place in the tile of one of the thread's keys."""
        return number * self._tile.across + self._across

    def elements(self) -> Iterator[tuple[Any, int, Any]]:
        """Register, row and key of each score: row by row for each key."""
        with ib.unroll(self._tile.thread_keys) as number:
            for row in range(self.rows):
                yield row * self._tile.thread_keys + number, row, self.key(number)

    def totals(self) -> Iterator[tuple[Any, int]]:
        """Register and row of each sum: row by row for each column."""
        with ib.unroll(self._tile.thread_columns) as number:
            for row in range(self.rows):
                yield row * self._tile.thread_columns + number, row

    def exchange(self, values: Any, op: str) -> Iterator[int]:
        """Combine one value a row through shared memory; all threads of the block wait."""
        across, combine = self._tile.across, _COMBINE[op]
        for row in range(self.rows):
            at = self._known.at(self.row(row), self._across)
            ib.buffer_store(self._known.data, values[row], at)
        self._threads.meet()
        for row in range(self.rows):
            with ib.unroll(across // VECTOR) as part, ib.vectorized(VECTOR) as v:
                value = self._known.load(self.row(row), part * VECTOR + v)
                ib.buffer_store(self._others, value, [part * VECTOR + v])
            ib.buffer_store(values, self._others[0], [row])
            for other in range(1, across):
                ib.buffer_store(values, combine(values[row], self._others[other]), [row])
            yield row

    def exponential(self, into: Any, place: Any, power: Any) -> None:
        """``into[place] = 2 ** power``."""
        ib.buffer_store(into, T.exp2(power), [place])


class _Cores:
    """Attention on CUDA cores: operands in shared memory, a thread's part of them in registers."""

    has_small_scores = False  # they are as large as float32's

    def __init__(
        self,
        tile: CoreTile,
        threads: Threads,
        found: AttentionMatch,
        _: Any,
        thread: Any,
        origin: Place,
        buffers: Mapping[str, Any],
    ) -> None:
        self._found, self._tile, self._buffers = found, tile, buffers
        self._thread, self._origin, self._threads = thread, origin, threads
        self._flat = {
            operand.tensor.name: ib.decl_buffer(
                (operand.size // operand.tensor.element_size,),
                operand.tensor.dtype,
                data=buffers[operand.tensor.name].data,
            )
            for operand in found.chain.operands
        }
        self._down = ib.Bind(thread // tile.across)
        self._across = ib.Bind(thread % tile.across)
        shapes = (
            (tile.rows, tile.depth_pitch),
            (tile.keys, tile.depth_pitch),
            (tile.keys, tile.columns),
            (tile.rows, tile.key_pitch),
            (tile.rows, tile.across),
        )
        rooms = [Room("float32", rows * pitch, VECTOR_BYTES) for rows, pitch in shapes]
        self._queries, self._keys, self._values, self._weights, known = (
            _Shared(pitch, data)
            for (_, pitch), data in zip(shapes, threads.allocate(rooms), strict=True)
        )
        self.held = _HeldByCores(tile, threads, known, self._down, self._across)

    def ask(self, which: int, place: Place, conditions: Sequence[Any] = ()) -> None:
        """Copy queries at once; keys and values are copied when they are waited for."""
        if which == QUERIES:
            first, tile = self._found.chain.first, self._tile
            (axis,) = first.left.free
            rows, depth = (axis, tile.rows), (first.depth, tile.depth)
            self._copy(first.left, self._queries, rows, depth, place)

    def wait(self, which: int, place: Place) -> None:
        """Copy a tile of keys or values to shared memory, and wait for all threads."""
        chain, tile = self._found.chain, self._tile
        keys = (chain.keys, tile.keys)
        if which == KEYS:
            depth = (chain.first.depth, tile.depth)
            self._copy(chain.first.right, self._keys, keys, depth, place)
        else:
            (axis,) = chain.second.right.free
            self._copy(chain.second.right, self._values, keys, (axis, tile.columns), place)
        self._threads.meet()

    def score(self) -> None:
        """Compute a tile of scores by multiply-adds of vectors along the depth."""
        tile, held = self._tile, self.held
        keys = tile.thread_keys
        with ib.unroll(held.rows * keys) as i:
            ib.buffer_store(held.scores, tirx.const(0.0, "float32"), [i])
        left, right = (_registers(size * VECTOR) for size in (held.rows, 1))
        with ib.serial(tile.depth // VECTOR) as step:
            self._load_rows(left, self._queries, step)
            with ib.unroll(keys) as j:
                with ib.vectorized(VECTOR) as v:
                    value = self._keys.load(held.key(j), step * VECTOR + v)
                    ib.buffer_store(right, value, [v])
                with ib.unroll(VECTOR) as d, ib.unroll(held.rows) as i:
                    product = left[i * VECTOR + d] * right[d]
                    at = i * keys + j
                    ib.buffer_store(held.scores, held.scores[at] + product, [at])

    def hand_over(self) -> None:
        """Write the weights to shared memory, where all threads of the block find them."""
        for i, row, key in self.held.elements():
            at = self._weights.at(self.held.row(row), key)
            ib.buffer_store(self._weights.data, self.held.scores[i], at)

    def add(self) -> None:
        """Add the weighted values of a tile of keys to the thread's sums."""
        tile, held = self._tile, self.held
        columns, vector = tile.thread_columns, tile.column_vector
        left, right = _registers(held.rows * VECTOR), _registers(columns)
        with ib.serial(tile.keys // VECTOR) as step:
            self._load_rows(left, self._weights, step)
            with ib.unroll(VECTOR) as d:
                with ib.unroll(columns // vector) as part, ib.vectorized(vector) as v:
                    value = self._values.load(step * VECTOR + d, self._column(part, v))
                    ib.buffer_store(right, value, [part * vector + v])
                with ib.unroll(held.rows) as i, ib.unroll(columns) as j:
                    product = left[i * VECTOR + d] * right[j]
                    at = i * columns + j
                    ib.buffer_store(held.sums, held.sums[at] + product, [at])

    def store(self) -> None:
        """Store what the epilogue makes of the thread's sums, a vector of columns at a time."""
        tile, held, epilogue = self._tile, self.held, self._found.epilogue
        second = self._found.chain.second
        (column,) = second.right.free
        rows = Boxed(second.left, (tile.rows,), tile.rows)
        columns = Boxed(second.right, (min(tile.columns, column.extent),), tile.columns)
        store = SumStore(rows, columns, epilogue, self._buffers, held.sums)
        vector = tile.column_vector
        for row in range(held.rows):
            own, fits = rows.at(held.row(row), self._origin)
            place = {**self._origin, **own}
            inside = {**self._origin, **rows.inside(held.row(row), self._origin)}
            guard = Guard(tuple(fits), inside if fits else place)
            with ib.unroll(tile.thread_columns // vector) as part:
                total = partial(_register, held.sums, row * tile.thread_columns + part * vector)
                column = ib.Bind(self._column(part, 0))
                store.neighbours(vector, total, column, place, guard)

    def _column(self, part: Any, v: Any) -> Any:
        """The number of one of the thread's columns, in its vector ``part``."""
        vector = self._tile.column_vector
        return (part * self._tile.across + self._across) * vector + v

    def _load_rows(self, into: Any, source: _Shared, step: Any) -> None:
        """Load four numbers of each of the thread's rows."""
        with ib.unroll(self.held.rows) as i, ib.vectorized(VECTOR) as v:
            value = source.load(self.held.row(i), step * VECTOR + v)
            ib.buffer_store(into, value, [i * VECTOR + v])

    def _copy(
        self,
        operand: Operand,
        into: _Shared,
        rows: tuple[Axis, int],
        columns: tuple[Axis, int],
        place: Place,
    ) -> None:
        """Copy a tile of an operand to shared memory, with zeros where the operand ends.

        Args:
            operand: the operand in global memory.
            into: a row for each of ``rows``.
            rows: the axis along the rows, and how many these are.
            columns: the axis along a row, which is copied from its start, and how many these are.
            place: values of all axes, of ``rows`` the first one.
        """
        (row_axis, row_count), (axis, count) = rows, columns
        inner = operand.indices[-1].coefficient(axis.name) != 0
        first, depth = self._found.chain.first, self._found.chain.keys
        summed = depth if operand is self._found.chain.second.right else first.depth
        width = copied_vector(operand, summed, inner)
        along, vectors = (count // width, width) if inner else (row_count, 1)
        total, threads = row_count * count // vectors, self._tile.block_size
        source = self._flat[operand.tensor.name]
        turns = -(-total // threads)
        together = min(turns, TOGETHER)
        with ib.serial(-(-turns // together)) as group, ib.unroll(together) as turn:
            number = ib.Bind((group * together + turn) * threads + self._thread)
            outer, within = ib.Bind(number // along), ib.Bind(number % along * vectors)
            row, column = (outer, within) if inner else (within, outer)
            own = {**place, row_axis.name: place[row_axis.name] + row, axis.name: column}
            inside = [own[row_axis.name] < row_axis.extent] if row_axis.extent % row_count else []
            if operand is self._found.chain.second.right and self._found.keys is not None:
                inside = [own[row_axis.name] < self._found.keys]
            inside += [column < axis.extent] if axis.extent < count else []
            start = ib.Bind(linear(operand, [value_of(index, own) for index in operand.indices]))
            is_ragged = total % (together * threads) != 0
            with when([number < total] if is_ragged else []), ib.vectorized(vectors) as v:
                value = tirx.Cast("float32", source[start + v])
                for condition in inside:
                    value = tirx.if_then_else(condition, value, tirx.const(0.0, "float32"))
                ib.buffer_store(into.data, value, into.at(row, column + v))


def _register(registers: Any, first: Any, number: Any) -> Any:
    """A register, counted from the first one of an array."""
    return registers[first + number]


def _registers(count: int) -> Any:
    """Registers for float32 numbers."""
    return ib.alloc_buffer((count,), "float32", scope="local")
