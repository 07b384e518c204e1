"""Sorts: what they mean, as loops, and the Relax operators that are such.

The loops are their definition, which schedules of :mod:`tvm_tile.schedule.sort` stand for: each row
is merged from runs of one, two, four ... elements::

    for row:
        for p: order[0, row, p] = p
        for turn, width in 1, 2, 4, ...:
            for q:
                at the beginning of two runs: i, j = their first elements
                order[1, row, q] = the one of order[0, row, i] and order[0, row, j] that comes first
        for p < kept: y[row, p] = x[row, order[last, row, p]]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Rows, Sort
from tvm_tile.loops.keys import rising_key, short_key
from tvm_tile.loops.rows import as_rows, call_loops, index_of, number, shape_of

_ATTRIBUTE = "tvm_tile.sort"
_LOW, _SHORT = 0xFFFFFFFF, 0xFFFF
State = tuple[Any, ...]
"""One expression for each of :attr:`Ordering.dtypes`."""


@dataclass(frozen=True, slots=True)
class Ordering:
    """Keys that stand for the elements of a sort: no two are equal, and the first is the least.

    It is a key above a place, in one number of 32 bits where :attr:`Sort.words` says so, and in one
    of 64 bits where the key has 32.
    """

    sort: Sort

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Data types of what stands for an element."""
        return (("int32",), ("int64",), ("int64", "int32"))[self.sort.words - 1]

    def of(self, value: Any, place: Any) -> State:
        """Key of a value at a place of its row."""
        key = short_key(value) if self.sort.words == 1 else rising_key(value)
        if self.sort.is_descending:
            key = tirx.bitwise_not(key)
        if self.sort.words == 1:
            return ((key << tirx.const(16, "int32")) | tirx.Cast("int32", place),)
        if self.sort.words == 3:
            return key, tirx.Cast("int32", place)
        return ((tirx.Cast("int64", key) << number(32)) | tirx.Cast("int64", place),)

    def behind_all(self, place: Any) -> State:
        """Key that stands for no element, at a place behind the last."""
        last = tirx.max_value(self.dtypes[0])
        return (last,) if len(self.dtypes) == 1 else (last, tirx.Cast("int32", place))

    def is_before(self, a: State, b: State) -> Any:
        """Whether ``a`` comes first."""
        if len(a) == 1:
            return a[0] < b[0]
        return (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))

    def place_in(self, state: State) -> Any:
        """Place in its row, as int64, of the key's element."""
        if len(state) == 2:
            return tirx.Cast("int64", state[1])
        if self.sort.words == 1:
            return tirx.Cast("int64", state[0] & tirx.const(_SHORT, "int32"))
        return state[0] & tirx.const(_LOW, "int64")


@dataclass(frozen=True, slots=True)
class Sorted:
    """The tensors of a sort, in its loops: outputs may be ``None``."""

    sort: Sort
    x: Any
    y: Any
    places: Any

    @classmethod
    def declared(cls, sort: Sort) -> Sorted:
        """The function's parameters."""
        shape = shape_of(sort.result)
        x = ib.arg("x", ib.buffer(shape_of(sort.rows), sort.source))
        y = ib.arg("y", ib.buffer(shape, sort.source)) if sort.has_values else None
        places = ib.arg("places", ib.buffer(shape, sort.places)) if sort.places else None
        return cls(sort, x, y, places)

    @property
    def outputs(self) -> list[Any]:
        """The tensors that were made: the sorted elements, their places, or both."""
        return [tensor for tensor in (self.y, self.places) if tensor is not None]

    def load(self, row: Any, place: Any) -> Any:
        """An element of the input."""
        return tirx.BufferLoad(self.x, index_of(self.sort.rows, row, place))

    def store(self, row: Any, rank: Any, place: Any) -> None:
        """The element at this place of its row is the one of this rank."""
        at = index_of(self.sort.result, row, rank)
        if self.y is not None:
            ib.buffer_store(self.y, self.load(row, place), at)
        if self.places is not None:
            ib.buffer_store(self.places, tirx.Cast(str(self.sort.places), place), at)


def sort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.sort`` as loops."""
    x, rows = as_rows(builder, call.args[0], int(call.attrs.axis))
    dtype = str(x.ty.dtype)
    (result,) = _emitted(
        builder, x, Sort(rows, rows.length, dtype, bool(call.attrs.descending), True, None)
    )
    return result


def argsort(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.argsort`` as loops."""
    x, rows = as_rows(builder, call.args[0], int(call.attrs.axis))
    descending, dtype = bool(call.attrs.descending), str(call.ty.dtype)
    (result,) = _emitted(
        builder, x, Sort(rows, rows.length, str(x.ty.dtype), descending, False, dtype)
    )
    return result


