"""Elements of tensors as expressions, found in one place, to be written in another.

A fused function says what it computes in blocks of loops; a kernel computes the same with loops of
its own, and keeps in registers or shared memory what the blocks hand to one another as tensors. So
an expression that is taken out of a block is written with the kernel's values for the block's
variables, for the elements of those tensors, and with the kernel's buffers for the parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.extract import has_vector_form, loads_in, nodes_in
from tvm_tile.graph.tile_graph import AffineIndex, Axis, Operator

Place = Mapping[str, Any]
"""Name of an axis -> its value; an axis that is not named is at 0."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A value that axes, parameters and given elements make.

    Attributes:
        value: itself, an expression of TensorIR.
        axes: variables of the expression -> the axes that they stand for; other variables stay as
            they are.
        given: tensors whose elements are given where it is written: sums that lie in registers.
    """

    value: Any
    axes: Mapping[Any, AffineIndex]
    given: tuple[Any, ...] = ()

    @classmethod
    def of(
        cls, block: SBlock, operator: Operator, value: Any, given: tuple[Any, ...] = ()
    ) -> Expression:
        """The expression that a block stores, with the names that ``operator`` gives its axes."""
        pairs = zip(block.iter_vars, operator.axes, strict=True)
        return cls(value, {v.var: AffineIndex(((axis.name, 1),)) for v, axis in pairs}, given)

    @property
    def variables(self) -> dict[Any, str]:
        """Variables of the expression that are axes, each with the name of its axis."""
        terms = {var: index.terms for var, index in self.axes.items() if not index.offset}
        return {var: own[0][0] for var, own in terms.items() if [c for _, c in own] == [1]}

    @property
    def names(self) -> frozenset[str]:
        """The axes that it depends on."""
        return self._names(variables_in(self.value))

    @property
    def names_read(self) -> frozenset[str]:
        """The axes that its loads of parameters depend on."""
        return self._names([var for load in self.loads for var in variables_in(load)])

    def _names(self, variables: Sequence[Any]) -> frozenset[str]:
        """Names of the axes that the variables stand for."""
        used = (self.axes[var] for var in variables if var in self.axes)
        return frozenset(name for index in used for name, _ in index.terms)

    @property
    def loads(self) -> list[Any]:
        """Loads of parameters in the expression, as often as they occur."""
        return [load for load in loads_in(self.value) if self._number(load) is None]

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the parameters that it reads."""
        return frozenset(str(load.source.name) for load in self.loads)

    @property
    def is_vectorizable(self) -> bool:
        """Whether TVM can write it for neighbours as one vector.

        It takes loops with other calls, such as erf's and nearbyint's, apart, and loads
        neighbouring bools two bytes each.
        """
        is_known = all(map(has_vector_form, nodes_in(self.value, ir.Call)))
        return is_known and all(str(load.source.ty.dtype) != "bool" for load in self.loads)

    def at(self, place: Place, values: Sequence[Any], buffers: Mapping[str, Any]) -> Any:
        """The value at a place.

        Args:
            place: the axes' values.
            values: elements there, one of each tensor whose elements are given.
            buffers: name of a parameter -> the buffer that stands for it.
        """

        def variable(var: Any) -> Any:
            return like(var, value_of(self.axes[var], place)) if var in self.axes else var

        def load(node: ir.TensorLoad) -> Any:
            number = self._number(node)
            if number is not None:
                return like(node, values[number])  # sums may be kept wider than they are handed on
            return tirx.BufferLoad(buffers[str(node.source.name)], list(node.indices))

        entries = [(tirx.Var, variable), (ir.TensorLoad, load)]
        return tvm_ffi.structural_map(self.value, entries, order="post")

    def _number(self, load: Any) -> int | None:
        """Number of the given tensor that a load reads."""
        return next((n for n, own in enumerate(self.given) if load.source.same_as(own)), None)


def variables_in(expr: Any) -> list[Any]:
    """The variables of an expression, as often as they occur."""
    return nodes_in(expr, tirx.Var)


def uses(tree: Any, variables: Sequence[Any]) -> bool:
    """Whether any of some variables is in an expression, a statement or a type."""

    def visit(var: Any) -> Any:
        return tvm_ffi.VisitInterrupt() if any(var.same_as(v) for v in variables) else None

    return tvm_ffi.structural_walk(tree, (tirx.Var, visit)) is not None


def with_simple_indices(value: Any, ranges: sym.Analyzer) -> Any:
    """An expression, the indices of whose loads are simplified by what is known of variables."""

    def load(node: ir.TensorLoad) -> Any:
        return tirx.BufferLoad(node.source, [ranges.simplify(index) for index in node.indices])

    return tvm_ffi.structural_map(value, (ir.TensorLoad, load), order="post")


