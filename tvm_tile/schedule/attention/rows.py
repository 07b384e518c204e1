"""Rows of scores in registers, as they become weights: each by itself, or by a softmax of its row.

The softmax runs along with the tiles of keys that come one after the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Expression
from tvm_tile.schedule.attention.find import AttentionMatch
from tvm_tile.schedule.tensor_cores.place import Place

_LOG2_E = 1 / math.log(2)


class HeldScores(Protocol):
    """Scores of a block, and sums of the second product, that one thread holds.

    A thread has elements of some rows, which it counts; threads that share a row exchange what
    they know of it.

    Attributes:
        rows: number of rows whose elements a thread holds.
        keys: keys of a tile of scores.
        scores: registers of a tile of scores.
        sums: registers of the second product.
        first: first row in the block of the neighbouring rows that take one choice together.
        span: number of these rows.
        block_rows: rows of a block.
    """

    rows: int
    keys: int
    scores: Any
    sums: Any
    first: Any
    span: int
    block_rows: int

    def row(self, number: int) -> Any:
        """The place in the block of one of the thread's rows."""
        ...

    def elements(self) -> Iterator[tuple[Any, int, Any]]:
        """Register, number of the row and key of each score, within an unrolled loop."""
        ...

    def totals(self) -> Iterator[tuple[Any, int]]:
        """Register and number of the row of each sum, within an unrolled loop."""
        ...

    def exchange(self, values: Any, op: str) -> Iterator[int]:
        """Combine one value a row over the threads that share it.

        Args:
            values: registers, one a row.
            op: ``"max"`` or ``"sum"``.

        Yields:
            The number of each row behind the code that leaves its value in ``values``.
        """
        ...

    def exponential(self, into: Any, place: Any, power: Any) -> None:
        """``into[place] = 2 ** power``."""
        ...


def begin_weighing(
    found: AttentionMatch, held: HeldScores, buffers: Mapping[str, Any], slope: float | None
) -> Weighing:
    """Begin to write the weighing of scores, as the function between the two products has it.

    Args:
        found: the two products, and what becomes of a score.
        held: scores that the thread holds.
        buffers: name of a parameter -> the buffer that stands for it.
        slope: factor of the scores; see :class:`RunningSoftmax`.
    """
    if found.weights.lowest is None:
        return Weighing(found, held, buffers)
    return RunningSoftmax(found, held, buffers, slope, found.weights.lowest)


