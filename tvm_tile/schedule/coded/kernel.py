"""Write a product of few vectors with a matrix of codes.

What :func:`write_coded` writes, for the rows of a block::

    ask for the first step's codes of 16 rows, and their scales
    wait for the kernel before this one
    make the vectors, where they are none of memory's;  ask for their elements
    for step of the warp's part of the sum:
        for word:  sums += decoded(word) @ elements     (an instruction of 16 rows by 8 vectors)
        totals += scales of the row * sums;  sums = 0
        ask for those of the next one, in their place

(where a step has several scales, ``sums += scale * decoded(word) @ elements``, and totals are the
sums at the end)::

    lay totals down in shared memory, wait for one another
    store epilogue(totals of all parts)

Of a row, a lane has ``run`` bytes that lie side by side, and of each vector the elements that these
codes are multiplied with. Codes are decoded by pairs, as ``pairs.py`` says, and elements of the
vectors are paired likewise.

Sums are scaled, and no weight is: rounded is less than by the format, whose weights are halves.
(Of infinite scales a row's sums could be infinite where the format's are NaN: a weight with one is
kept as no codes, ``frontend/keep_codes.py``.)

Where each vector has a matrix of its own, a block has a slot of them (``slots.py``), all of one
matrix, and rows of that.

Codes and scales are constants where the kernel starts early: those
:mod:`tvm_tile.build.early.dependent_launches` lets kernels read before they wait.

Why this is free of races: each warp writes sums of its own into shared memory once, and all are
read behind the one barrier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.device.device import Device
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.coded.loads import Loads, begin_loads, block_row
from tvm_tile.schedule.coded.slots import find_slot
from tvm_tile.schedule.coded.words import multiply
from tvm_tile.schedule.tensor_cores.grouping import list_groups
from tvm_tile.schedule.tensor_cores.instructions import multiply_add
from tvm_tile.schedule.tensor_cores.parameters import function, views
from tvm_tile.schedule.tensor_cores.part import shares
from tvm_tile.schedule.tensor_cores.place import Boxed, Place
from tvm_tile.schedule.tensor_cores.store import Guard, SumStore, when
from tvm_tile.schedule.threads import begin_kernel
from tvm_tile.tile.coded.few_vectors import COLUMNS, LANES, ROWS, CodedTile
from tvm_tile.tile.units.sum_layout import QUAD

_DEPTH = 16  # of an instruction
_WARP = 32
_SUMS = 4  # registers of an instruction's sums
_CHAINS = 2  # of instructions that wait for one another


@dataclass(frozen=True, slots=True)
class _Kernel:
    """State that all parts of the code share while it is written.

    Attributes:
        found: the product.
        tile: how to compute it.
        buffers: the function's parameters by name, and the vectors that the block has made.
        loads: codes, scales, and the vectors' elements.
        part: number of the thread's part of the sum.
        constants: constants by which all codes are decoded.
        pairs: decoded, of a word of two rows.
        sums: sums of a step, in two chains.
        totals: sums of all steps.
    """

    found: CodedMatch
    tile: CodedTile
    buffers: dict[str, Any]
    loads: Loads
    part: Any
    constants: Sequence[Any]
    pairs: Any
    sums: Any
    totals: Any

    @property
    def steps(self) -> int:
        """Steps of the sum, those of all its parts together."""
        return self.found.sizes.depth // self.tile.step

    @property
    def held(self) -> int:
        """Sums that a thread has."""
        return self.tile.stacked * self.found.sizes.columns * _SUMS


def write_coded(found: CodedMatch, tile: CodedTile, device: Device) -> tirx.PrimFunc:
    """The function of a product with a matrix of codes, and of what follows it: a kernel, and one
    ahead of it where tiles are of vectors that it lists."""
    sizes = found.sizes
    with function(found.params) as (builder, buffers):
        listed = sizes.is_listed
        table = list_groups(found.found, found.slot, buffers, device) if listed else None
        block, _, thread = begin_kernel(tile.grid, tile.block_size)
        slot, block = find_slot(found, tile, buffers, block, table)
        warp, lane = ib.Bind(thread // _WARP), ib.Bind(thread % _WARP)
        part, strip = ib.Bind(warp % tile.parts), ib.Bind(warp // tile.parts)
        shape = (tile.parts, sizes.columns * COLUMNS, tile.block_rows)
        memory = ib.alloc_buffer(shape, "float32", scope="shared")
        place = ib.Bind(lane // LANES), ib.Bind(lane % LANES)
        first = block * (tile.block_rows // sizes.halves)
        row = ib.Bind(first + block_row(sizes, tile, strip * tile.stacked * ROWS))
        held = tile.stacked * sizes.columns * _SUMS
        kernel = _Kernel(
            found,
            tile,
            buffers,
            begin_loads(found, tile, buffers, place, row, slot),
            part,
            found.pairs.constants(None if found.table is None else buffers[found.table]),
            ib.alloc_buffer((2 * 32 // sizes.bits // 2,), "uint32", scope="local"),
            ib.alloc_buffer((_CHAINS * held,), "float32", scope="local"),
            ib.alloc_buffer((held,), "float32", scope="local"),
        )
        _begin(kernel, thread)
        _sum_up(kernel)
        _lay_down(kernel, memory, strip)
        ib.evaluate(T.cuda.cta_sync())
        _store(kernel, memory, block, thread)
    return builder.get()


def _begin(kernel: _Kernel, thread: Any) -> None:
    """Ask for the first step: for codes, which nobody writes, before the kernel waits."""
    found, loads, part = kernel.found, kernel.loads, kernel.part
    loads.ask_for_codes(part)
    if found.starts_early:
        ib.evaluate(T.ptx.griddepcontrol.wait())
    if found.made is not None:
        made = found.made.write(kernel.tile.block_size, thread, kernel.buffers)
        kernel.buffers[str(found.made.tensor.name)] = made
    loads.ask_for_vectors(part)


def _sum_up(kernel: _Kernel) -> None:
    """The totals of a warp's part of the sum."""
    loads, parts, part, steps = kernel.loads, kernel.tile.parts, kernel.part, kernel.steps
    held, scales_weights = kernel.held, kernel.tile.scales_weights
    for number in range(held):
        ib.buffer_store(kernel.totals, tirx.const(0.0, "float32"), [number])
    if scales_weights:
        _begin_sums(kernel)
    with ib.serial(-(-steps // parts)) as turn:
        step = ib.Bind(turn * parts + part)
        with when([] if steps % parts == 0 else [step < steps]):
            _add_step(kernel)
            following = ib.Bind(step + parts)
            with when([following < steps]):
                loads.ask_for_codes(following)
                loads.ask_for_vectors(following)
    for number in range(held if scales_weights else 0):
        total = kernel.sums[number] + kernel.sums[held + number]
        ib.buffer_store(kernel.totals, total, [number])


def _begin_sums(kernel: _Kernel) -> None:
    """Sums of nothing, in all chains."""
    for place in range(_CHAINS * kernel.held):
        ib.buffer_store(kernel.sums, tirx.const(0.0, "float32"), [place])


def _add_step(kernel: _Kernel) -> None:
    """Add the products of a step to the totals, or those of scaled weights to the sums."""
    held, loads, pairs = kernel.held, kernel.loads, kernel.found.pairs
    scales_weights, dtype = kernel.tile.scales_weights, kernel.found.form.dtype
    if not scales_weights:
        _begin_sums(kernel)
    rows, count = range(len(loads.rows)), loads.word_pairs
    operands = [(*kernel.constants, *pairs.subtracted(loads.zero(row))) for row in rows]
    factors = [loads.scale_pair(row) for row in rows if scales_weights]
    for word in range(loads.run_words):
        columns = range(kernel.found.sizes.columns)
        vectors = [loads.vector_pairs(word, column) for column in columns]
        for strip in range(kernel.tile.stacked):
            for half in range(2):
                row = strip * 2 + half
                results = [kernel.pairs[half * count + pair] for pair in range(count)]
                pairs.decode(loads.word(row, word), results, operands[row])
                for own in results if scales_weights else ():
                    multiply(dtype, own, own, factors[row])
            _multiply(kernel, word, strip, vectors)
    scales = [] if scales_weights else [loads.scales(row) for row in rows]
    for place in range(held if scales else 0):
        strip, own = divmod(place, len(columns) * _SUMS)
        added = kernel.sums[place] + kernel.sums[held + place]
        # One after another: the product of all could be infinite where a sum is zero.
        for scale in scales[strip * 2 + own % _SUMS // 2]:
            added = scale * added
        ib.buffer_store(kernel.totals, kernel.totals[place] + added, [place])


def _multiply(kernel: _Kernel, word: int, strip: int, vectors: Sequence[Sequence[Any]]) -> None:
    """Add the products of a decoded word of a strip to the sums of a step.

    Args:
        kernel: kernel with the decoded pairs.
        word: number of the word in the lanes' runs.
        strip: strip that the rows are of.
        vectors: vectors of each column, elements paired as the codes are.
    """
    count = kernel.loads.word_pairs
    name = multiply_add(str(kernel.found.found.product.left.tensor.dtype), _DEPTH)
    for column, elements in enumerate(vectors):
        chain = word % _CHAINS * kernel.held + (strip * len(vectors) + column) * _SUMS
        own = [kernel.sums[chain + place] for place in range(_SUMS)]
        for pair in range(0, count, 2):
            left = [
                kernel.pairs[half * count + pair + next_] for next_ in range(2) for half in range(2)
            ]
            ib.evaluate(T.ptx[name](*own, *left, *elements[pair : pair + 2], *own))


def _lay_down(kernel: _Kernel, memory: Any, strip: Any) -> None:
    """Put a thread's totals into shared memory, by parts, vectors and rows."""
    group, run = kernel.loads.lane
    for place in range(kernel.held):
        own, number = divmod(place, kernel.found.sizes.columns * _SUMS)
        vector = number // _SUMS * COLUMNS + run * 2 + number % 2
        row = (strip * kernel.tile.stacked + own) * ROWS + group + number % _SUMS // 2 * (ROWS // 2)
        ib.buffer_store(memory, kernel.totals[place], [kernel.part, vector, row])


def _store(kernel: _Kernel, memory: Any, block: Any, thread: Any) -> None:
    """Add up the sums of a block's warps, apply the epilogue, and store, four values a thread."""
    match, tile, sizes = kernel.found.found, kernel.tile, kernel.found.sizes
    product = match.product
    slot = kernel.loads.slot
    own_rows = tile.block_rows // sizes.halves  # of the first half, or of all that there is
    columns = Boxed(product.right, (own_rows,), own_rows)
    seen = views(match.epilogue.tensors, match.shapes, kernel.buffers)
    store = SumStore(slot.rows, columns, match.epilogue, seen, memory)
    first = {axis.name: block * own_rows for axis in product.right.free}
    origin: Place = {**slot.origin, **first}
    quads = own_rows // QUAD
    for number, is_own in shares(sizes.vectors * quads, thread, tile.block_size):
        with when(is_own):
            vector, column = ib.Bind(number // quads), ib.Bind(number % quads * QUAD)
            place, fits = slot.rows.at(vector, origin)
            own = {**origin, **place}

            def added(v: Any, vector: Any = vector, column: Any = column) -> tuple[Any, ...]:
                places = [half * own_rows + column + v for half in range(sizes.halves)]
                return tuple(_added(kernel, memory, vector, place) for place in places)

            store.quad(added, column, own, Guard(tuple(fits), own))


def _added(kernel: _Kernel, memory: Any, vector: Any, place: Any) -> Any:
    """The sum of all parts for a row of the block."""
    found = memory[0, vector, place]
    for part in range(1, kernel.tile.parts):
        found = found + memory[part, vector, place]
    return found
