"""Steps that several rules take on a ``Schedule``: fuse, bind, copy together, drop guards."""

from __future__ import annotations

import functools
import math
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlockRealize, Schedule

from tvm_tile.device.device import STATIC_SHARED_LIMIT, VECTOR_BYTES, Device, MemoryLevel

SBlockRV = Any
LoopRV = Any

_LOADS_IN_FLIGHT = 16  # of one thread in a staging copy


def shared_scope(device: Device, footprint: int) -> str:
    """The storage scope for ``footprint`` bytes of a block's shared memory."""
    return "shared" if footprint <= STATIC_SHARED_LIMIT else device.memory(MemoryLevel.SHARED).scope


def is_reduction(sch: Schedule, block: SBlockRV) -> bool:
    """Whether ``block`` sums over some axis."""
    return any(v.iter_type != tirx.IterVar.DataPar for v in sch.get(block).iter_vars)


def is_output(sch: Schedule, block: SBlockRV) -> bool:
    """Whether ``block`` writes a parameter of the function."""
    written = sch.get(block).writes[0].source
    func = sch.mod["main"]
    return any(param.same_as(written) for param in func.params)


def child_blocks(sch: Schedule) -> list[SBlockRV]:
    """The function's blocks in program order."""
    return list(sch.get_child_blocks(sch.get_sblock("root")))


def extent(sch: Schedule, loop: LoopRV) -> int:
    """A loop's static extent."""
    return int(sch.get(loop).extent)


def fuse(sch: Schedule, loops: list[LoopRV]) -> LoopRV:
    """One loop from many; one loop as it is; a unit loop is never needed by callers."""
    return loops[0] if len(loops) == 1 else sch.fuse(*loops)