def block_ranges(block: SBlock) -> sym.Analyzer:
    """An analyzer that knows through what the variables of a block run."""
    ranges = sym.Analyzer()
    for v in block.iter_vars:
        ranges.bind(v.var, v.dom)
    return ranges


def is_in_order(block: SBlock) -> bool:
    """Whether a block stores each value at its variables, one a dimension."""
    store, variables = block.body, [v.var for v in block.iter_vars]
    return isinstance(store, tirx.BufferStore) and is_at(store.indices, variables)


def is_at(indices: Sequence[Any], variables: Sequence[Any]) -> bool:
    """Whether indices are these variables."""
    return len(indices) == len(variables) and all(
        index.same_as(var) for index, var in zip(indices, variables, strict=True)
    )


def loads_of(expr: Any, tensor: Any) -> list[Any]:
    """The loads of a tensor in an expression, as often as they occur."""
    return [load for load in loads_in(expr) if load.source.same_as(tensor)]


def is_load_of(expr: Any, tensor: Any) -> bool:
    """Whether an expression is an element of a tensor."""
    return isinstance(expr, ir.TensorLoad) and bool(expr.source.same_as(tensor))


def number_in(expr: Any) -> float | None:
    """The number that an expression is; ``None`` where it is none."""
    return float(expr.value) if isinstance(expr, tirx.FloatImm | tirx.IntImm) else None


def combined(block: SBlock, kind: Any) -> Any | None:
    """``x`` of a block that stores ``kind(own, x)`` where it read ``own``; else ``None``."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, kind):
        return None
    return store.value.b if is_load_of(store.value.a, store.buffer) else None


def summand(block: SBlock) -> Any | None:
    """Expression that a block adds up from zero; ``None`` for a block that does anything else."""
    start = block.init
    is_from_zero = isinstance(start, tirx.BufferStore) and number_in(start.value) == 0
    return combined(block, tirx.Add) if is_from_zero else None


def substituted(expr: Any, values: Mapping[Any, Any]) -> Any:
    """An expression, or a statement, with values for some of its variables, in these' types."""

    def variable(var: Any) -> Any:
        return like(var, values[var]) if var in values else var

    return tvm_ffi.structural_map(expr, [(tirx.Var, variable)], order="post")


def like(var: Any, value: Any) -> Any:
    """A value in the type of a variable or an element; what stands for a tensor stays as it is."""
    is_number = isinstance(var.ty, ir.PrimType) and str(value.ty.dtype) != str(var.ty.dtype)
    return tirx.Cast(str(var.ty.dtype), value) if is_number else value


def value_of(index: AffineIndex, place: Place) -> Any:
    """The value of an index at a place."""
    total: Any = tirx.const(index.offset, "int32")
    for name, coefficient in index.terms:
        if name in place:
            total = total + place[name] * coefficient
    return total


def quotient(value: Any, count: Any) -> Any:
    """A number that is not negative, divided by a number that may be an expression.

    TVM would prove for seconds that the second one is not negative, either.
    """
    return value // count if isinstance(count, int) else tirx.truncdiv(value, like(value, count))


def remainder(value: Any, count: Any) -> Any:
    """Remainder of the division of :func:`quotient`."""
    return value % count if isinstance(count, int) else tirx.truncmod(value, like(value, count))


def digits(value: Any, axes: Sequence[Axis], extents: Sequence[Any]) -> list[tuple[str, Any]]:
    """``value`` as one digit an axis, the last one the fastest."""
    names = (axis.name for axis in axes)
    return list(zip(names, split(value, extents), strict=True))


def split(value: Any, extents: Sequence[Any]) -> list[Any]:
    """A number as one digit an extent, the last one the fastest; the first has no end."""
    found: list[Any] = []
    below: Any = 1
    for count in reversed(extents):
        digit = value if isinstance(below, int) and below == 1 else quotient(value, below)
        is_first = len(found) == len(extents) - 1
        found.append(digit if is_first else remainder(digit, count))
        below *= count
    return found[::-1]


def in_halves(
    value: Any, sums: Any, ranges: sym.Analyzer
) -> tuple[Any, tuple[Any, Any], int] | None:
    """An expression of two sums, one of each half of a dimension, as one of loads at one place.

    before: ``f(sums[m, n], sums[m, n + 64])``   after: ``f(sums[m, n], second[m, n])``

    Returns:
        The expression, the buffers that stand for the sums of both halves, and the number of the
        dimension; ``None`` of any other expression.
    """
    loads = loads_of(value, sums)
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
        is_last = is_load_of(node, sums) and are_same(node.indices, last)
        return tirx.BufferLoad(second, list(first)) if is_last else node

    written = tvm_ffi.structural_map(value, [(ir.TensorLoad, load)], order="post")
    return written, (sums, second), moved[0]


def are_same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two lists of indices are written alike."""
    return all(tvm_ffi.structural_equal(a, b) for a, b in zip(first, second, strict=True))
