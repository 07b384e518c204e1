"""Loads of a coded product's thread, to registers, ahead of the steps that need them.

Codes of the next step, and what they share, come from global memory, the vectors' elements from the
caches, which have them. Other warps decode meanwhile: codes of more steps on their way took
registers from these, and were slower on an H100.

(Through stages in shared memory, by cp.async or by bulk copies, the same took 1.1 to 2 times as
long on an H100: a bare read of codes in these runs is as fast from registers, and elements would be
copied by each warp for itself.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tensor_format import Floats, Shared
from tvm_tile.loops.decoding import meaning
from tvm_tile.schedule.coded.find import CodedMatch
from tvm_tile.schedule.coded.fragments import scale_word
from tvm_tile.schedule.coded.slots import VectorSlot
from tvm_tile.schedule.coded.words import WORD, choose_bytes, registers, word
from tvm_tile.schedule.tensor_cores.limits import in_register
from tvm_tile.schedule.tensor_cores.place import Place, linear, value_of
from tvm_tile.tile.coded.few_vectors import COLUMNS, LANES, ROWS, CodedProduct, CodedTile
from tvm_tile.tile.units.product import Operand

_WORD_BYTES = WORD // 8
_AHEAD = 256  # bytes that the second-level cache fetches at once
_WIDEST = 4  # words of a load
_OF_A_SECTOR = 2  # words of each lane of a row, all of which read a sector then
_LOWER, _UPPER = 0x5410, 0x7632  # bytes of two words: both lower halves, both upper ones


@dataclass(frozen=True, slots=True)
class Loads:
    """Registers of a thread for the step that is on its way, while its code is written.

    Attributes:
        found: the product.
        tile: how to compute it.
        buffers: the function's parameters by name, and the vectors that the block has made.
        lane: number of the row that a thread has in an instruction, and of its run.
        row: the first of the warp's rows, or of the block's, where it has no other warp's.
        slot: the vectors that the block has.
        starts: where a thread's vector of each column begins in their tensor, in whole loads; empty
            where all vectors are the block's.
        words: codes of two rows of each strip.
        halves: the vectors' elements, pairs of neighbours.
        held: numbers that the boxes of these rows share, in the order of :func:`boxes`.
    """

    found: CodedMatch
    tile: CodedTile
    buffers: dict[str, Any]
    lane: tuple[Any, Any]
    row: Any
    slot: VectorSlot
    starts: tuple[Any, ...]
    words: Any
    halves: Any
    held: tuple[Any, ...]

    @property
    def word_pairs(self) -> int:
        """Pairs of codes of a word."""
        return WORD // self.found.pairs.bits // 2

    @property
    def run_words(self) -> int:
        """Words of a row that a lane has in a step."""
        return self.tile.run // _WORD_BYTES

    @property
    def rows(self) -> list[Any]:
        """Rows of the matrix whose codes a thread has: two of each of its strips."""
        first = self.row + self.lane[0]
        own = [place * (ROWS // 2) for place in range(2 * self.tile.stacked)]
        if self.tile.strips > 1:
            return [first + place for place in own]
        return [first + block_row(self.found.sizes, self.tile, place) for place in own]

    def ask_for_codes(self, step: Any) -> None:
        """Load the codes of a step, and what they share."""
        count, sizes = self.run_words, self.found.sizes
        row_words = sizes.depth * sizes.bits // WORD
        buffer = self.buffers[self.found.packed]
        words, group = math.prod(self.found.shape) * sizes.bits // WORD, self.slot.group
        source = ib.decl_buffer((words,), "uint32", data=buffer.data)
        for place, row in enumerate(self.rows):
            number = row if group is None else group * sizes.rows + row
            at = ib.Bind(number * row_words + (step * LANES + self.lane[1]) * count)
            _stream(source, at, self.words, place * count, count, stays=count < _OF_A_SECTOR)
        outer, element = () if group is None else (group,), step * self.tile.step
        if self.tile.scales_weights:
            element = element + self.lane[1] * (self.tile.step // LANES)
        for (box, name), held in zip(boxes(self.found), self.held, strict=True):
            for place, row in enumerate(self.rows):
                indices = box_of(box, self.found.shape, (*outer, row, element))
                ib.buffer_store(held, self.buffers[name][indices], [place])

    def ask_for_vectors(self, step: Any) -> None:
        """Load the elements of the vectors that a thread's codes of a step are multiplied with."""
        product, sizes = self.found.found.product, self.found.sizes
        operand, count = product.left, self.run_words * self.word_pairs
        buffer = self.buffers[operand.tensor.name]
        elements = operand.size // operand.tensor.element_size
        scope = "global" if self.found.made is None else "shared"
        source = ib.decl_buffer((elements // 2,), "uint32", data=buffer.data, scope=scope)
        depth = (step * LANES + self.lane[1]) * (2 * count)
        for column in range(sizes.columns):
            if self.starts:
                at = self.starts[column] * _WIDEST + depth // 2  # of whole loads, as TVM sees
            else:
                place = {product.depth.name: depth, **self._vector(column)}
                at = ib.Bind(_element(operand, place) // 2)
            _copy(source, at, self.halves, column * count, count)

    def _vector(self, column: int) -> Place:
        """Values of the axes for a thread's vector of a column.

        Sums of a vector that there is not are stored nowhere.
        """
        number = ib.min(self.lane[0] + column * COLUMNS, self.found.sizes.vectors - 1)
        return {axis.name: number for axis in self.found.found.product.left.free}

    def word(self, row: int, place: int) -> Any:
        """A word of a row's codes."""
        return self.words[row * self.run_words + place]

    def scales(self, row: int) -> list[Any]:
        """The scales of a row, float32."""
        count = len(self.found.scales)
        return [ib.Bind(self._shared(which, row, "float32")) for which in range(count)]

    def scale_pair(self, row: int) -> Any:
        """The only scale of a row's run, as a pair of the weights' type."""
        return ib.Bind(scale_word(self.found.form.dtype, self.found.form.dtype, *self.scales(row)))

    def zero(self, row: int) -> Any | None:
        """The zero point of a row, int32, if there is one."""
        if self.found.zero is None:
            return None
        return self._shared(len(self.found.scales), row, "int32")

    def vector_pairs(self, place: int, column: int) -> list[Any]:
        """Elements of a vector, paired as a word's codes are."""
        count, apart = self.word_pairs, self.found.pairs.apart
        start = (column * self.run_words + place) * count
        halves = [self.halves[start + pair] for pair in range(count)]
        if apart == 1:
            return halves
        paired = registers(count)
        for pair, own in enumerate(paired):
            first = pair // apart * 2 * apart + pair % apart
            low, high = halves[first // 2], halves[(first + apart) // 2]
            choose_bytes(own, low, high, word(_UPPER if pair % 2 else _LOWER))
        return paired

    def _shared(self, which: int, row: int, dtype: str) -> Any:
        """Number of a row's box in the step."""
        box, _ = boxes(self.found)[which]
        value = self.held[which][row]
        if isinstance(box.stored, Floats):
            return ib.Bind(meaning(box.stored, ib.Bind(tirx.Cast("int32", value))))
        return tirx.Cast(dtype, value)


def boxes(found: CodedMatch) -> list[tuple[Shared, str]]:
    """Parameters with the numbers that boxes of a matrix share, the scales first."""
    return [*found.scales, *([found.zero] if found.zero else [])]


def box_of(shared: Shared, shape: Sequence[int], place: Sequence[Any]) -> tuple[Any, ...]:
    """The box, as indices of what is shared, in which an element of a tensor is."""
    return tuple(
        tirx.const(0) if side >= extent else value if side == 1 else value // side
        for value, side, extent in zip(place, shared.box, shape, strict=True)
    )


def block_row(sizes: CodedProduct, tile: CodedTile, place: Any) -> Any:
    """Row ``place`` of a block, as its distance in the matrix from the block's first row.

    Of two halves of a matrix, the first half of a block's rows are of the one, the others of the
    other.
    """
    if sizes.halves == 1:
        return place
    each = tile.block_rows // sizes.halves
    return place + place // each * (sizes.rows // sizes.halves - each)


def begin_loads(
    found: CodedMatch,
    tile: CodedTile,
    buffers: dict[str, Any],
    lane: tuple[Any, Any],
    row: Any,
    slot: VectorSlot,
) -> Loads:
    """A thread's loads, with room for them in registers."""
    sizes = found.sizes

    def local(count: int, dtype: str = "uint32") -> Any:
        return ib.alloc_buffer((count,), dtype, scope="local")

    rows = tile.stacked * 2
    words = local(rows * tile.run // _WORD_BYTES)
    halves = local(sizes.columns * (tile.run * 8 // sizes.bits) // 2)
    held = tuple(local(rows, str(buffers[name].dtype)) for _, name in boxes(found))
    starts = () if slot.group is None else _starts(slot, found, lane[0])
    return Loads(found, tile, buffers, lane, row, slot, starts, words, halves, held)


def _starts(slot: VectorSlot, found: CodedMatch, number: Any) -> tuple[Any, ...]:
    """Where the vectors of a slot begin that a thread loads: of each column the one of its
    number."""
    left, columns = found.found.product.left, range(0, found.sizes.vectors, COLUMNS)
    places = [slot.rows.inside(number + column, slot.origin) for column in columns]
    each = 2 * _WIDEST  # elements of a load
    return tuple(in_register(_element(left, {**slot.origin, **place}) // each) for place in places)


def _element(operand: Operand, place: Place) -> Any:
    """The number of an operand's element at a place."""
    return linear(operand, [value_of(index, place) for index in operand.indices])


def _stream(source: Any, at: Any, into: Any, first: int, count: int, *, stays: bool) -> None:
    """Load ``count`` words past the first-level cache, as no thread loads them again; not if what
    is beside them ``stays`` there for others."""
    own = [into[first + place] for place in range(count)]
    vector = f".v{count}" if count > 1 else ""
    cache = "" if stays else ".L1::no_allocate"
    name = f"ld.global.nc{cache}.L2::{_AHEAD}B{vector}.u32"
    ib.evaluate(T.ptx[name](*own, source.ptr_to([at])))


def _copy(source: Any, at: Any, into: Any, first: int, count: int) -> None:
    """Load ``count`` words, four at once."""
    each = min(_WIDEST, count)
    for begin in range(0, count, each):
        with ib.vectorized(each) as v:
            ib.buffer_store(into, source[at + begin + v], [first + begin + v])
