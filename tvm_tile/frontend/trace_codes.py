"""Evaluate what a model computes of constants, and follow the codes that it is computed of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_tile.frontend.evaluate import evaluate, joined_parts, moved, part_of_split, static_shape
from tvm_tile.graph.codes import Array, numpy_dtype
from tvm_tile.graph.recognise import Traced


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A constant, and the codes that it was computed of, where these are known."""

    array: Array
    traced: Traced | None = None


@dataclass(frozen=True, slots=True)
class Tracer:
    """Evaluates what variables are bound to.

    Attributes:
        made: variable -> what it is bound to.
        known: variable -> its value; ``None`` where that is not known here.
    """

    made: Mapping[Any, Any]
    known: dict[Any, Value | None] = field(default_factory=dict)

    def evaluated(self, variables: Iterable[Any]) -> Mapping[Any, Value | None]:
        """The values of variables, each of which is bound to what only those before it tell."""
        for var in variables:
            self.known[var] = self._value_of(self.made[var])
        return self.known

    def _value_of(self, value: Any) -> Value | None:
        """The value of an expression; ``None`` where that is not known here."""
        if isinstance(value, tvm.ir.GenericConst):
            held = value.value
            return Value(held.numpy()) if hasattr(held, "numpy") else None
        if isinstance(value, relax.Var):
            return self.known.get(value)
        if isinstance(value, relax.TupleGetItem):
            return self._part(value)
        return self._result(value) if isinstance(value, relax.Call) else None

    def _part(self, item: relax.TupleGetItem) -> Value | None:
        split = self.made.get(item.tuple_value)
        if split is None or getattr(getattr(split, "op", None), "name", "") != "relax.split":
            return None
        whole = self._value_of(split.args[0])
        return (
            None if whole is None else _moved(whole, lambda a: part_of_split(split, a, item.index))
        )

    def _result(self, call: relax.Call) -> Value | None:
        shape, name = static_shape(call.ty), getattr(call.op, "name", "")
        if shape is None or not call.args:
            return None
        dtype = str(call.ty.dtype)
        if isinstance(call.args[0], relax.Tuple):
            parts = [self._value_of(part) for part in call.args[0].fields]
            return _joined(name, call, parts, dtype)
        operands = [self._value_of(argument) for argument in call.args]
        arrays = [None if operand is None else operand.array for operand in operands]
        array = evaluate(name, call, arrays, shape, dtype)
        if array is None or array.shape != shape:
            return None
        array = array.astype(numpy_dtype(dtype), copy=False)
        return Value(array, _traced(name, call, operands, array, dtype))


def _traced(
    name: str, call: relax.Call, operands: list[Value | None], array: Array, dtype: str
) -> Traced | None:
    """The codes behind an operator's result, whose value is ``array``."""
    known = [operand for operand in operands if operand is not None]
    if not known:  # made of nothing, as by arange
        return None
    first, *others = known
    if name == "relax.astype":
        return _cast(first, dtype)
    if name == "relax.take" and first.array.ndim == 1 and "float" in dtype:
        return Traced(others[0].array, dtype, table=first.array)
    if name in ("relax.multiply", "relax.add") and first.traced is None and others:
        first, others = others[0], [first]
    if name == "relax.subtract" and first.traced is None and "int" in dtype:
        is_shared = others[0].array.size * 2 <= array.size or _is_shared(others[0].array)
        return Traced(first.array, dtype).less(others[0].array) if is_shared else None
    traced = first.traced
    if traced is None:
        return None
    if name == "relax.multiply":
        return traced.times(others[0].array)
    if name == "relax.add":
        return traced.plus(others[0].array)
    if name == "relax.subtract":
        return traced.less(others[0].array)
    return traced.moved(lambda own: moved(name, call, own, array.shape))


def _cast(value: Value, dtype: str) -> Traced | None:
    if value.traced is not None:
        return value.traced.cast(dtype)
    source = value.array.dtype
    is_code = source.kind in "iub" or source.itemsize == 1
    return Traced(value.array, dtype) if is_code and "float" in dtype else None


def _is_shared(zeros: Array) -> bool:
    """Whether neighbours along some axis are mostly the same."""
    return any(
        extent > 1 and np.count_nonzero(np.diff(zeros, axis=axis)) * 8 < zeros.size
        for axis, extent in enumerate(zeros.shape)
    )


def _moved(value: Value, move: Callable[[Array], Array]) -> Value:
    traced = None if value.traced is None else value.traced.moved(move)
    return Value(move(value.array), traced)


def _joined(name: str, call: relax.Call, parts: list[Value | None], dtype: str) -> Value | None:
    """Several values as one; their codes, where these mean the same without any step."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    array = joined_parts(name, call, [part.array for part in known])
    if array is None:
        return None
    traced = [part.traced for part in known if part.traced is not None]
    if len(traced) < len(known) or not _mean_the_same(traced):
        return Value(array)
    codes = joined_parts(name, call, [own.codes for own in traced])
    assert codes is not None
    return Value(array, Traced(codes, dtype, traced[0].table))


def _mean_the_same(traced: Sequence[Traced]) -> bool:
    """Whether codes of several tensors are the same numbers, or entries of equal tables."""
    if any(own.zero or own.scales or own.offset for own in traced):
        return False
    tables = [own.table for own in traced if own.table is not None]
    is_one = all(np.array_equal(tables[0], other) for other in tables[1:])
    return not tables or (len(tables) == len(traced) and is_one)
