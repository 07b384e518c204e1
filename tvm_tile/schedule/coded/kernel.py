"""Write a product of few vectors with a matrix of codes.

What :func:`write_coded` writes, for the rows of a block::

    ask for words and halves of the first steps: codes of 16 rows, and the vectors' elements
    for step of the warp's part of the sum:
        for word:  sums += decoded(word) @ halves       (an instruction of 16 rows by 8 vectors)
        totals += scales of the row * sums;  sums = 0
        ask for those of the step ``ahead`` later, in their place
    lay totals down in shared memory, wait for one another
    store epilogue(totals of all parts)

Of a row, a lane has ``run`` bytes that lie side by side, and of each vector the elements that these
codes are multiplied with. Codes are decoded by pairs, as ``pairs.py`` says, and elements of the
vectors are paired likewise.

Sums are scaled, and no weight is: rounded is less than by the format, whose weights are halves.
(Of infinite scales a row's sums could be infinite where the format's are NaN: a weight with one is
kept as no codes, ``frontend/keep_codes.py``.)

Why this is free of races: each warp writes sums of its own into shared memory once, and all are
read behind the one barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tensor_format import Floats, Shared
from tvm_tile.loops.decoding import meaning
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.tensor_cores.instructions import multiply_add
from tvm_tile.schedule.tensor_cores.parameters import declare, views
from tvm_tile.schedule.tensor_cores.place import Boxed, Place, linear, value_of
from tvm_tile.schedule.tensor_cores.store import Guard, SumStore, when
from tvm_tile.tile.coded import COLUMNS, LANES, ROWS, CodedTile
from tvm_tile.tile.sum_layout import QUAD

_DEPTH = 16  # of an instruction
_WARP = 32
_SUMS = 4  # registers of an instruction's sums
_AHEAD = 256  # bytes that the second-level cache fetches at once
_CHAINS = 2  # of instructions that wait for one another


@dataclass(frozen=True, slots=True)
class _Kernel:
    """What all parts of the code need while it is written.

    Attributes:
        found: the product.
        tile: how to compute it.
        buffers: the function's parameters by name.
        lane: number of the row that a thread has in an instruction, and of its run.
        row: the first of the warp's rows.
        part: of the sum.
        constants: that decode all codes.
        words: codes of the steps that are on their way, two rows each.
        halves: the vectors' elements likewise, pairs of neighbours.
        pairs: decoded, of a word of two rows.
        sums: of a step, in two chains.
        totals: of all steps.
    """

    found: CodedMatch
    tile: CodedTile
    buffers: dict[str, Any]
    lane: tuple[Any, Any]
    row: Any
    part: Any
    constants: Sequence[Any]
    words: Any
    halves: Any
    pairs: Any
    sums: Any
    totals: Any

    @property
    def bits(self) -> int:
        """Of a code."""
        return self.found.pairs.bits

    @property
    def dtype(self) -> str:
        """Of what is multiplied."""
        return str(self.found.found.product.left.tensor.dtype)

    @property
    def word_codes(self) -> int:
        """Codes of a word."""
        return 32 // self.bits

    @property
    def run_words(self) -> int:
        """Words of a row that a lane has in a step."""
        return self.tile.run // 4

    @property
    def rows(self) -> list[Any]:
        """Of the matrix, those whose codes a thread has: two of each of its strips."""
        first = self.row + self.lane[0]
        strips, halves = range(self.tile.stacked), range(2)
        return [first + strip * ROWS + half * (ROWS // 2) for strip in strips for half in halves]

    @property
    def held(self) -> int:
        """Sums that a thread has."""
        return self.tile.stacked * self.columns * _SUMS

    @property
    def columns(self) -> int:
        """Instructions side by side."""
        return self.found.sizes.columns


def write_coded(found: CodedMatch, tile: CodedTile) -> tirx.PrimFunc:
    """The function of a product with a matrix of codes, and of what follows it."""
    sizes = found.sizes
    with IRBuilder() as builder, ib.prim_func():
        ib.func_name("main")
        ib.func_attr({"tirx.noalias": True})
        buffers = declare(found.params)
        ib.device_entry()
        block, thread = ib.cta_id([tile.grid]), ib.thread_id([tile.block_size])
        warp, lane = ib.Bind(thread // _WARP), ib.Bind(thread % _WARP)
        part, strip = ib.Bind(warp % tile.parts), ib.Bind(warp // tile.parts)
        width = sizes.columns * COLUMNS
        shape = (tile.parts, width, tile.block_rows)
        memory = ib.alloc_buffer(shape, "float32", scope="shared")
        codes = tile.run * 8 // sizes.bits
        held = tile.stacked * sizes.columns * _SUMS

        def registers(count: int, dtype: str = "uint32") -> Any:
            return ib.alloc_buffer((count,), dtype, scope="local")

        kernel = _Kernel(
            found,
            tile,
            buffers,
            (ib.Bind(lane // LANES), ib.Bind(lane % LANES)),
            ib.Bind(block * tile.block_rows + strip * tile.stacked * ROWS),
            part,
            found.pairs.constants(None if found.table is None else buffers[found.table]),
            registers(tile.ahead * tile.stacked * 2 * tile.run // 4),
            registers(tile.ahead * sizes.columns * codes // 2),
            registers(2 * 32 // sizes.bits // 2),
            registers(_CHAINS * held, "float32"),
            registers(held, "float32"),
        )
        _sum_up(kernel)
        _lay_down(kernel, memory, strip)
        ib.evaluate(T.cuda.cta_sync())
        _store(kernel, memory, block, thread)
    return builder.get()


def _sum_up(kernel: _Kernel) -> None:
    """The totals of a warp's part of the sum."""
    tile, held = kernel.tile, kernel.held
    for number in range(held):
        ib.buffer_store(kernel.totals, tirx.const(0.0, "float32"), [number])
    steps = kernel.found.sizes.depth // tile.step
    for number in range(tile.ahead):
        _load(kernel, number, kernel.part + number * tile.parts)
    with ib.serial(steps // tile.parts // tile.ahead) as turn:
        for number in range(tile.ahead):
            step = ib.Bind((turn * tile.ahead + number) * tile.parts + kernel.part)
            _add_step(kernel, number, step)
            # Behind the last step nothing is asked for that is not there.
            _load(kernel, number, ib.Bind(ib.min(step + tile.ahead * tile.parts, steps - 1)))


def _load(kernel: _Kernel, number: int, step: Any) -> None:
    """Ask for what a step takes, in the registers of a number."""
    _load_codes(kernel, number, step)
    _load_vectors(kernel, number, step)


def _load_codes(kernel: _Kernel, number: int, step: Any) -> None:
    """The codes of a step: of a thread's two rows, each a run of bytes."""
    count = kernel.run_words
    sizes = kernel.found.sizes
    row_words = sizes.depth * sizes.bits // 32
    buffer = kernel.buffers[kernel.found.packed]
    source = ib.decl_buffer((sizes.rows * row_words,), "uint32", data=buffer.data)
    _, run = kernel.lane
    rows = kernel.rows
    for half, row in enumerate(rows):
        at = ib.Bind(row * row_words + (step * LANES + run) * count)
        _stream(source, at, kernel.words, (number * len(rows) + half) * count, count)


def _load_vectors(kernel: _Kernel, number: int, step: Any) -> None:
    """The elements of the vectors that a thread's codes of a step are multiplied with."""
    product, sizes = kernel.found.found.product, kernel.found.sizes
    operand, count = product.left, kernel.run_words * kernel.word_codes // 2
    buffer = kernel.buffers[operand.tensor.name]
    elements = operand.size // operand.tensor.element_size
    source = ib.decl_buffer((elements // 2,), "uint32", data=buffer.data)
    group, run = kernel.lane
    depth = (step * LANES + run) * (2 * count)
    for column in range(kernel.columns):
        # Sums of a vector that there is not are stored nowhere.
        vector = ib.min(group + column * COLUMNS, sizes.vectors - 1)
        place: Place = {product.depth.name: depth, **{a.name: vector for a in operand.free}}
        indices = [value_of(index, place) for index in operand.indices]
        at = ib.Bind(linear(operand, indices) // 2)
        _copy(source, at, kernel.halves, (number * kernel.columns + column) * count, count)


def _stream(source: Any, at: Any, registers: Any, first: int, count: int) -> None:
    """Load so many words that nobody loads again: they take no place in the first-level cache."""
    own = [registers[first + place] for place in range(count)]
    vector = f".v{count}" if count > 1 else ""
    name = f"ld.global.nc.L1::no_allocate.L2::{_AHEAD}B{vector}.u32"
    ib.evaluate(T.ptx[name](*own, source.ptr_to([at])))


def _copy(source: Any, at: Any, registers: Any, first: int, count: int) -> None:
    """Load so many words, four at once."""
    each = min(4, count)
    for begin in range(0, count, each):
        with ib.vectorized(each) as v:
            ib.buffer_store(registers, source[at + begin + v], [first + begin + v])


def _add_step(kernel: _Kernel, number: int, step: Any) -> None:
    """Add the products of a step to the totals."""
    held = kernel.held
    for place in range(_CHAINS * held):
        ib.buffer_store(kernel.sums, tirx.const(0.0, "float32"), [place])
    rows = kernel.rows
    pairs = kernel.found.pairs
    operands = [(*kernel.constants, *pairs.subtracted(_zero(kernel, row, step))) for row in rows]
    for word in range(kernel.run_words):
        for strip in range(kernel.tile.stacked):
            for half in range(2):
                row = strip * 2 + half
                place = (number * len(rows) + row) * kernel.run_words + word
                count = kernel.word_codes // 2
                results = [kernel.pairs[half * count + pair] for pair in range(count)]
                pairs.decode(kernel.words[place], results, operands[row])
            _multiply(kernel, number, word, strip)
    scales = [
        [ib.Bind(_shared(kernel, scale, row, step, "float32")) for scale in kernel.found.scales]
        for row in rows
    ]
    for place in range(held):
        strip, own = divmod(place, kernel.columns * _SUMS)
        added = kernel.sums[place] + kernel.sums[held + place]
        # One after another: the product of all could be infinite where a sum is zero.
        for scale in scales[strip * 2 + own % _SUMS // 2]:
            added = scale * added
        ib.buffer_store(kernel.totals, kernel.totals[place] + added, [place])


def _zero(kernel: _Kernel, row: Any, step: Any) -> Any | None:
    """The zero point of a row in a step, if there is one."""
    zero = kernel.found.zero
    return None if zero is None else _shared(kernel, zero, row, step, "int32")


def _shared(kernel: _Kernel, shared: tuple[Shared, str], row: Any, step: Any, dtype: str) -> Any:
    """What the box of a row has in a step."""
    own, name = shared
    sizes = kernel.found.sizes
    places = [
        tirx.const(0) if side >= extent else value if side == 1 else value // side
        for value, side, extent in zip(
            (row, step * kernel.tile.step), own.box, (sizes.rows, sizes.depth), strict=True
        )
    ]
    value = kernel.buffers[name][tuple(places)]
    if isinstance(own.stored, Floats):
        return ib.Bind(meaning(own.stored, ib.Bind(tirx.Cast("int32", value))))
    return tirx.Cast(dtype, value)


def _word(value: int) -> Any:
    return tirx.const(value, "uint32")


def _multiply(kernel: _Kernel, number: int, word: int, strip: int) -> None:
    """Add the products of a decoded word of a strip to the sums of a step."""
    count = kernel.word_codes // 2
    run = kernel.run_words * count
    name, apart = multiply_add(kernel.dtype, _DEPTH), kernel.found.pairs.apart
    for column in range(kernel.columns):
        first = (number * kernel.columns + column) * run + word * count
        halves = [kernel.halves[first + place] for place in range(count)]
        chain = word % _CHAINS * kernel.held + (strip * kernel.columns + column) * _SUMS
        own = [kernel.sums[chain + place] for place in range(_SUMS)]
        for pair in range(0, count, 2):
            left = [
                kernel.pairs[half * count + pair + next_] for next_ in range(2) for half in range(2)
            ]
            right = [_vector_pair(halves, apart, pair + next_) for next_ in range(2)]
            ib.evaluate(T.ptx[name](*own, *left, *right, *own))


def _vector_pair(halves: Sequence[Any], apart: int, pair: int) -> Any:
    """Elements of a vector as far apart as a pair of codes, of words of two neighbours."""
    if apart == 1:
        return halves[pair]
    first = pair // apart * 2 * apart + pair % apart
    low, high = halves[first // 2], halves[(first + apart) // 2]
    if pair % 2 == 0:
        return (low & _word(0xFFFF)) | (high << _word(16))
    return (low >> _word(16)) | (high & _word(0xFFFF0000))


def _lay_down(kernel: _Kernel, memory: Any, strip: Any) -> None:
    """Put a thread's totals into shared memory, by parts, vectors and rows."""
    group, run = kernel.lane
    for place in range(kernel.held):
        own, number = divmod(place, kernel.columns * _SUMS)
        vector = number // _SUMS * COLUMNS + run * 2 + number % 2
        row = (strip * kernel.tile.stacked + own) * ROWS + group + number % _SUMS // 2 * (ROWS // 2)
        ib.buffer_store(memory, kernel.totals[place], [kernel.part, vector, row])


def _store(kernel: _Kernel, memory: Any, block: Any, thread: Any) -> None:
    """Store what the epilogue makes of the totals, four neighbours a thread."""
    match, tile, sizes = kernel.found.found, kernel.tile, kernel.found.sizes
    product = match.product
    rows = Boxed(product.left, tuple(a.extent for a in product.left.free), product.left.extent)
    columns = Boxed(product.right, (tile.block_rows,), tile.block_rows)
    seen = views(match.epilogue.tensors, match.shapes, kernel.buffers)
    store = SumStore(rows, columns, match.epilogue, seen, memory)
    origin: Place = {
        **{axis.name: tirx.const(0) for axis in product.left.free},
        **{axis.name: block * tile.block_rows for axis in product.right.free},
    }
    quads = tile.block_rows // QUAD
    total = sizes.vectors * quads
    for turn in range(-(-total // tile.block_size)):
        number = ib.Bind(thread + turn * tile.block_size)
        with when([number < total] if (turn + 1) * tile.block_size > total else []):
            vector, column = ib.Bind(number // quads), ib.Bind(number % quads * QUAD)
            place, fits = rows.at(vector, origin)
            own = {**origin, **place}

            def added(v: Any, vector: Any = vector, column: Any = column) -> Any:
                found = memory[0, vector, column + v]
                for part in range(1, tile.parts):
                    found = found + memory[part, vector, column + v]
                return found

            store.quad(added, column, own, Guard(tuple(fits), own))
