"""What a fused function does with a sum, as an expression of the sum and of its place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.extract import has_vector_form, loads_in
from tvm_tile.graph.tile_graph import AffineIndex, Operator, element_size
from tvm_tile.schedule.tensor_cores.place import value_of


@dataclass(frozen=True, slots=True)
class Epilogue:
    """One store for each sum: bias, activation, residual, scale, cast, a permuted place.

    Attributes:
        buffer: what is written, a parameter.
        indices: where.
        value: what, with the sum as a load of ``sums``.
        sums: the reduction's output.
        axes: iteration variable -> what it is of the reduction's axes; others are 0.
        together: neighbours along the sums' contiguous axis that lie side by side, four or two.
        second: where each element is made of two sums, one of each half of the columns: a load of
            it is the sum of the second half, ``sums`` then is that of the first.
    """

    buffer: Any
    indices: tuple[Any, ...]
    value: Any
    sums: Any
    axes: Mapping[Any, AffineIndex]
    together: int = 4
    second: Any = None

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the parameters that are read or written."""
        own = {str(load.source.name) for load in self._loads}
        return frozenset(own | {str(self.buffer.name)})

    @property
    def read_bytes(self) -> int:
        """Bytes of the parameters that it reads: of each at most one element a sum."""
        buffers = {str(load.source.name): load.source for load in self._loads}
        sums = math.prod(int(extent) for extent in self.sums.ty.shape)
        return sum(
            min(sums, math.prod(int(extent) for extent in buffer.ty.shape))
            * element_size(str(buffer.ty.dtype))
            for buffer in buffers.values()
        )

    @property
    def is_vectorizable(self) -> bool:
        """Whether TVM can write the value of neighbours as one vector.

        It takes loops with other calls, such as erf's and nearbyint's, apart, and loads
        neighbouring bools two bytes each.
        """
        calls: list[Any] = []
        tvm_ffi.structural_walk(self.value, (ir.Call, calls.append), order="pre")
        is_known = all(map(has_vector_form, calls))
        return is_known and all(str(load.source.ty.dtype) != "bool" for load in self._loads)

    @property
    def _loads(self) -> list[Any]:
        """The loads of parameters, in the value and in where it goes."""
        found = (load for expr in (self.value, *self.indices) for load in loads_in(expr))
        return [load for load in found if not self._is_sum(load)]

    def _is_sum(self, load: Any) -> bool:
        is_second = self.second is not None and load.source.same_as(self.second)
        return is_second or bool(load.source.same_as(self.sums))

    def keeps_together(self, column: str, count: int) -> bool:
        """Whether the first so many sums along an axis are stored side by side."""
        moved = {var: index.coefficient(column) for var, index in self.axes.items()}
        first, last = (self._offset(moved, number) for number in (0, count - 1))
        is_single = not any(moved.values())
        return is_single or bool(sym.Analyzer().can_prove_equal(first + count - 1, last))

    def _offset(self, moved: Mapping[Any, int], number: int) -> Any:
        """Where in memory the sum goes that is so many along an axis, the others' values 0."""
        values = {var: tirx.const(number * step) for var, step in moved.items()}
        offset: Any = tirx.const(0, "int64")
        for index, extent in zip(self.indices, self.buffer.ty.shape, strict=True):
            at = tvm_ffi.structural_map(
                index, [(tirx.Var, lambda v, known=values: _value(v, known))], order="post"
            )
            offset = offset * extent + at
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

        def variable(var: Any) -> Any:
            if not isinstance(var.ty, ir.PrimType):
                return var  # a buffer
            value = value_of(self.axes[var], place) if var in self.axes else tirx.const(0)
            dtype = str(var.ty.dtype)
            return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)

        def load(node: ir.TensorLoad) -> Any:
            if self._is_sum(node):
                return totals[0 if node.source.same_as(self.sums) else 1]
            return tirx.BufferLoad(buffers[str(node.source.name)], list(node.indices))

        def rewritten(expr: Any) -> Any:
            entries = [(tirx.Var, variable), (ir.TensorLoad, load)]
            return tvm_ffi.structural_map(expr, entries, order="post")

        return rewritten(self.value), [rewritten(index) for index in self.indices]


def plain_epilogue(reduction: SBlock, operator: Operator) -> Epilogue:
    """The epilogue that stores the sum itself, in the output's dtype."""
    store = reduction.body
    pairs = zip(reduction.iter_vars, operator.axes, strict=True)
    axes = {v.var: AffineIndex(((axis.name, 1),)) for v, axis in pairs if axis.extent > 1}
    total = tirx.BufferLoad(store.buffer, list(store.indices))
    value = tirx.Cast(str(store.buffer.ty.dtype), total)
    return Epilogue(store.buffer, tuple(store.indices), value, store.buffer, axes)


