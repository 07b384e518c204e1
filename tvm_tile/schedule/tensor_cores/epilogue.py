"""Arithmetic of a fused function on a sum, as an expression of the sum and of its place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import (
    Expression,
    are_same,
    block_ranges,
    in_halves,
    loads_of,
    substituted,
)
from tvm_tile.graph.tile_graph import AffineIndex, Operator, element_size


@dataclass(frozen=True, slots=True)
class Epilogue:
    """One store for each sum: bias, activation, residual, scale, cast, a permuted place.

    Attributes:
        buffer: buffer that is written, a parameter.
        indices: indices of the element in it, by the same axes.
        element: stored element, an expression of the reduction's axes. The sum is given; where an
            element is made of two, one of each half of the columns, that of the second half is
            given behind the first.
        together: neighbours along the sums' contiguous axis that lie side by side, four or two.
    """

    buffer: Any
    indices: tuple[Any, ...]
    element: Expression
    together: int = 4

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the parameters that are read or written."""
        read = (own.tensors for own in (self.element, *self._places))
        return frozenset({str(self.buffer.name)}).union(*read)

    @property
    def read_bytes(self) -> int:
        """Bytes of the parameters that it reads: of each at most one element a sum."""
        loads = [load for own in (self.element, *self._places) for load in own.loads]
        buffers = {str(load.source.name): load.source for load in loads}
        sums = math.prod(int(extent) for extent in self.element.given[0].ty.shape)
        return sum(
            min(sums, math.prod(int(extent) for extent in buffer.ty.shape))
            * element_size(str(buffer.ty.dtype))
            for buffer in buffers.values()
        )

    @property
    def _places(self) -> list[Expression]:
        """The indices, as expressions of the same axes."""
        return [dataclasses.replace(self.element, value=index) for index in self.indices]

    def keeps_together(self, column: str, count: int) -> bool:
        """Whether the first ``count`` sums along an axis are stored side by side."""
        moved = {v: index.coefficient(column) for v, index in self.element.axes.items()}
        first, last = (self._offset(moved, number) for number in (0, count - 1))
        is_single = not any(moved.values())
        return is_single or bool(sym.Analyzer().can_prove_equal(first + count - 1, last))

    def _offset(self, moved: Mapping[Any, int], number: int) -> Any:
        """Distance in memory of the sum ``number`` places along an axis from the first one."""
        values = {var: tirx.const(number * step) for var, step in moved.items()}
        offset: Any = tirx.const(0, "int64")
        for index, extent in zip(self.indices, self.buffer.ty.shape, strict=True):
            offset = offset * extent + substituted(index, values)
        return offset

    def at(
        self, place: Mapping[str, Any], total: Any, buffers: Mapping[str, Any]
    ) -> tuple[Any, list[Any]]:
        """The value to store at a place, and its indices.

        Args:
            place: value of every axis.
            total: the sum there; a tuple of both where elements are made of two.
            buffers: name of a parameter -> the buffer that stands for it.
        """
        totals = total if isinstance(total, tuple) else (total,)
        value = self.element.at(place, totals, buffers)
        return value, [index.at(place, totals, buffers) for index in self._places]


def plain_epilogue(reduction: SBlock, operator: Operator) -> Epilogue:
    """The epilogue that stores the sum itself, in the output's dtype."""
    store = reduction.body
    total = tirx.BufferLoad(store.buffer, list(store.indices))
    value = tirx.Cast(str(store.buffer.ty.dtype), total)
    element = Expression.of(reduction, operator, value, (store.buffer,))
    return Epilogue(store.buffer, tuple(store.indices), element)


def fused_epilogue(
    reduction: SBlock, operator: Operator, output: SBlock, *, of_halves: bool = False
) -> Epilogue | None:
    """Read the epilogue of block ``output``, which reads each sum once, in place.

    Args:
        reduction: reduction that makes the sums.
        operator: the same block, as data.
        output: the block.
        of_halves: whether it may make an element of two sums, one of each half of a dimension.

    Returns:
        ``None`` for anything else, and where neighbours do not stay neighbours.
    """
    store = output.body
    if not isinstance(store, tirx.BufferStore):
        return None
    ranges = block_ranges(output)
    sums = reduction.body.buffer
    halves = in_halves(store.value, sums, ranges) if of_halves else None
    value, given, halved = halves or (store.value, (sums,), None)
    own = loads_of(value, sums)
    if not own or any(not are_same(own[0].indices, load.indices) for load in own):
        return None
    places = [ranges.simplify(index) for index in own[0].indices]
    extents = {v.var: int(v.dom.extent) for v in output.iter_vars}
    sizes = {axis.name: axis.extent for axis in operator.axes}
    axes = {v.var: AffineIndex(()) for v in output.iter_vars}
    for number, (index, dimension) in enumerate(zip(places, operator.write.indices, strict=True)):
        terms = tuple((name, c) for name, c in dimension.terms if sizes[name] > 1)
        if not terms:
            continue
        # The whole dimension, or half of it, at its own place: each sum is then met exactly once.
        met = extents.get(index, 0) * (2 if number == halved else 1)
        if dimension.offset or met != _whole(terms, sizes):
            return None
        axes[index] = AffineIndex(terms)
    if not all(axes[var].terms or extent == 1 for var, extent in extents.items()):
        return None
    element = Expression(value, axes, given)
    epilogue = Epilogue(store.buffer, tuple(store.indices), element)
    column = operator.write.contiguous_axis
    if column is None or epilogue.keeps_together(column, epilogue.together):
        return epilogue
    return dataclasses.replace(epilogue, together=2) if epilogue.keeps_together(column, 2) else None


def _whole(terms: Sequence[tuple[str, int]], sizes: Mapping[str, int]) -> int | None:
    """How many values an index has, if its terms are digits of a number; ``None`` if not."""
    count = 1
    for name, coefficient in sorted(terms, key=lambda term: term[1]):
        if coefficient != count:
            return None
        count *= sizes[name]
    return count