def topk(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``relax.topk``; of no more than a row has."""
    x, rows = as_rows(builder, call.args[0], int(call.attrs.axis))
    count, kind = int(call.attrs.k), str(call.attrs.ret_type)
    if count > rows.length:
        raise ValueError(f"a row of {rows.length} elements has no {count} largest ones")
    own = Sort(
        rows,
        count if count > 0 else rows.length,
        str(x.ty.dtype),
        is_descending=bool(call.attrs.largest),
        has_values=kind != "indices",
        places=str(call.attrs.dtype) if kind != "values" else None,
    )
    results = _emitted(builder, x, own)
    return relax.Tuple(list(results)) if kind == "both" else results[0]


def first_in_order(
    builder: relax.BlockBuilder, x: relax.Expr, axis: int, count: int, *, is_descending: bool
) -> tuple[relax.Expr, relax.Expr]:
    """Emit a sort of a tensor of static shape: the first ``count`` elements of each row along
    ``axis``, and their places (int64)."""
    x, rows = as_rows(builder, x, axis)
    own = Sort(rows, count, str(x.ty.dtype), is_descending, has_values=True, places="int64")
    values, places = _emitted(builder, x, own)
    return values, places


def _emitted(builder: relax.BlockBuilder, x: relax.Expr, own: Sort) -> tuple[relax.Expr, ...]:
    """Emit a sort; its outputs."""
    dtypes = [*([own.source] if own.has_values else []), *([own.places] if own.places else [])]
    types = [relax.TensorType(own.result.shape, dtype) for dtype in dtypes]
    return call_loops(builder, sort_loops(own), own.name, [x], types)


def sort_loops(sort: Sort) -> tirx.PrimFunc:
    """The definition of a sort, which knows what it defines."""
    rows = sort.rows
    turns = max(1, (rows.length - 1).bit_length())
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name(sort.name)
        ib.func_attr({"tirx.noalias": True, _ATTRIBUTE: _as_map(sort)})
        tensors = Sorted.declared(sort)
        shape = [number(n) for n in (2, rows.count, rows.length)]
        order = IRBuilder.name("order", ib.sblock_alloc_buffer(shape, "int32"))
        with ib.serial(number(rows.count)) as loop, ib.sblock(sort.name):
            row = ib.axis.spatial(number(rows.count), loop)
            ib.reads(tensors.x[tuple(index_of(rows, row, slice(None)))])
            whole = tuple(index_of(sort.result, row, slice(None)))
            ib.writes(order[:, row, :], *(tensor[whole] for tensor in tensors.outputs))
            with ib.serial(number(rows.length)) as place:
                ib.buffer_store(order, tirx.Cast("int32", place), [number(0), row, place])
            with ib.serial(number(turns)) as turn:
                _merge(tensors, order, row, turn)
            with ib.serial(number(sort.kept)) as rank:
                tensors.store(row, rank, tirx.Cast("int64", order[number(turns % 2), row, rank]))
    return builder.get().without_attr("global_symbol")


def _merge(tensors: Sorted, order: Any, row: Any, turn: Any) -> None:
    """Runs of ``2**turn`` elements, in pairs."""
    ordering, length = Ordering(tensors.sort), number(tensors.sort.rows.length)
    names = ("left", "right")
    left, right = (
        IRBuilder.name(name, ib.sblock_alloc_buffer((number(1),), "int64", scope="local"))
        for name in names
    )
    width, old = ib.Bind(number(1) << turn), ib.Bind(turn % number(2))

    def state(position: Any) -> State:
        bounded = tirx.min(position, length - number(1))
        place = tirx.Cast("int64", order[old, row, bounded])
        return ordering.of(tensors.load(row, place), place)

    with ib.serial(length) as q:
        start = ib.Bind(q - q % (width * number(2)))
        middle = ib.Bind(tirx.min(start + width, length))
        end = ib.Bind(tirx.min(start + width * number(2), length))
        with ib.If(q == start), ib.Then():
            ib.buffer_store(left, start, [0])
            ib.buffer_store(right, middle, [0])
        is_first = ordering.is_before(state(left[0]), state(right[0]))
        takes_left = tirx.all(left[0] < middle, tirx.any(right[0] >= end, is_first))
        taken = ib.Bind(tirx.Cast("int64", takes_left))
        found = left[0] * taken + right[0] * (number(1) - taken)
        ib.buffer_store(order, order[old, row, found], [number(1) - old, row, q])
        ib.buffer_store(left, left[0] + taken, [0])
        ib.buffer_store(right, right[0] + number(1) - taken, [0])


def find_sort(func: tirx.PrimFunc) -> Sort | None:
    """The sort that ``func`` defines, if it is the definition of one and nothing else."""
    found = (func.attrs or {}).get(_ATTRIBUTE)
    if found is None:
        return None
    own = _from_map(found)
    is_same = tvm_ffi.structural_equal(sort_loops(own).body, func.body, map_free_vars=True)
    return own if is_same else None


def _as_map(sort: Sort) -> dict[str, Any]:
    """A form of the definition that a function's attribute can hold."""
    return {
        "shape": list(sort.rows.shape),
        "axis": sort.rows.axis,
        "kept": sort.kept,
        "source": sort.source,
        "flags": [int(sort.is_descending), int(sort.has_values)],
        "places": sort.places or "",
    }


def _from_map(found: Any) -> Sort:
    """A sort from an attribute of its function."""
    rows = Rows(tuple(int(extent) for extent in found["shape"]), int(found["axis"]))
    is_descending, has_values = (bool(flag) for flag in found["flags"])
    places = str(found["places"]) or None
    return Sort(rows, int(found["kept"]), str(found["source"]), is_descending, has_values, places)
