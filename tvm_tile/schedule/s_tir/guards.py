"""Guards of blocks: which a scheduled function can do without, and which TVM forgets."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from tvm_tile.graph.expression import uses, variables_in
from tvm_tile.graph.extract import nodes_in
from tvm_tile.schedule.s_tir.steps import SBlockRV, replace_value


def drop_guards(
    func: tirx.PrimFunc, names: frozenset[str], summed: tuple[Any, ...]
) -> tirx.PrimFunc:
    """Let the blocks ``names`` compute past the tensor's edge instead of testing for it.

    A tile that overhangs computes values nobody stores: they live in a thread's own accumulators,
    and the copy to global memory keeps its guard. A test at each multiply-add would cost more than
    the arithmetic it saves. Guards on the ``summed`` loop variables stay: what lies behind the end
    of a sum must not be added.
    """
    guards = {}
    for name in names:
        kept = [g for g in conjuncts(realize_of(func, name).predicate) if uses(g, summed)]
        guards[name] = conjunction(kept)
    return with_guards(func, guards)


def copy_guard(sch: Schedule, source: SBlockRV, follower: SBlockRV) -> tirx.PrimFunc:
    """The function of ``sch``, with ``follower`` run only where ``source`` above it runs.

    TVM's ``reverse_compute_at`` derives a consumer's loops from the region its producer writes
    and does not carry over the guard of a split that does not divide. What guard it does give the
    consumer stays: one that writes a part of what its producer does (a slice, say) needs it.
    """
    func = sch.mod["main"]
    name = str(sch.get(follower).name_hint)
    scope = [sch.get(loop).loop_var for loop in sch.get_loops(follower)]
    guard = realize_of(func, str(sch.get(source).name_hint)).predicate
    kept = [part for part in conjuncts(guard) if _uses_only(part, scope)]
    if not kept:
        return func
    ranges = loop_ranges(loops_of(func))
    with ranges.constraint_scope(ranges.simplify(conjunction(kept))):
        own = [
            part
            for part in conjuncts(realize_of(func, name).predicate)
            if not ranges.can_prove(part)
        ]
    return with_guards(func, {name: conjunction([*kept, *own])})


def hoist_guard(func: tirx.PrimFunc, name: str, variable: Any) -> tirx.PrimFunc:
    """Test the guard of a block once, outside of the loop over ``variable`` around it.

    before: ``for k: if inside: sum += A[k]``
    after:  ``if inside: for k: sum += A[k]``

    A test around each load would keep the loads apart. The guard must not depend on the loop.
    """
    guard = realize_of(func, name).predicate
    if not variables_in(guard):
        return func

    def visit(loop: tirx.For) -> Any:
        return tirx.IfThenElse(guard, loop, None) if loop.loop_var.same_as(variable) else loop

    bare = with_guards(func, {name: conjunction(())})
    return bare.with_body(tvm_ffi.structural_map(bare.body, (tirx.For, visit), order="post"))


def zero_outside(func: tirx.PrimFunc, copies: Sequence[str]) -> tirx.PrimFunc:
    """Let the blocks ``copies`` store zeros where their guards keep them from reading.

    before: ``if inside: A_own[v] = A[place + v]``
    after:  ``A_own[v] = A[place + v] if inside else 0``

    Only copies to registers do: other blocks of the same name store where others have stored.
    """

    def visit(realize: SBlockRealize) -> SBlockRealize:
        block = realize.block
        is_copy = block.name_hint in copies and block.writes[0].source.scope() == "local"
        if not is_copy or not variables_in(realize.predicate):
            return realize
        filled = zero_unless(realize.predicate, block)
        return SBlockRealize(realize.iter_values, conjunction(()), filled)

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlockRealize, visit), order="post"))


def zero_unless(condition: Any, block: SBlock) -> SBlock:
    """A copy that stores zero where ``condition`` does not hold, without reading."""
    value = block.body.value
    zero = tirx.const(0, str(value.ty.dtype))
    return replace_value(block, tirx.if_then_else(condition, value, zero))


def realize_of(func: tirx.PrimFunc, name: str) -> SBlockRealize:
    """The block of that name with its guard and the values of its variables."""
    found = nodes_in(func.body, SBlockRealize)
    return next(realize for realize in found if realize.block.name_hint == name)


def loops_of(func: tirx.PrimFunc) -> list[Any]:
    """All loops of a function, outer ones first."""
    return nodes_in(func.body, tirx.For)


def loop_ranges(loops: Sequence[Any]) -> sym.Analyzer:
    """An analyzer that knows through what the variables of these loops run."""
    ranges = sym.Analyzer()
    for loop in loops:
        ranges.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))
    return ranges


def is_grid(statement: Any) -> bool:
    """Whether a statement is a loop over blocks of threads."""
    if not isinstance(statement, tirx.For) or statement.thread_binding is None:
        return False
    return str(statement.thread_binding.thread_tag).startswith("blockIdx")


def conjunction(parts: Sequence[Any]) -> Any:
    """A guard that holds where all ``parts`` do."""
    return functools.reduce(tirx.all, parts) if parts else tirx.const(True, "bool")


def conjuncts(guard: Any) -> list[Any]:
    """The tests that must all hold."""
    if isinstance(guard, tirx.And):
        return [*conjuncts(guard.a), *conjuncts(guard.b)]
    return [guard]


def _uses_only(expr: Any, scope: list[Any]) -> bool:
    """Whether an expression uses variables of the scope only, one at least."""
    used = variables_in(expr)
    return bool(used) and all(any(v.same_as(known) for known in scope) for v in used)


def with_guards(func: tirx.PrimFunc, guards: dict[str, Any]) -> tirx.PrimFunc:
    """``func`` with other guards for the blocks of these names."""

    def visit(realize: SBlockRealize) -> SBlockRealize:
        guard = guards.get(realize.block.name_hint)
        if guard is None:
            return realize
        return SBlockRealize(realize.iter_values, guard, realize.block)

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlockRealize, visit), order="post"))
