"""The last resort, which takes every function: each of its statements is a kernel.

Nothing is inlined or moved. The spatial loops around a block run in parallel; a statement
that has none, such as loops written by hand, runs in one thread, slowly and correctly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import s_tir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile import compat
from tvm_tile.build.launched import launches
from tvm_tile.graph.expression import uses
from tvm_tile.graph.own_names import has_own_names
from tvm_tile.schedule.s_tir.steps import begun, bind_loop, launched, loops_by_kind, replace_parts

THREADS = 256


def schedule_statements(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Bind every statement of ``func`` to blocks and threads.

    before: ``for i: y[i] = ...; while ...: ...``
    after: ``for blockIdx.x, threadIdx.x: y[i] = ...; for blockIdx.x, threadIdx.x < 1: while ...``

    Statements that launch threads themselves are left alone; those whose loops have extent 0
    are dropped, but for the initial values of reductions.
    """
    func = _map_statements(func, _without_empty_loops)
    if _has_root(func):
        schedule = s_tir.Schedule(func)
        for block in schedule.get_child_blocks(schedule.get_sblock("root")):
            try:
                _bind_spatial_loops(schedule, block)
            except compat.TVM_ERRORS:
                continue  # it runs in one thread then
        func = schedule.mod["main"]
    return _hoist_buffers(_map_statements(func, _in_one_thread))


def find_obstacle(func: tirx.PrimFunc) -> str:
    """The reason why neither rules nor dlight may schedule ``func``; empty where they may."""
    if _any(func.body, tirx.For, lambda loop: _is_zero(loop.extent)):
        return "it has loops over nothing"
    # dlight inlines what no block declares to read.
    if _has_root(func) and _any(func.body.block.body, SBlock, lambda block: not block.writes):
        return "it has loops written by hand"
    if not has_own_names(func):
        return "two of its buffers have one name"
    return ""


def _any(tree: Any, kind: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether a statement of a kind within a tree fulfils a condition."""

    def visit(node: Any) -> Any:
        return tvm_ffi.VisitInterrupt() if holds(node) else None

    return tvm_ffi.structural_walk(tree, (kind, visit)) is not None


def _map_statements(func: tirx.PrimFunc, change: Any) -> tirx.PrimFunc:
    """``func`` with each statement of its outermost block changed."""
    if not _has_root(func):
        return func.with_body(change(func.body))
    root = func.body.block
    statements = list(root.body) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    # A buffer declared on the way belongs to all that follows it.
    if all(isinstance(s, tirx.For | SBlockRealize | tirx.Evaluate) for s in statements):
        changed = [change(statement) for statement in statements]
    else:
        changed = [change(root.body)]
    return _with_root_body(func, changed, root.alloc_buffers)


def _has_root(func: tirx.PrimFunc) -> bool:
    """Whether statements stand side by side in a block; a lone block may be the function."""
    return isinstance(func.body, SBlockRealize) and func.body.block.name_hint == "root"


def _with_root_body(func: tirx.PrimFunc, statements: list[Any], buffers: Any) -> tirx.PrimFunc:
    """The function with other statements, and other buffers that its root allocates."""
    root = func.body.block
    # TVM drops what does nothing from a sequence, and refuses a sequence of one.
    kept = [s for s in statements if not _is_nothing(s)] or statements[:1]
    body = kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)
    block = replace_parts(root, body=body, alloc_buffers=buffers)
    return func.with_body(SBlockRealize([], True, block))


def _is_nothing(statement: Any) -> bool:
    """Whether a statement does nothing."""
    return isinstance(statement, tirx.Evaluate) and isinstance(statement.value, tirx.IntImm)


def _hoist_buffers(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Allocate intermediate results before all kernels.

    TVM would move a buffer that a single kernel uses into that kernel, onto a thread's stack.
    """
    if not _has_root(func):
        return func
    root = func.body.block
    shared = [buffer for buffer in root.alloc_buffers if buffer.scope() == "global"]
    rest = [buffer for buffer in root.alloc_buffers if buffer.scope() != "global"]
    allocations = [tirx.AllocBuffer(buffer) for buffer in shared]
    return _with_root_body(func, [*allocations, root.body], rest)


def _without_empty_loops(statement: Any) -> Any:
    """A statement without loops of no iterations; a reduction over none leaves its start."""
    loops, inner = [], statement
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    empty = [loop.loop_var for loop in loops if _is_zero(loop.extent)]
    if not empty:
        return statement
    if not isinstance(inner, SBlockRealize) or inner.block.init is None:
        return tirx.Evaluate(0)
    start = body = begun(inner)
    if any(uses(value, empty) for value in start.iter_values):
        return tirx.Evaluate(0)
    for loop in reversed(loops):
        if any(value.same_as(loop.loop_var) for value in start.iter_values):
            body = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, body)
    return body


def _is_zero(extent: Any) -> bool:
    """Whether an extent is known to be 0."""
    return isinstance(extent, tirx.IntImm) and int(extent) == 0


def _bind_spatial_loops(schedule: Any, block: Any) -> None:
    """Bind the spatial loops of a block to blocks and threads."""
    axes = schedule.get(block).iter_vars
    loops = schedule.get_loops(block)
    if len(loops) != len(axes) or _launches_threads(schedule.get(loops[0] if loops else block)):
        return
    spatial, others = loops_by_kind(schedule, block)
    if spatial:
        schedule.reorder(*spatial, *others)
        bind_loop(schedule, schedule.fuse(*spatial), THREADS)


def _launches_threads(statement: Any) -> bool:
    """Whether a statement has loops that are bound to threads."""
    is_bound = _any(statement, tirx.For, lambda loop: loop.kind == tirx.ForKind.THREAD_BINDING)
    return is_bound or bool(launches(statement))


def _in_one_thread(statement: Any) -> Any:
    """A statement as a kernel of one thread."""
    if isinstance(statement, tirx.Evaluate) or _launches_threads(statement):
        return statement
    body = tvm_ffi.structural_map(statement, (tirx.For, _as_serial))
    block, thread = (tirx.Var(name, "int32") for name in ("block_x", "thread_x"))
    return launched(body, (block, 1), (thread, 1))


def _as_serial(loop: tirx.For) -> Any:
    """A loop that runs its iterations in order."""
    if loop.kind == tirx.ForKind.SERIAL:
        return loop
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)
