"""Scans: what they mean, as loops, and the Relax operators that are such.

The loops of a scan are its definition, which schedules of :mod:`tvm_tile.schedule.scan` stand for::

    for row:
        state = nothing
        for p: state = state ∘ x[row, p];  y[row, p] = state
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.graph.rowwise import Combine, Rows, Scan
from tvm_tile.loops.combining import Combining, State
from tvm_tile.loops.rows import as_rows, call_loops, index_of, number, shape_of

_ATTRIBUTE = "tvm_tile.scan"


def sums(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.cumsum`` as loops."""
    return _of_call(builder, call, Combine.SUM)


def products(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Write ``relax.cumprod`` as loops."""
    return _of_call(builder, call, Combine.PRODUCT)


def _of_call(builder: relax.BlockBuilder, call: relax.Call, combine: Combine) -> relax.Expr:
    """A scan by the attributes of a call."""
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    (result,) = scan(
        builder, call.args[0], combine, axis, str(call.ty.dtype), is_exclusive=call.attrs.exclusive
    )
    return result


def scan(
    builder: relax.BlockBuilder,
    x: relax.Expr,
    combine: Combine,
    axis: int | None,
    dtype: str | None = None,
    *,
    is_exclusive: bool = False,
    is_reversed: bool = False,
    has_places: bool = False,
) -> tuple[relax.Expr, ...]:
    """Emit a scan of a tensor of static shape along ``axis``; of all its elements where ``None``.

    Args:
        builder: emits the calls.
        x: the tensor; normalized.
        combine: operation as in :class:`~tvm_tile.graph.rowwise.Scan`.
        axis: may be negative.
        dtype: type of the result; sums and products are computed in it. By default that of ``x``.
        is_exclusive: flag as in :class:`~tvm_tile.graph.rowwise.Scan`.
        is_reversed: flag as there.
        has_places: flag as there.

    Returns:
        The result, of the shape of ``x`` (one dimension, where ``axis`` is ``None``), and, with
        ``has_places``, the places.

    Raises:
        ValueError: values of the type of ``x`` have no order, and ``combine`` needs one.
    """
    x, rows = as_rows(builder, x, axis)
    source = str(x.ty.dtype)
    result = dtype or source
    own = Scan(combine, rows, source, result, bool(is_exclusive), is_reversed, has_places)
    dtypes = [result, "int64"] if has_places else [result]
    types = [relax.TensorType(rows.shape, own_dtype) for own_dtype in dtypes]
    return call_loops(builder, scan_loops(own), own.name, [x], types)


def scan_loops(scan: Scan) -> tirx.PrimFunc:
    """The definition of a scan, which knows what it defines."""
    combining, rows = Combining(scan), scan.rows
    shape = shape_of(rows)
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name(scan.name)
        ib.func_attr({"tirx.noalias": True, _ATTRIBUTE: _as_map(scan)})
        x = ib.arg("x", ib.buffer(shape, scan.source))
        y = ib.arg("y", ib.buffer(shape, scan.result))
        places = ib.arg("places", ib.buffer(shape, "int64")) if scan.has_places else None
        outputs = Outputs(combining, x, y, places)
        with ib.serial(number(rows.count)) as loop, ib.sblock(scan.name):
            row = ib.axis.spatial(number(rows.count), loop)
            whole = index_of(rows, row, slice(None))
            ib.reads(x[tuple(whole)])
            ib.writes(*(output[tuple(whole)] for output in (y, places) if output is not None))
            state = [
                IRBuilder.name(f"state_{place}", ib.sblock_alloc_buffer((1,), dtype, scope="local"))
                for place, dtype in enumerate(combining.dtypes)
            ]
            _store(state, combining.identity())
            with ib.serial(number(rows.length)) as step:
                place = number(rows.length - 1) - step if scan.is_reversed else step
                at = index_of(rows, row, place)
                before = tuple(own[0] for own in state)
                given = combining.of(tirx.BufferLoad(x, at), place)
                if scan.is_exclusive:
                    outputs.store(before, row, place)
                _store(state, combining.combined(before, given))
                if not scan.is_exclusive:
                    outputs.store(before, row, place)
    return builder.get().without_attr("global_symbol")


@dataclass(frozen=True, slots=True)
class Outputs:
    """The tensors of a scan, in its loops; ``places`` may be ``None``."""

    combining: Combining
    x: Any
    y: Any
    places: Any

    def results(self, state: State, row: Any) -> tuple[Any, ...]:
        """Meaning of a state: an element of each output."""
        if not self.combining.reads_again:
            dtype, (value,) = self.combining.scan.result, state
            return (value if str(value.ty.dtype) == dtype else tirx.Cast(dtype, value),)
        place = self.combining.place_in(state)
        found = tirx.BufferLoad(self.x, index_of(self.combining.scan.rows, row, place))
        return (found,) if self.places is None else (found, place)

    def store(self, state: State, row: Any, place: Any) -> None:
        """Write what a state means."""
        at = index_of(self.combining.scan.rows, row, place)
        for tensor, value in zip((self.y, self.places), self.results(state, row), strict=False):
            ib.buffer_store(tensor, value, at)


def _store(state: Sequence[Any], values: Sequence[Any]) -> None:
    """Store all values of a state at once: they may read what others overwrite."""
    kept = [ib.Bind(value) for value in values] if len(values) > 1 else values
    for own, value in zip(state, kept, strict=True):
        ib.buffer_store(own, value, [0])


def find_scan(func: tirx.PrimFunc) -> Scan | None:
    """The scan that ``func`` defines, if it is the definition of one and nothing else."""
    found = (func.attrs or {}).get(_ATTRIBUTE)
    if found is None:
        return None
    own = _from_map(found)
    is_same = tvm_ffi.structural_equal(scan_loops(own).body, func.body, map_free_vars=True)
    return own if is_same else None


def _as_map(scan: Scan) -> dict[str, Any]:
    """A form of the definition that a function's attribute can hold."""
    flags = (scan.is_exclusive, scan.is_reversed, scan.has_places)
    return {
        "combine": scan.combine.value,
        "shape": list(scan.rows.shape),
        "axis": scan.rows.axis,
        "dtypes": [scan.source, scan.result],
        "flags": [int(flag) for flag in flags],
    }


def _from_map(found: Any) -> Scan:
    """A scan from an attribute of its function."""
    rows = Rows(tuple(int(extent) for extent in found["shape"]), int(found["axis"]))
    source, result = (str(dtype) for dtype in found["dtypes"])
    flags = (bool(flag) for flag in found["flags"])
    return Scan(Combine(str(found["combine"])), rows, source, result, *flags)
