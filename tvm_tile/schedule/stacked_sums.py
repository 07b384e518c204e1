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

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import combined, substituted
from tvm_tile.graph.extract import blocks_in, loads_in
from tvm_tile.schedule.guards import realize_of
from tvm_tile.schedule.steps import element, replace_parts


def stacked(func: tirx.PrimFunc, names: Sequence[str]) -> tirx.PrimFunc | None:
    """``func`` with the reductions ``names`` as one, of the name of the first.

    Args:
        func: unscheduled, a loop nest for each block.
        names: of blocks of the same axes, two or more.

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
    own = _Stacking(sums, buffers)
    root = func.body.block
    body = []
    for nest in root.body.seq:
        inside = {str(block.name_hint) for block in blocks_in(nest)}
        if names[0] in inside:
            body.append(_together(nest, first, terms, sums))
        elif inside.isdisjoint(names):
            body.append(own.reading(nest))
    kept = [b for b in root.alloc_buffers if not any(b.same_as(buffer) for buffer in buffers)]
    block = replace_parts(root, body=tirx.SeqStmt(body), alloc_buffers=[*kept, sums])
    return func.with_body(SBlockRealize([], func.body.predicate, block))


def _term(block: SBlock, like: SBlock) -> Any:
    """What a reduction adds, in terms of the variables of another; ``None`` if that differs."""
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


def _together(nest: Any, first: SBlock, terms: Sequence[Any], sums: Any) -> tirx.For:
    """The loops of the first sum, around all of them."""
    loop, part = tirx.Var("p", "int64"), tirx.Var("v_p", "int64")
    domain = ir.Range(tirx.const(0, "int64"), sums.ty.shape[0])
    term = terms[-1]
    for number in reversed(range(len(terms) - 1)):
        term = tirx.if_then_else(part == number, terms[number], term)
    places = [part, *first.body.indices]
    reads = {load.source: load.indices for load in loads_in(term)}
    block = SBlock(
        [tirx.IterVar(domain, part, tirx.IterVar.DataPar), *first.iter_vars],
        [element(source, indices) for source, indices in reads.items()],
        [element(sums, places)],
        first.name_hint,
        tirx.BufferStore(sums, tirx.BufferLoad(sums, places) + term, places),
        tirx.BufferStore(sums, first.init.value, places),
    )

    def visit(realize: SBlockRealize) -> SBlockRealize:
        return SBlockRealize([loop, *realize.iter_values], realize.predicate, block)

    inner = tvm_ffi.structural_map(nest, (SBlockRealize, visit), order="post")
    return tirx.For(loop, domain.min, domain.extent, tirx.ForKind.SERIAL, inner)


class _Stacking:
    """Lets blocks read sums where they are now.

    Their place is counted from a variable that is always 0: behind its producer TVM moves no block
    that reads a dimension at constants.
    """

    def __init__(self, sums: Any, buffers: Sequence[Any]) -> None:
        self._sums, self._buffers = sums, buffers
        self._first = tirx.Var("v_p", "int64")

    def reading(self, nest: Any) -> Any:
        """A block's loops, with loads of the sums that it read before."""
        if all(self._place(load.source) is None for load in loads_in(nest)):
            return nest
        loop, zero = tirx.Var("p", "int64"), tirx.const(0, "int64")

        def visit(realize: SBlockRealize) -> SBlockRealize:
            return SBlockRealize(
                [loop, *realize.iter_values], realize.predicate, self._block(realize.block)
            )

        entries = [(ir.TensorLoad, self._load), (SBlockRealize, visit)]
        inner = tvm_ffi.structural_map(nest, entries, order="post")
        return tirx.For(loop, zero, tirx.const(1, "int64"), tirx.ForKind.SERIAL, inner)

    def _place(self, buffer: Any) -> int | None:
        return next((n for n, own in enumerate(self._buffers) if own.same_as(buffer)), None)

    def _load(self, load: Any) -> Any:
        number = self._place(load.source)
        if number is None:
            return load
        return tirx.BufferLoad(self._sums, [self._index(number), *load.indices])

    def _index(self, number: int) -> Any:
        return self._first * self._sums.ty.shape[0] + number

    def _block(self, block: SBlock) -> SBlock:
        domain = ir.Range(tirx.const(0, "int64"), tirx.const(1, "int64"))
        first = tirx.IterVar(domain, self._first, tirx.IterVar.DataPar)
        reads = [self._region(region) for region in block.reads]
        return replace_parts(block, iter_vars=[first, *block.iter_vars], reads=reads)

    def _region(self, region: Any) -> Any:
        if self._place(region.source) is None:
            return region
        own = ir.Range.from_min_extent(self._index(0), self._sums.ty.shape[0])
        return tirx.BufferRegion(self._sums, [own, *region.region])
