"""Sums over the same axes as one, which a first axis tells apart.

Before → after::

    for m, n, k: a[m, n] += x[m, k] * v[k, n]
    for m, n, k: b[m, n] += x[m, k] * w[k, n]
    for m, n:    y[m, n]  = f(a[m, n], b[m, n])

    for p, m, n, k: s[p, m, n] += x[m, k] * v[k, n] if p == 0 else x[m, k] * w[k, n]
    for m, n:       y[m, n]     = f(s[0, m, n], s[1, m, n])

Where ``p`` is unrolled, nothing of the choice is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import combined, substituted
from tvm_tile.graph.extract import blocks_in, loads_in
from tvm_tile.schedule.s_tir.guards import realize_of
from tvm_tile.schedule.s_tir.steps import element, loop, replace_parts


def stacked(func: tirx.PrimFunc, names: Sequence[str]) -> tirx.PrimFunc | None:
    """``func`` with the reductions ``names`` as one, of the name of the first.

    Args:
        func: an unscheduled function, with a loop nest for each block.
        names: names of blocks of the same axes, two or more.

    Returns:
        ``None`` where they are not added up alike, or do not begin with the same number.
    """
    first = realize_of(func, names[0]).block
    found = [_term(realize_of(func, name).block, first) for name in names]
    terms = [term for term in found if term is not None]
    if len(terms) < len(names):
        return None
    count, old = tirx.const(len(names), "int64"), first.body.buffer
    sums = tirx.decl_buffer([count, *old.ty.shape], str(old.ty.dtype), str(old.name))
    buffers = [realize_of(func, name).block.body.buffer for name in names]
    root = func.body.block
    body = []
    for nest in root.body.seq:
        inside = {str(block.name_hint) for block in blocks_in(nest)}
        if names[0] in inside:
            body.append(_together(nest, first, terms, sums))
        elif inside.isdisjoint(names):
            body.append(_reading(nest, sums, buffers))
    kept = [b for b in root.alloc_buffers if not any(b.same_as(buffer) for buffer in buffers)]
    block = replace_parts(root, body=tirx.SeqStmt(body), alloc_buffers=[*kept, sums])
    return func.with_body(SBlockRealize([], func.body.predicate, block))


def _term(block: SBlock, like: SBlock) -> Any:
    """Term that a reduction adds, in terms of another's variables; ``None`` if that differs."""
    if len(block.iter_vars) != len(like.iter_vars):
        return None
    pairs = {v.var: other.var for v, other in zip(block.iter_vars, like.iter_vars, strict=True)}
    term = combined(block, tirx.Add)
    if term is None:
        return None
    places = [substituted(index, pairs) for index in block.body.indices]
    is_alike = tvm_ffi.structural_equal(places, list(like.body.indices)) and (
        tvm_ffi.structural_equal(block.init.value, like.init.value)
    )
    return substituted(term, pairs) if is_alike else None


def _over_sums(nest: Any, count: int, change: Callable[[SBlock, Any], SBlock]) -> tirx.For:
    """A block's loops within one more, over ``count`` sums.

    Args:
        nest: the loops.
        count: extent of the new loop.
        change: the block and its new first variable -> the block that takes its place.
    """
    outer, part = tirx.Var("p", "int64"), tirx.Var("v_p", "int64")
    domain = ir.Range(tirx.const(0, "int64"), tirx.const(count, "int64"))
    axis = tirx.IterVar(domain, part, tirx.IterVar.DataPar)

    def visit(realize: SBlockRealize) -> SBlockRealize:
        block = change(realize.block, part)
        block = replace_parts(block, iter_vars=[axis, *block.iter_vars])
        return SBlockRealize([outer, *realize.iter_values], realize.predicate, block)

    inner = tvm_ffi.structural_map(nest, (SBlockRealize, visit), order="post")
    return loop(outer, count, tirx.ForKind.SERIAL, inner)


def _together(nest: Any, first: SBlock, terms: Sequence[Any], sums: Any) -> tirx.For:
    """The loops of the first sum, around all of them."""

    def stacking(_: SBlock, part: Any) -> SBlock:
        term = terms[-1]
        for number in reversed(range(len(terms) - 1)):
            term = tirx.if_then_else(part == number, terms[number], term)
        places = [part, *first.body.indices]
        reads = {load.source: load.indices for load in loads_in(term)}
        return replace_parts(
            first,
            reads=[element(source, indices) for source, indices in reads.items()],
            writes=[element(sums, places)],
            body=tirx.BufferStore(sums, tirx.BufferLoad(sums, places) + term, places),
            init=tirx.BufferStore(sums, first.init.value, places),
        )

    return _over_sums(nest, len(terms), stacking)


def _reading(nest: Any, sums: Any, buffers: Sequence[Any]) -> Any:
    """A block's loops, with loads of the sums that it read from ``buffers`` before.

    Their place is counted from a variable that is always 0: behind its producer TVM moves no block
    that reads a dimension at constants.
    """
    if not any(load.source.same_as(own) for load in loads_in(nest) for own in buffers):
        return nest
    count = len(buffers)

    def number_of(buffer: Any) -> int | None:
        return next((n for n, own in enumerate(buffers) if own.same_as(buffer)), None)

    def reading(block: SBlock, first: Any) -> SBlock:
        def load(node: ir.TensorLoad) -> Any:
            number = number_of(node.source)
            if number is None:
                return node
            return tirx.BufferLoad(sums, [first * count + number, *node.indices])

        def region(node: Any) -> Any:
            if number_of(node.source) is None:
                return node
            own = ir.Range.from_min_extent(first * count, tirx.const(count, "int64"))
            return tirx.BufferRegion(sums, [own, *node.region])

        body = tvm_ffi.structural_map(block.body, (ir.TensorLoad, load), order="post")
        return replace_parts(block, reads=[region(r) for r in block.reads], body=body)

    return _over_sums(nest, 1, reading)