class Weighing:
    """The scores of one thread, while its code is written; each makes its weight by itself.

    Args:
        found: the two products, and what becomes of a score.
        held: scores that the thread holds.
        buffers: name of a parameter -> the buffer that stands for it.
    """

    # What a key that is behind the last one, or outside of the band, has in place of its score.
    _outside = 0.0

    def __init__(self, found: AttentionMatch, held: HeldScores, buffers: Mapping[str, Any]) -> None:
        self._chain, self._weights = found.chain, found.weights
        self._count = found.key_count
        self._held, self._buffers = held, buffers
        # The first and the last key of each row that the numbers in memory let it see, if any do.
        self._found, self._ends = (
            found,
            ()
            if found.reach is None
            else tuple(ib.alloc_buffer((held.rows,), "int32", scope="local") for _ in range(2)),
        )

    def start(self, origin: Place) -> None:
        """Begin with no keys.

        Args:
            origin: values of the axes that the block has.
        """
        for row in range(self._held.rows if self._ends else 0):
            seen = self._found.sees(self._place(origin, row, tirx.const(0)), self._buffers)
            for into, key in zip(self._ends, seen, strict=True):
                ib.buffer_store(into, key, [row])

    def weigh(self, origin: Place, first: Any, is_whole: Any = None) -> None:
        """Turn the scores of a tile of keys into weights.

        Args:
            origin: values of the axes that the block has.
            first: the tile's first key.
            is_whole: whether no key is to be hidden; ``None``: the places of rows and keys tell.
        """
        self._evaluate(origin, first)
        self._hide(origin, first, is_whole)

    def scale(self) -> None:
        """Scale what was added up so far to what the last tile's weights are relative to."""

    def finish(self, origin: Place) -> None:
        """Scale what was added up of all keys.

        Args:
            origin: values of the axes that the block has.
        """

    def _evaluate(self, origin: Place, first: Any) -> None:
        """Put elements in place of scores."""
        held, scores = self._held, self._held.scores
        for i, row, key in held.elements():
            place = self._place(origin, row, first + key)
            value = self._weights.element.at(place, [scores[i]], self._buffers)
            ib.buffer_store(scores, value, [i])

    def _hide(self, origin: Place, first: Any, is_whole: Any) -> None:
        """Give no weight to keys behind the last one, outside of the band, and out of reach.

        Most tiles have no such key for any of the rows that take this choice together.
        """
        held, band = self._held, self._chain.band
        extent, keys = self._count, held.keys
        is_even = isinstance(extent, int) and (extent % keys == 0 or bool(self._ends))
        (axis,) = self._chain.first.left.free
        diagonal = first - (origin[axis.name] + held.first)  # of the first of these rows, and key
        reached = [] if is_even else [first > extent - keys]
        reached += band.crosses(diagonal, held.span, keys)
        ends = [[own[row] for row in range(held.rows)] for own in self._ends]
        if ends:
            reached.append(first < functools.reduce(ib.max, ends[0]))
            reached.append(first + (keys - 1) > functools.reduce(ib.min, ends[1]))
        if is_whole is True:
            return
        if is_whole is not None:
            reached = [tirx.Not(is_whole)]  # where one is hidden for any of these reasons
        if not reached:
            return
        outside = tirx.const(self._outside, "float32")
        with ib.If(functools.reduce(tirx.Or, reached)), ib.Then():
            for i, row, key in held.elements():
                own = diagonal + key - (held.row(row) - held.first)
                kept = [] if is_even else [first + key < extent]
                kept += band.holds(own)
                if ends:
                    kept += [first + key >= ends[0][row], first + key <= ends[1][row]]
                if self._found.seen is not None:
                    place = self._place(origin, row, first + key)
                    kept.append(self._found.seen.at(place, [], self._buffers))
                value = tirx.Select(functools.reduce(tirx.And, kept), held.scores[i], outside)
                ib.buffer_store(held.scores, value, [i])

    def _place(self, origin: Place, row: int, key: Any) -> Place:
        """The place to load from: where a ragged tile ends, the last one there is."""
        (rows,), keys = self._chain.first.left.free, self._chain.keys
        own = _within(origin[rows.name] + self._held.row(row), rows.extent, self._held.block_rows)
        return {**origin, rows.name: own, keys.name: _within(key, keys.extent, self._held.keys)}