def fused_epilogue(
    reduction: SBlock, operator: Operator, output: SBlock, *, of_halves: bool = False
) -> Epilogue | None:
    """What block ``output`` does with each sum, which it reads once, in place.

    Args:
        reduction: makes the sums.
        operator: the same, as data.
        output: the block.
        of_halves: whether it may make an element of two sums, one of each half of a dimension.

    Returns:
        ``None`` for anything else, and where neighbours do not stay neighbours.
    """
    store = output.body
    if not isinstance(store, tirx.BufferStore):
        return None
    ranges = sym.Analyzer()
    for v in output.iter_vars:
        ranges.bind(v.var, v.dom)
    sums = reduction.body.buffer
    halves = _in_halves(store.value, sums, ranges) if of_halves else None
    value, second, halved = halves or (store.value, None, None)
    own = [load for load in loads_in(value) if load.source.same_as(sums)]
    if not own or any(not are_same(own[0].indices, load.indices) for load in own):
        return None
    places = [ranges.simplify(index) for index in own[0].indices]
    extents = {v.var: int(v.dom.extent) for v in output.iter_vars}
    sizes = {axis.name: axis.extent for axis in operator.axes}
    axes: dict[Any, AffineIndex] = {}
    for number, (index, dimension) in enumerate(zip(places, operator.write.indices, strict=True)):
        terms = tuple((name, c) for name, c in dimension.terms if sizes[name] > 1)
        if not terms:
            continue
        # The whole dimension, or half of it, at its own place: each sum is then met exactly once.
        met = extents.get(index, 0) * (2 if number == halved else 1)
        if dimension.offset or met != _whole(terms, sizes):
            return None
        axes[index] = AffineIndex(terms)
    if not all(var in axes or extent == 1 for var, extent in extents.items()):
        return None
    epilogue = Epilogue(store.buffer, tuple(store.indices), value, sums, axes, second=second)
    column = operator.write.contiguous_axis
    if column is None or epilogue.keeps_together(column, epilogue.together):
        return epilogue
    return dataclasses.replace(epilogue, together=2) if epilogue.keeps_together(column, 2) else None


def _in_halves(value: Any, sums: Any, ranges: sym.Analyzer) -> tuple[Any, Any, int] | None:
    """An expression of two sums, one of each half of a dimension, as one of loads at one place.

    before: ``f(sums[m, n], sums[m, n + 64])``   after: ``f(sums[m, n], second[m, n])``

    Returns:
        The expression, the buffer that stands for the sums of the second half, and the number of
        the dimension; ``None`` of any other expression.
    """
    loads = [load for load in loads_in(value) if load.source.same_as(sums)]
    other = next((own for own in loads if not are_same(own.indices, loads[0].indices)), None)
    if other is None:
        return None
    first, last = loads[0].indices, other.indices
    apart = [ranges.simplify(b - a) for a, b in zip(first, last, strict=True)]
    steps = [int(step.value) if isinstance(step, tirx.IntImm) else None for step in apart]
    moved = [number for number, step in enumerate(steps) if step != 0]
    half = int(sums.ty.shape[moved[0]]) // 2
    if len(moved) != 1 or steps[moved[0]] not in (half, -half):
        return None
    if steps[moved[0]] == -half:
        first, last = last, first
    second = tirx.decl_buffer(list(sums.ty.shape), str(sums.ty.dtype), "second")

    def load(node: ir.TensorLoad) -> Any:
        is_last = node.source.same_as(sums) and are_same(node.indices, last)
        return tirx.BufferLoad(second, list(first)) if is_last else node

    written = tvm_ffi.structural_map(value, [(ir.TensorLoad, load)], order="post")
    return written, second, moved[0]


def _whole(terms: Sequence[tuple[str, int]], sizes: Mapping[str, int]) -> int | None:
    """How many values an index has, if its terms are digits of a number; ``None`` if not."""
    count = 1
    for name, coefficient in sorted(terms, key=lambda term: term[1]):
        if coefficient != count:
            return None
        count *= sizes[name]
    return count


def _value(var: Any, known: Mapping[Any, Any]) -> Any:
    value = known.get(var, tirx.const(0))
    return tirx.Cast(str(var.ty.dtype), value) if str(var.ty.dtype) != "int32" else value


def are_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two lists of indices are written alike."""
    return all(tvm_ffi.structural_equal(a, b) for a, b in zip(first, second, strict=True))
