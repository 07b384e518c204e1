"""The short operand of a product with few vectors, made by each block anew in shared memory.

Before → after, for a norm of rows::

    s[m] += g(a[m, k])
    x[m, k] = h(a[m, k], s[m], w[k])

    for k in turns:  for k in threads:  a_own[vector], w_own[vector] = loads of neighbours
    s[m] = sum of g(a_own) over threads
    for k in turns:  for k in threads:  x_own = h(a_own, s, w_own);  x_shared[vector] = x_own

Where others take what it is made of, too, such as a residual, the first block stores that. A thread
has the same places of each row in all of these loops, so that what it has loaded once stays in its
registers, and is nobody else's. Sums of all threads end in registers of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule

from tvm_tile.device.device import VECTOR_BYTES
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.schedule.s_tir.guards import conjunction, conjuncts, is_grid, loops_of, realize_of
from tvm_tile.schedule.s_tir.steps import (
    LoopRV,
    SBlockRV,
    extent,
    loops_by_kind,
    reads_of,
    replace_value,
)


def make_operand(
    sch: Schedule,
    block: LoopRV,
    made: Sequence[str],
    threads: Mapping[str, int],
    scope: str,
) -> dict[str, str]:
    """Let the threads of each block make the operand.

    Args:
        sch: schedule that is changed.
        block: the loop over blocks.
        made: blocks that make the operand, in order; the last one writes it.
        threads: tag of each axis of a block's threads, the slowest first, and its extent.
        scope: TVM's name for shared memory.
    Returns:
        Names of the tensors that the blocks read once, to registers, and of the copies' blocks.
    """
    *sums, operand = made
    last = sch.get_sblock(operand)
    sch.set_scope(last, 0, scope)
    stored = sch.get(last).writes[0].source
    extents, dtype = list(map(int, stored.ty.shape)), str(stored.ty.dtype)
    depth = next((size for size in reversed(extents) if size > 1), 1)
    width = math.gcd(depth, VECTOR_BYTES // element_size(dtype))
    if isinstance(sch.get(last).body.value, ir.TensorLoad) or width == 1:
        sch.compute_at(last, block, preserve_unit_loops=True)
        _share(sch, list(sch.get_loops(last))[1:], threads, width, element_size(dtype))
        copies: list[SBlockRV] = []
    else:
        copies = _own_copies(sch, made, depth)
        written = sch.cache_write(last, 0, "local")
        for own in (written, last):
            sch.compute_at(own, block, preserve_unit_loops=True)
        _share(sch, list(sch.get_loops(written))[1:], threads, width, element_size(dtype))
        _share(sch, list(sch.get_loops(last))[1:], threads, width)
    for name in reversed(sums):
        own = sch.get_sblock(name)
        sch.compute_at(own, block, preserve_unit_loops=True)
        # In registers, each thread its copy: TVM's sum over threads ends in a broadcast.
        sch.set_scope(own, 0, "local")
        _share(sch, loops_by_kind(sch, own)[1], threads, width if copies else 1)
    for own in copies:
        size = element_size(str(sch.get(own).writes[0].source.ty.dtype))
        sch.compute_at(own, block, preserve_unit_loops=True)
        _share(sch, list(sch.get_loops(own))[1:], threads, width, size)
    known = map(sch.get, copies)
    return {str(own.reads[0].source.name): str(own.name_hint) for own in known}


def with_stores(
    func: tirx.PrimFunc,
    stores: Sequence[SBlock],
    made: Mapping[str, Any],
    read: Mapping[str, str],
) -> tirx.PrimFunc:
    """A kernel whose first block also stores what the operand is made of, each element with it.

    Args:
        func: the kernel.
        stores: blocks that store it, of the axes of the block that makes the operand.
        made: name of each block that makes the operand, and what it wrote to before.
        read: names of tensors and of the blocks that copy them, as of :func:`make_operand`.
    """
    if not stores:
        return func
    sources = {name: realize_of(func, block).block for name, block in read.items()}
    pairs = [(old, realize_of(func, name).block.writes[0].source) for name, old in made.items()]
    pairs += [(own.reads[0].source, own.writes[0].source) for own in sources.values()]
    (grid,) = (own for own in loops_of(func) if is_grid(own))
    last = realize_of(func, list(made)[-1])

    def own_load(node: ir.TensorLoad) -> Any:
        buffer = next((new for old, new in pairs if old.same_as(node.source)), node.source)
        return tirx.BufferLoad(buffer, list(node.indices))

    def stored(block: SBlock) -> SBlockRealize:
        value = tvm_ffi.structural_map(block.body.value, (ir.TensorLoad, own_load), order="post")
        own = replace_value(block, value, reads=reads_of(value))
        guard = conjunction([grid.loop_var.equal(0), *conjuncts(last.predicate)])
        return SBlockRealize(list(last.iter_values), guard, own)

    def visit(realize: SBlockRealize) -> Any:
        if realize.block.name_hint != last.block.name_hint:
            return realize
        return tirx.SeqStmt([realize, *map(stored, stores)])

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlockRealize, visit), order="post"))


def _own_copies(sch: Schedule, made: Sequence[str], depth: int) -> list[SBlockRV]:
    """Copies to registers of the tensors with whole rows that blocks read and do not make."""
    blocks = {name: sch.get(sch.get_sblock(name)) for name in made}
    written = {str(own.writes[0].source.name) for own in blocks.values()}
    readers: dict[str, list[str]] = {}
    for name, own in blocks.items():
        for region in own.reads:
            shape, source = region.source.ty.shape, str(region.source.name)
            if source not in written and shape and int(shape[-1]) == depth:
                readers.setdefault(source, []).append(name)
    return [
        sch.cache_read(readers[source][0], source, "local", consumer_blocks=readers[source])
        for source in readers
    ]


def _share(
    sch: Schedule,
    loops: Sequence[LoopRV],
    threads: Mapping[str, int],
    width: int = 1,
    size: int = 0,
) -> None:
    """Share out the last loop of several steps among all threads of a block, ``width`` neighbours
    to each.

    These are loaded or stored at once, if the bytes of one are told as ``size``.
    """
    last = next((loop for loop in reversed(loops) if extent(sch, loop) > 1), loops[-1])
    _, *shared, vector = sch.split(last, [None, *threads.values(), width])
    for tag, loop in zip(threads, shared, strict=True):
        sch.bind(loop, tag)
    if size and width > 1:
        vectors, vector = sch.split(vector, [None, min(width, VECTOR_BYTES // size)])
        sch.unroll(vectors)
        sch.vectorize(vector)
    else:
        sch.unroll(vector)