class RunningSoftmax(Weighing):
    """The weighing whose weights are the softmax of a row's scores.

    It keeps the maximum so far and the sum of what is weighed by it. When the maximum grows,
    what has been added up is scaled: ``exp(x - m) == exp(x - m') * exp(m' - m)``.

    Args:
        found: the two products, and what becomes of a score.
        held: scores that the thread holds.
        buffers: name of a parameter -> the buffer that stands for it.
        slope: a factor that makes an element of a score, if the exponent is to be one
            multiplication and one addition of the score itself, which then must be small enough
            that the product is finite; ``None``: elements are evaluated first.
        lowest: number that the maximum of a row starts at.
    """

    # Less than the lowest number, which is all that a masked row may have.
    _outside = -math.inf

    def __init__(
        self,
        found: AttentionMatch,
        held: HeldScores,
        buffers: Mapping[str, Any],
        slope: float | None,
        lowest: float,
    ) -> None:
        super().__init__(found, held, buffers)
        self._most, self._total, self._scale, self._next = (
            ib.alloc_buffer((held.rows,), "float32", scope="local") for _ in range(4)
        )
        self._slope, self._lowest = slope, lowest

    def start(self, origin: Place) -> None:
        """Begin with no keys: the lowest maximum, and sums of zero."""
        super().start(origin)
        # The first tile may have no key for a row: its maximum, times the slope, is a number yet.
        lowest = self._lowest / max(1.0, _LOG2_E * (self._slope or 0.0))
        for row in range(self._held.rows):
            ib.buffer_store(self._most, tirx.const(lowest, "float32"), [row])
            ib.buffer_store(self._total, tirx.const(0.0, "float32"), [row])

    def weigh(self, origin: Place, first: Any, is_whole: Any = None) -> None:
        """Turn a tile's scores into exponentials relative to the largest score so far.

        Args:
            origin: values of the axes that the block has.
            first: the tile's first key.
            is_whole: whether no key is to be hidden; ``None``: the places of rows and keys tell.
        """
        held, scores = self._held, self._held.scores
        if self._slope is None:
            self._evaluate(origin, first)
        self._hide(origin, first, is_whole)
        self._find_largest()
        slope = tirx.const(_LOG2_E * (self._slope or 1.0), "float32")
        for row in held.exchange(self._next, "max"):
            held.exponential(self._scale, row, (self._most[row] - self._next[row]) * slope)
            ib.buffer_store(self._most, self._next[row], [row])
            ib.buffer_store(self._total, self._total[row] * self._scale[row], [row])
            if self._slope is not None:
                ib.buffer_store(self._next, self._next[row] * slope, [row])
        for i, row, _ in held.elements():
            if self._slope is not None:
                power = scores[i] * slope - self._next[row]
            else:
                # A row may have nothing but the lowest number, times which overflows.
                power = (scores[i] - self._next[row]) * slope
            held.exponential(scores, i, power)
            ib.buffer_store(self._total, self._total[row] + scores[i], [row])

    def _find_largest(self) -> None:
        """Find the largest element of each row so far."""
        held = self._held
        for row in range(held.rows):
            ib.buffer_store(self._next, self._most[row], [row])
        for i, row, _ in held.elements():
            ib.buffer_store(self._next, ib.max(self._next[row], held.scores[i]), [row])

    def scale(self) -> None:
        """Scale what was added up so far, as if it were weighed by the new maximum."""
        sums = self._held.sums
        for i, row in self._held.totals():
            ib.buffer_store(sums, sums[i] * self._scale[row], [i])

    def finish(self, origin: Place) -> None:
        """Divide by each row's sum of weights, that of its sink included."""
        for row in self._held.exchange(self._total, "sum"):
            own = tirx.const(1.0, "float32")
            if self._weights.sink is not None:
                own = self._with_sink(self._weights.sink, origin, row)
            total = self._total[row]
            scale = own / total
            if self._weights.is_safe:
                scale = tirx.Select(total > 0, scale, tirx.const(0.0, "float32"))
            ib.buffer_store(self._scale, scale, [row])
        self.scale()

    def _with_sink(self, sink: Expression, origin: Place, row: int) -> Any:
        """What scales the row's sums as if its sink had been the last of its elements.

        The sum of weights is that of all of them behind it. A sink is an element, not a score.
        """
        held, slope = self._held, tirx.const(_LOG2_E, "float32")
        most = self._most[row]
        if self._slope is not None:
            most = most * tirx.const(self._slope, "float32")
        most = ib.Bind(most)
        own = ib.Bind(sink.at(self._place(origin, row, tirx.const(0)), [], self._buffers))
        top = ib.Bind(ib.max(most, own))
        held.exponential(self._scale, row, (most - top) * slope)
        held.exponential(self._next, row, (own - top) * slope)
        total = self._total[row] * self._scale[row] + self._next[row]
        ib.buffer_store(self._total, total, [row])
        return self._scale[row]


def _within(value: Any, extent: int, size: int) -> Any:
    """A place at which the last, ragged tile may load."""
    return value if extent % size == 0 else ib.min(value, extent - 1)
