"""Values that TVM computes, or keeps, one at a time, amid others that it computes as vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, tirx

from tvm_tile.graph.expression import uses
from tvm_tile.graph.extract import has_vector_form, is_choice, nodes_in
from tvm_tile.graph.functions import with_prim_funcs


@tvm.transform.module_pass(opt_level=0, name="TakeCallsApart")
@dataclass(frozen=True, slots=True)
class TakeCallsApart:
    """Vectors are loaded and stored whole, whatever functions are between.

    before: ``for v in vectorized(4): y[v] = x[v] * erf(x[v])``
    after:  ``for v in vectorized(4): given[v] = x[v]``
            ``for v in unroll(4): made[v] = erf(given[v])``
            ``for v in vectorized(4): y[v] = x[v] * made[v]``

    TVM has no vectors of erf, nearbyint and others; it would load and store number by number, too.
    Truths are loaded, stored and negated one by one: of vectors of them TVM writes two bytes a
    truth, of which CUDA has no ``!``.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(mod, _vector_by_vector)


@tvm.transform.module_pass(opt_level=0, name="ChooseWholeVectors")
@dataclass(frozen=True, slots=True)
class ChooseWholeVectors:
    """A condition that all numbers of a vector share chooses between vectors.

    before: ``y[0:4] = Select(broadcast(row[i] > 0, 4), a[0:4], b[0:4])``
    after:  ``y[0:4] = if_then_else(row[i] > 0, a[0:4], b[0:4])``

    TVM's text of the former gives the vector of conditions a type that it has not.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(mod, _choosing)


def _choosing(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with choices by one condition for a whole vector as scalar choices."""

    def whole(choice: tirx.Select) -> Any:
        if not isinstance(choice.condition, tirx.Broadcast):
            return choice
        condition = choice.condition.value
        return tirx.if_then_else(condition, choice.true_value, choice.false_value)

    return func.with_body(tvm_ffi.structural_map(func.body, (tirx.Select, whole), order="post"))


def _vector_by_vector(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The function with vector loops taken apart where TVM needs single numbers."""
    body = tvm_ffi.structural_map(func.body, (tirx.For, _taken_apart), order="post")
    return func.with_body(body)


def _taken_apart(loop: tirx.For) -> Any:
    """A vector loop as several statements, some of them number by number."""
    store = loop.body
    is_vector = loop.kind == tirx.ForKind.VECTORIZED and isinstance(loop.extent, tirx.IntImm)
    if is_vector and _keeps_truths(store):
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, store)
    if not is_vector or not isinstance(store, tirx.BufferStore):
        return loop
    if nodes_in(store.value, tirx.Let) or _has_calls_in_choices(store.value):
        return loop  # a choice may keep from reading what is not there
    statements: list[Any] = []

    def number_by_number(call: ir.Call) -> Any:
        if has_vector_form(call) or not isinstance(call.op, ir.Op):
            return call
        count, at = int(loop.extent), tirx.Var("at", loop.loop_var.ty)
        arguments = []
        for argument in call.args:
            if not uses(argument, [loop.loop_var]):
                arguments.append(argument)
                continue
            given = _local(count, str(argument.ty.dtype), "given")
            statements.extend([tirx.AllocBuffer(given), _over(loop, given, argument)])
            arguments.append(tirx.BufferLoad(given, [at]))
        made = _local(count, str(call.ty.dtype), "made")
        body = tirx.BufferStore(made, tirx.call_intrin(call.ty, call.op, *arguments), [at])
        statements.append(tirx.AllocBuffer(made))
        statements.append(tirx.For(at, loop.min, loop.extent, tirx.ForKind.UNROLLED, body))
        return tirx.BufferLoad(made, [loop.loop_var])

    value = tvm_ffi.structural_map(store.value, (ir.Call, number_by_number), order="post")
    if not statements:
        return loop
    stored = tirx.BufferStore(store.buffer, value, store.indices)
    last = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, stored)
    return tirx.SeqStmt([*statements, last])


def _keeps_truths(body: Any) -> bool:
    """Whether a statement loads, stores or negates truths."""

    def look(node: Any) -> Any:
        if isinstance(node, tirx.Not):
            return tvm_ffi.VisitInterrupt()
        memory = node.buffer if isinstance(node, tirx.BufferStore) else node.source
        return tvm_ffi.VisitInterrupt() if str(memory.dtype) == "bool" else None

    kinds = (tirx.BufferStore, ir.TensorLoad, tirx.Not)
    return tvm_ffi.structural_walk(body, (kinds, look), order="pre") is not None


def _over(loop: tirx.For, buffer: Any, value: Any) -> tirx.For:
    """A loop of its own, like another one, that stores a value for each turn."""
    at = tirx.Var("at", loop.loop_var.ty)
    own = tvm_ffi.structural_map(
        value, (tirx.Var, lambda var: at if var.same_as(loop.loop_var) else var), order="post"
    )
    return tirx.For(at, loop.min, loop.extent, loop.kind, tirx.BufferStore(buffer, own, [at]))


def _local(count: int, dtype: str, name: str) -> Any:
    """A buffer in registers."""
    return tirx.decl_buffer((count,), dtype, name, scope="local")


def _has_calls_in_choices(expr: Any) -> bool:
    """Whether a function without vectors is computed only where a choice says so."""
    choices = filter(is_choice, nodes_in(expr, ir.Call))
    return not all(has_vector_form(call) for own in choices for call in nodes_in(own, ir.Call))
