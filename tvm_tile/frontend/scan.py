"""Loops whose iterations read a row of some tensors each, and make a row of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax, tirx
from tvm.relax import op
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as ib

from tvm_tile.frontend.loops import (
    Value,
    Values,
    called,
    parameters_like,
    repeat,
    unshared,
    written,
)
from tvm_tile.loops.rows import each_element, number

Iteration = Callable[[Values, Values, Values], tuple[Values, Values]]
"""From what is carried, rows, and what is fixed to what is carried next, and rows."""

_UNROLLED = 256


def pays_unrolled(count: int, operators: int) -> bool:
    """Whether a loop of ``count`` iterations of some operators is rather written out.

    Iterations that are written out are fused, co-scheduled and captured together; yet whatever is
    written takes time to compile.
    """
    return count * max(operators, 1) <= _UNROLLED


def scan(
    builder: relax.BlockBuilder,
    name: str,
    count: int,
    values: tuple[Values, Values, Values],
    iteration: Iteration,
    *,
    operators: int | None,
) -> tuple[Values, Values]:
    """Write a loop of ``count`` iterations over rows; a short one is written out.

    before: ``for i in range(count): state, y[i] = iteration(state, x[i], fixed)``
    after:  ``y = memory; loop(count, 0, state, y, x, fixed)``, each iteration of which writes its
            row in place

    Args:
        builder: within the function that has the loop.
        name: name of the loop's function.
        count: number of iterations, none or more.
        values: the first values of what is carried; tensors of ``count`` rows, which are their
            parts along the first axis; what is fixed.
        iteration: writes one.
        operators: about how many it is of; ``None`` for a loop that a kernel is to hold.

    Returns:
        The last values of what is carried; a tensor of ``count`` rows for each row that an
        iteration makes.

    Raises:
        ValueError: an iteration changes the type of what is carried.
    """
    if count and operators is not None and pays_unrolled(count, operators):
        return _unrolled(builder, count, values, iteration)
    state, tensors, fixed = values
    place = relax.const(0, "int64")
    at, own = parameters_like([place])[0], parameters_like(state)
    read, inner = parameters_like(tensors), parameters_like(fixed)
    with builder.function(f"{name}_body", attrs=unshared(builder), private=True):
        rows = [builder.emit(op.take(tensor, at, axis=0, mode="clip")) for tensor in read]
        new, made = iteration(own, rows, inner)
        made = [builder.emit(row) for row in made]
        memory = [relax.Var("rows", _of_rows(row.ty, count)) for row in made]
        stored = [_stored(builder, *pair, at) for pair in zip(memory, made, strict=True)]
        after = builder.emit(op.add(at, relax.const(1, "int64")))
        result = builder.emit(relax.Tuple([after, *new, *stored]))
        body = builder.emit_func_output(result, [at, *own, *memory, *read, *inner])
    whole = [_memory(builder, place.ty) for place in memory]
    state = [place, *state, *whole]
    fixed = [*tensors, *fixed]
    _, *ended = repeat(builder, name, count, body, state, fixed, for_kernel=operators is None)
    return ended[: len(own)], ended[len(own) :]


def _unrolled(
    builder: relax.BlockBuilder,
    count: int,
    values: tuple[Values, Values, Values],
    iteration: Iteration,
) -> tuple[Values, Values]:
    state, tensors, fixed = values
    turns: list[Values] = []
    for turn in range(count):
        parts = [op.strided_slice(tensor, [0], [turn], [turn + 1]) for tensor in tensors]
        rows = [builder.emit(op.squeeze(builder.emit(part), [0])) for part in parts]
        new, made = iteration(state, rows, fixed)
        turns.append([builder.emit(row) for row in made])
        state = [builder.emit(value) for value in new]
    return state, [builder.emit(_stacked(builder, list(rows))) for rows in zip(*turns, strict=True)]


def _stacked(builder: relax.BlockBuilder, rows: Values) -> Value:
    parts = [builder.emit(op.expand_dims(row, 0)) for row in rows]
    return op.concat(parts, 0) if len(parts) > 1 else parts[0]


def _of_rows(row: Any, count: int) -> relax.TensorType:
    return relax.TensorType([number(count), *row.shape], row.dtype)


def _memory(builder: relax.BlockBuilder, ty: Any) -> Value:
    """A tensor that nobody else has, of any values: all of its rows are written."""

    def allocate(_: Values) -> Values:
        return [op.builtin.alloc_tensor(ty.shape, str(ty.dtype), 0)]

    return called(builder, written(builder, "rows", [], allocate), [])[0]


def _stored(builder: relax.BlockBuilder, memory: Value, row: Value, at: Value) -> Value:
    """The memory with a row written in place."""
    function = builder.add_func(_store(memory.ty, row.ty), "store_row")
    return builder.emit(op.call_tir_inplace(function, [memory, at, row], [0], memory.ty))


def _store(memory: Any, row: Any) -> tirx.PrimFunc:
    """``memory[at, ...] = row[...]``"""
    extents = [int(extent) for extent in row.shape]
    with IRBuilder() as builder, ib.prim_func(s_tir=True):
        ib.func_name("store_row")
        ib.func_attr({"tirx.noalias": True})
        data = ib.arg(
            "memory", ib.buffer([*map(number, map(int, memory.shape))], str(memory.dtype))
        )
        place = ib.arg("at", ib.buffer([], "int64"))
        given = ib.arg("row", ib.buffer([*map(number, extents)], str(row.dtype)))
        with each_element("store_row", (1, *extents)) as (_, *index):
            ib.reads(given[tuple(index)] if index else given[()], place[()])
            region = (slice(0, int(memory.shape[0])), *index)
            ib.writes(data[region])
            value = tirx.BufferLoad(given, index)
            ib.buffer_store(data, value, [tirx.BufferLoad(place, []), *index])
    return builder.get().without_attr("global_symbol")