def bind_flat(sch: Schedule, block: SBlockRV, threads: int, vector: int = 1) -> None:
    """Spread all loops of ``block`` over the grid: ``fused -> blockIdx, threadIdx, vector``."""
    loops = sch.get_loops(block)
    if not loops:
        sch.add_unit_loop(block)
        loops = sch.get_loops(block)
    flat = fuse(sch, list(loops))
    outer, thread, inner = sch.split(flat, [None, threads, vector])
    sch.bind(outer, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    if vector > 1:
        sch.vectorize(inner)


def keep_sum(sch: Schedule, main: SBlockRV, outputs: tuple[str, ...]) -> SBlockRV:
    """Keep a reduction's sum in registers; returns the block that takes it to global memory.

    That is the epilogue, the only one of ``outputs``, or else a plain copy. A sum over threads must
    not store by itself: TVM loses the guard of such a store.
    """
    if outputs:
        sch.set_scope(main, 0, "local")
        return sch.get_sblock(outputs[0])
    return sch.cache_write(main, 0, "local")


def copy_together(
    sch: Schedule,
    block: SBlockRV,
    region: tuple[int, ...],
    shape: tuple[int, ...],
    threads: int,
    vector: int,
) -> None:
    """The threads share a staging copy: its inner loops -> serial, threadIdx, vector.

    ``region`` is the tile's extent in each dimension of a tensor of extents ``shape``, one inner
    loop each. The serial loop is unrolled, so that a thread has many loads in flight: one load at a
    time would cost the latency of memory at each iteration. A test for the end of the copy in each
    iteration would prevent that, so where no whole number of rounds covers the copy, the largest
    number of threads that does so copies, and the rest wait.
    """
    loops = list(sch.get_loops(block))[-len(region) :]
    # Vectors lie within the contiguous run of the innermost dimensions, so cut these first.
    first = len(region) - 1
    while first > 0 and region[first] == shape[first]:
        first -= 1
    pieces, inner = sch.split(fuse(sch, loops[first:]), [None, vector])
    flat = fuse(sch, [*loops[:first], pieces])
    rounds = extent(sch, flat)
    busy = max(n for n in range(1, threads + 1) if rounds % n == 0)
    if 2 * busy < threads or vector > 1:
        # TVM recognizes a vector's neighbouring addresses only where all threads take part.
        busy = threads
    serial, thread = sch.split(flat, [None, busy])
    if busy < threads:
        _, thread = sch.split(thread, [None, threads])
    sch.bind(thread, "threadIdx.x")
    if vector > 1:
        sch.vectorize(inner)
    unroll_part(sch, serial, _LOADS_IN_FLIGHT)


def unroll_part(sch: Schedule, loop: LoopRV, most: int) -> None:
    """Unroll ``loop``, or a part of it of at most ``most`` iterations, a divisor if one is near."""
    count = extent(sch, loop)
    part = max(n for n in range(1, most + 1) if count % n == 0)
    if count > most and part < most // 4:
        part = most // 2
    if part >= count:
        sch.unroll(loop)
    elif part > 1:
        _, inner = sch.split(loop, [None, part])
        sch.unroll(inner)


def vector_width(region: tuple[int, ...], shape: tuple[int, ...], element_size: int) -> int:
    """Elements a thread can move at once from the contiguous runs of a tile.

    ``region`` is the tile's extent in each dimension of a tensor of extents ``shape``.
    """
    run = 1
    stride = 1
    for part, whole in zip(reversed(region), reversed(shape), strict=True):
        run *= part
        stride *= whole
        if part != whole:
            break
    widest = max(1, VECTOR_BYTES // element_size)
    if region[-1] % widest:
        # A vector across rows has an address for each element; CUDA has no type for eight of them.
        widest = min(widest, 4)
    return math.gcd(widest, run, stride)


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
        kept = [g for g in _conjuncts(_realize(func, name).predicate) if _uses_any(g, summed)]
        guards[name] = functools.reduce(tirx.all, kept) if kept else tirx.const(True, "bool")
    return _with_guards(func, guards)


def copy_guard(sch: Schedule, source: SBlockRV, follower: SBlockRV) -> tirx.PrimFunc:
    """The function of ``sch``, with ``follower`` run only where ``source`` above it runs.

    TVM's ``reverse_compute_at`` derives a consumer's loops from the region its producer writes
    and does not carry over the guard of a split that does not divide.
    """
    func = sch.mod["main"]
    name = str(sch.get(follower).name_hint)
    scope = [sch.get(loop).loop_var for loop in sch.get_loops(follower)]
    guard = _realize(func, str(sch.get(source).name_hint)).predicate
    kept = [part for part in _conjuncts(guard) if _uses_only(part, scope)]
    if not kept:
        return func
    return _with_guards(func, {name: functools.reduce(tirx.all, kept)})


def _realize(func: tirx.PrimFunc, name: str) -> SBlockRealize:
    found: list[SBlockRealize] = []
    tvm_ffi.structural_walk(func.body, (SBlockRealize, found.append), order="pre")
    return next(realize for realize in found if realize.block.name_hint == name)


def _conjuncts(guard: Any) -> list[Any]:
    if isinstance(guard, tirx.And):
        return [*_conjuncts(guard.a), *_conjuncts(guard.b)]
    return [guard]


def _variables(expr: Any) -> list[Any]:
    used: list[Any] = []
    tvm_ffi.structural_walk(expr, (tirx.Var, used.append), order="pre")
    return used


def _uses_only(expr: Any, scope: list[Any]) -> bool:
    used = _variables(expr)
    return bool(used) and all(any(v.same_as(known) for known in scope) for v in used)


def _uses_any(expr: Any, variables: tuple[Any, ...]) -> bool:
    return any(v.same_as(wanted) for v in _variables(expr) for wanted in variables)


def _with_guards(func: tirx.PrimFunc, guards: dict[str, Any]) -> tirx.PrimFunc:
    def visit(realize: SBlockRealize) -> SBlockRealize:
        guard = guards.get(realize.block.name_hint)
        if guard is None:
            return realize
        return SBlockRealize(realize.iter_values, guard, realize.block)

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlockRealize, visit), order="post"))
