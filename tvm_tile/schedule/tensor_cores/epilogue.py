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
    """

    buffer: Any
    indices: tuple[Any, ...]
    value: Any
    sums: Any
    axes: Mapping[Any, AffineIndex]
    together: int = 4

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
        return [load for load in found if not load.source.same_as(self.sums)]

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
            total: the sum there.
            buffers: name of a parameter -> the buffer that stands for it.
        """

        def variable(var: Any) -> Any:
            if not isinstance(var.ty, ir.PrimType):
                return var  # a buffer
            value = value_of(self.axes[var], place) if var in self.axes else tirx.const(0)
            dtype = str(var.ty.dtype)
            return value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value)

        def load(node: ir.TensorLoad) -> Any:
            if node.source.same_as(self.sums):
                return total
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


def fused_epilogue(reduction: SBlock, operator: Operator, output: SBlock) -> Epilogue | None:
    """What block ``output`` does with each sum, which it reads once, in place.

    Returns:
        ``None`` for anything else, and where neighbours do not stay neighbours.
    """
    store = output.body
    if not isinstance(store, tirx.BufferStore):
        return None
    sums = reduction.body.buffer
    own = [load for load in loads_in(store.value) if load.source.same_as(sums)]
    if not own or any(not are_same(own[0].indices, load.indices) for load in own):
        return None
    ranges = sym.Analyzer()
    for v in output.iter_vars:
        ranges.bind(v.var, v.dom)
    places = [ranges.simplify(index) for index in own[0].indices]
    extents = {v.var: int(v.dom.extent) for v in output.iter_vars}
    sizes = {axis.name: axis.extent for axis in operator.axes}
    axes: dict[Any, AffineIndex] = {}
    for index, dimension in zip(places, operator.write.indices, strict=True):
        terms = tuple((name, c) for name, c in dimension.terms if sizes[name] > 1)
        if not terms:
            continue
        # The whole dimension, at its own place: each sum is then met exactly once.
        if dimension.offset or extents.get(index) != _whole(terms, sizes):
            return None
        axes[index] = AffineIndex(terms)
    if not all(var in axes or extent == 1 for var, extent in extents.items()):
        return None
    epilogue = Epilogue(store.buffer, tuple(store.indices), store.value, sums, axes)
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


def _value(var: Any, known: Mapping[Any, Any]) -> Any:
    value = known.get(var, tirx.const(0))
    return tirx.Cast(str(var.ty.dtype), value) if str(var.ty.dtype) != "int32" else value


def are_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two lists of indices are written alike."""
    return all(tvm_ffi.structural_equal(a, b) for a, b in zip(first, second, strict=True))
