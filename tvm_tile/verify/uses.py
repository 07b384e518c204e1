"""Uses of a function's integer inputs: as places, as divisors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import tvm
from tvm import tirx

from tvm_tile.graph.extract import nodes_in
from tvm_tile.runtime.arrays import numpy_dtype

FEW = 4  # numbers that a computed place is made of: tensors are seldom shorter
_DIVISIONS = (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod)
_SHIFTS = (tirx.expr.LShift, tirx.expr.RShift)


@dataclass(frozen=True, slots=True)
class Uses:
    """Reads of tensors, and where the values go, on whichever way.

    Attributes:
        made_of: tensor or variable -> the tensors that its values are computed of, itself included.
        copied: tensor -> the one whose elements it has, as they are or in another type.
        below: tensor -> how many places there are where its elements are one.
        divisors: tensors by whose elements integers are divided.
        written: all tensors that are.
    """

    made_of: dict[Any, set[Any]] = field(default_factory=dict)
    copied: dict[Any, Any] = field(default_factory=dict)
    below: dict[Any, int] = field(default_factory=dict)
    divisors: set[Any] = field(default_factory=set)
    written: set[Any] = field(default_factory=set)

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> Uses:
        """Find the uses in an unscheduled function."""
        uses = cls()
        stores = nodes_in(func.body, tirx.BufferStore)
        for store in stores:
            uses._note(store.buffer, store.value)
        for bound in nodes_in(func.body, tirx.Bind):
            uses._note(bound.var, bound.value)
        uses.written.update(store.buffer for store in stores)
        loads = nodes_in(func.body, tvm.ir.TensorLoad)
        for tensor, indices in (
            *((load.source, load.indices) for load in loads),
            *((store.buffer, store.indices) for store in stores),
        ):
            for extent, index in zip(tensor.ty.shape, indices, strict=True):
                uses._limit(index, int(extent) if isinstance(extent, tirx.IntImm) else 1)
        for kind in _DIVISIONS:
            for node in nodes_in(func.body, kind):
                uses.divisors.update(uses.sources(node.b))
        for kind in _SHIFTS:
            for node in nodes_in(func.body, kind):
                uses._limit(node.b, _bits(node))
        for loop in nodes_in(func.body, tirx.For):
            uses._limit(loop.extent, 1)
        for loop in nodes_in(func.body, tirx.While):
            uses._limit(loop.condition, 1)
        return uses

    def sources(self, expr: Any) -> set[Any]:
        """The tensors that an expression is computed of."""
        loads = [load.source for load in nodes_in(expr, tvm.ir.TensorLoad)]
        read = [self.made_of.get(source, {source}) for source in loads]
        return set().union(*read, *(self.made_of.get(var, ()) for var in nodes_in(expr, tirx.Var)))

    def _note(self, made: Any, value: Any) -> None:
        """Note what a buffer or a variable is made of."""
        self.made_of.setdefault(made, {made}).update(self.sources(value))
        inner = _without_casts(value)
        if isinstance(inner, tvm.ir.TensorLoad):
            self.copied[made] = self.copied.get(inner.source, inner.source)

    def _limit(self, index: Any, extent: int) -> None:
        """Note that an expression is a place among ``extent``."""
        inner = _without_casts(index)
        own = None
        if isinstance(inner, tvm.ir.TensorLoad):
            own = self.copied.get(inner.source, inner.source)
        for tensor in self.sources(index):
            is_copied = own is not None and tensor in (own, inner.source)
            most = extent if is_copied else min(FEW, extent)
            self.below[tensor] = min(most, self.below.get(tensor, most))


def _without_casts(expr: Any) -> Any:
    """An expression without the casts around it."""
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return expr


def _bits(expr: Any) -> int:
    """Bits of an expression's type."""
    dtype = numpy_dtype(str(expr.ty.dtype))
    return 8 * dtype.itemsize if dtype is not None else 1
