"""Evaluate what a model computes of constants, and follow the codes that it is computed of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_tile.frontend.evaluate import (
    PICKS,
    evaluate,
    joined_parts,
    moved,
    part_of_split,
    static_shape,
)
from tvm_tile.graph.codes import Array, have_same_bits, numpy_dtype
from tvm_tile.graph.traced import Traced


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A constant: itself, or the codes that it is computed of, where these are known."""

    known: Array | Traced

    @property
    def traced(self) -> Traced | None:
        """How it is computed of codes; ``None`` where that is not known."""
        return self.known if isinstance(self.known, Traced) else None

    @property
    def array(self) -> Array:
        """Itself; what is followed is computed each time."""
        return self.known.values() if isinstance(self.known, Traced) else self.known

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the tensor."""
        return (self.known.codes if isinstance(self.known, Traced) else self.known).shape


@dataclass(frozen=True, slots=True)
class Tracer:
    """Evaluates what variables are bound to.

    Attributes:
        made: variable -> what it is bound to.
        known: variable -> its value; ``None`` where that is not known here.
    """

    made: Mapping[Any, Any]
    known: dict[Any, Value | None] = field(default_factory=dict)

    def evaluated(self, variables: Sequence[Any]) -> Value | None:
        """The value of the last one of some variables, each of which is bound to what only those
        before it tell; of the others each is forgotten behind the last one that reads it."""
        *_, wanted = variables
        reads = {var: self._reads(self.made[var]) for var in variables}
        last = {read: var for var, own in reads.items() for read in own}
        for var, own in reads.items():
            self.known[var] = self._value_of(self.made[var])
            for read in own:
                if last[read].same_as(var):
                    self.known.pop(read, None)
        return self.known[wanted]

    def _reads(self, value: Any) -> list[Any]:
        """The variables whose values an expression is made of; of a part of a split the whole."""
        if isinstance(value, relax.TupleGetItem):
            value = self.made.get(value.tuple_value, value)
        return list(relax.analysis.free_vars(value))

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
        # What is followed is computed when it is known how few different values it has.
        traced = _traced(name, call, operands, shape, dtype) if 0 not in shape else None
        if traced is not None and traced.codes.shape == shape:
            return Value(traced)
        arrays = [None if operand is None else operand.array for operand in operands]
        array = evaluate(name, call, arrays, shape, dtype)
        if array is None or array.shape != shape:
            return None
        return Value(array.astype(numpy_dtype(dtype), copy=False))


def _traced(
    name: str, call: relax.Call, operands: list[Value | None], shape: tuple[int, ...], dtype: str
) -> Traced | None:
    """The codes behind an operator's result; ``None`` where nothing tells that it is made so."""
    known = [operand for operand in operands if operand is not None]
    if not known:  # made of nothing, as by arange
        return None
    first, *others = known
    if name == "relax.astype":
        return _cast(first, dtype)
    if name == "relax.take":
        return _entries(first, others, dtype) if call.attrs.mode in PICKS else None
    if name in ("relax.multiply", "relax.add") and first.traced is None and others:
        first, others = others[0], [first]
    if name == "relax.subtract" and first.traced is None and "int" in dtype and others:
        zeros = others[0].array
        is_shared = zeros.size * 2 <= math.prod(shape) or _is_shared(zeros)
        return Traced.of(first.array, dtype).less(zeros) if is_shared else None
    traced = first.traced
    if traced is None:
        return None
    if name in _STEPS:
        return _STEPS[name](traced, others[0].array) if others else None
    found = traced.moved(lambda own: moved(name, call, own, shape))
    if found is None or name != "relax.nn.pad":
        return found
    padded = moved(name, call, first.array, shape)  # as codes are not, if 0 is no code for 0
    return found if padded is not None and have_same_bits(found.values(), padded) else None


_STEPS: dict[str, Callable[[Traced, Array], Traced | None]] = {
    "relax.multiply": Traced.times,
    "relax.add": Traced.plus,
    "relax.subtract": Traced.less,
}


def _cast(value: Value, dtype: str) -> Traced | None:
    if isinstance(value.known, Traced):
        return value.known.cast(dtype)
    source = value.known.dtype
    is_code = source.kind in "iub" or source.itemsize == 1
    return Traced.of(value.known, dtype) if is_code and "float" in dtype else None


def _entries(table: Value, numbers: list[Value], dtype: str) -> Traced | None:
    """What numbers pick of a table, if they all are within it."""
    if len(table.shape) != 1 or not numbers or "float" not in dtype:
        return None
    codes = numbers[0].array
    is_within = codes.min() >= 0 and codes.max() < table.shape[0]
    return Traced.of(codes, dtype, table=table.array) if is_within else None


def _is_shared(zeros: Array) -> bool:
    """Whether neighbours along some axis are mostly the same."""
    return any(
        extent > 1 and np.count_nonzero(np.diff(zeros, axis=axis)) * 8 < zeros.size
        for axis, extent in enumerate(zeros.shape)
    )


def _moved(value: Value, move: Callable[[Array], Array]) -> Value:
    if not isinstance(value.known, Traced):
        return Value(move(value.known))
    traced = value.known.moved(move)
    assert traced is not None
    return Value(traced)


def _joined(name: str, call: relax.Call, parts: list[Value | None], dtype: str) -> Value | None:
    """Several values as one; their codes, where these mean the same without any step."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    traced = [part.traced for part in known if part.traced is not None]
    if traced and len(traced) == len(known) and _mean_the_same(traced):
        codes = joined_parts(name, call, [own.codes for own in traced])
        return None if codes is None else Value(replace(traced[0], codes=codes))
    array = joined_parts(name, call, [part.array for part in known])
    return None if array is None else Value(array)


def _mean_the_same(traced: Sequence[Traced]) -> bool:
    """Whether codes of several tensors are the same numbers, or entries of equal tables."""
    if any(own.zero or own.scales or own.offset for own in traced):
        return False
    if len({(own.codes.dtype, tuple(step.dtype for step in own.steps)) for own in traced}) > 1:
        return False
    tables = [own.table for own in traced if own.table is not None]
    is_one = all(np.array_equal(tables[0], other) for other in tables[1:])
    return not tables or (len(tables) == len(traced) and is_one)
