"""Sums over the same axes as one, which a first axis tells apart.

Before → after::

    for m, n, k: a[m, n] += x[m, k] * v[k, n]
    for m, n, k: b[m, n] += x[m, k] * w[k, n]
    for m, n:    y[m, n]  = f(a[m, n], b[m, n])

    for p, m, n, k: s[p, m, n] += x[m, k] * v[k, n] if p == 0 else x[m, k] * w[k, n]
    for m, n:       y[m, n]     = f(s[0, m, n], s[1, m, n])

Where ``p`` is unrolled, nothing of the choice is left.

Likewise the halves of one sum, where ``y[m, n] = f(a[m, n], a[m, n + N])`` is made of both. Then
``w[k, n]`` is ``w[k, p, n]`` for the time of scheduling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import (
    block_ranges,
    combined,
    in_halves,
    substituted,
    variables_in,
)
from tvm_tile.graph.extract import blocks_in, loads_in, nodes_in
from tvm_tile.schedule.s_tir.guards import realize_of
from tvm_tile.schedule.s_tir.merge import Divided, MergedShapes
from tvm_tile.schedule.s_tir.steps import element, loop, reads_of, replace_parts, replace_value


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
    old = first.body.buffer
    sums = _buffer(old, [len(names), *old.ty.shape])
    buffers = [realize_of(func, name).block.body.buffer for name in names]

    def change(nest: Any) -> Any:
        inside = {str(block.name_hint) for block in blocks_in(nest)}
        if names[0] in inside:
            return _together(nest, first, terms, sums)
        return _reading(nest, sums, buffers) if inside.isdisjoint(names) else None

    return _with_sums(func, change, sums, buffers)


def halved(
    func: tirx.PrimFunc, name: str, output: str
) -> tuple[tirx.PrimFunc, MergedShapes] | None:
    """``func`` with both halves of a reduction ``name`` as two, of which ``output`` is made.

    Args:
        func: an unscheduled function, with a loop nest for each block.
        name: name of the block of a product.
        output: name of the block that reads it.

    Returns:
        The function, and how the shape of an operand differs in it; ``None`` where the output is
        not made of halves, or an operand does not lie in halves.
    """
    first, block = realize_of(func, name).block, realize_of(func, output).block
    old, term = first.body.buffer, combined(first, tirx.Add)
    found = in_halves(block.body.value, old, block_ranges(block))
    if found is None or term is None:
        return None
    value, buffers, dimension = found
    var, half = first.body.indices[dimension], int(old.ty.shape[dimension]) // 2
    met = [(own, p) for own in loads_in(term) for p, i in enumerate(own.indices) if i.same_as(var)]
    if len(met) != 1 or sum(own.same_as(var) for own in variables_in(term)) != 1:
        return None
    ((load, place),) = met
    sums = _buffer(old, [2, *_cut(old.ty.shape, dimension, half)])
    operand = _buffer(load.source, _cut(load.source.ty.shape, place, 2, half))

    def halving(own: SBlock, part: Any) -> SBlock:
        read = tirx.BufferLoad(operand, _cut(load.indices, place, part, var))
        axes = [v if not v.var.same_as(var) else _axis(half, var) for v in own.iter_vars]
        return replace_parts(_summing(own, _with(term, load, read), sums, part), iter_vars=axes)

    def change(nest: Any) -> Any:
        (realize,) = nodes_in(nest, SBlockRealize)
        own = realize.block
        if own.same_as(block):
            made = replace_value(block, value, reads=reads_of(value))
            return _reading(_with(nest, block, made), sums, buffers)
        if own.same_as(first):
            return _over_sums(_half_as_long(nest, var, half), 2, halving)
        if own.body.buffer.same_as(load.source):
            nest = _half_as_long(nest, own.body.indices[place], half)
            return _over_sums(nest, 2, partial(_looking_up, operand, place, half))
        return nest

    params = [operand if param.same_as(load.source) else param for param in func.params]
    is_param = any(param.same_as(load.source) for param in func.params)
    changed = _with_sums(func, change, sums, [old])
    if not is_param:
        changed = _with_sums(changed, lambda nest: nest, operand, [load.source])
    shapes = ({str(operand.name): Divided(place, half)},) if is_param else ()
    merged = MergedShapes(shapes, tuple(func.params))
    return tirx.PrimFunc(params, changed.body, func.ret_type, func.attrs), merged


def _looking_up(operand: Any, place: int, half: int, own: SBlock, part: Any) -> SBlock:
    """A block that makes an operand, of which one dimension becomes two: halves, and their own."""
    at = own.body.indices[place]
    where = _cut(own.body.indices, place, part, at)
    value = substituted(own.body.value, {at: part * half + at})
    axes = [v if not v.var.same_as(at) else _axis(half, at) for v in own.iter_vars]
    store = tirx.BufferStore(operand, value, where)
    parts = {"reads": reads_of(value), "writes": [element(operand, where)], "body": store}
    return replace_parts(own, iter_vars=axes, **parts)


def _half_as_long(nest: Any, var: Any, half: int) -> Any:
    """A block's loops, of which that for one of its variables has ``half`` values."""
    (realize,) = nodes_in(nest, SBlockRealize)
    number = next(n for n, v in enumerate(realize.block.iter_vars) if v.var.same_as(var))
    at = realize.iter_values[number]
    (own,) = (own for own in nodes_in(nest, tirx.For) if own.loop_var.same_as(at))
    return _with(nest, own, loop(at, half, own.kind, own.body))


def _with(tree: Any, old: Any, new: Any) -> Any:
    """An expression or a statement with another node in place of one."""
    swap = (type(old), lambda node: new if node.same_as(old) else node)
    return tvm_ffi.structural_map(tree, [swap], order="pre")


def _axis(extent: int, var: Any) -> Any:
    """An axis of a block that nothing is summed along."""
    domain = ir.Range(tirx.const(0, "int64"), tirx.const(extent, "int64"))
    return tirx.IterVar(domain, var, tirx.IterVar.DataPar)


def _cut(values: Sequence[Any], place: int, *instead: Any) -> list[Any]:
    """Values with others in place of one."""
    return [*values[:place], *instead, *values[place + 1 :]]


def _buffer(like: Any, shape: Sequence[Any]) -> Any:
    """A buffer as another one, of another shape."""
    return tirx.decl_buffer(
        [tirx.const(int(extent), "int64") for extent in shape], str(like.ty.dtype), str(like.name)
    )


def _with_sums(
    func: tirx.PrimFunc, change: Callable[[Any], Any], sums: Any, instead: Sequence[Any]
) -> tirx.PrimFunc:
    """``func`` with other loop nests, or without some, and ``sums`` in place of some buffers."""
    root = func.body.block
    kept = [b for b in root.alloc_buffers if not any(b.same_as(buffer) for buffer in instead)]
    nests = [change(nest) for nest in root.body.seq]
    body = tirx.SeqStmt([nest for nest in nests if nest is not None])
    block = replace_parts(root, body=body, alloc_buffers=[*kept, sums])
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

    def visit(realize: SBlockRealize) -> SBlockRealize:
        block = change(realize.block, part)
        block = replace_parts(block, iter_vars=[_axis(count, part), *block.iter_vars])
        return SBlockRealize([outer, *realize.iter_values], realize.predicate, block)

    inner = tvm_ffi.structural_map(nest, (SBlockRealize, visit), order="post")
    return loop(outer, count, tirx.ForKind.SERIAL, inner)


def _together(nest: Any, first: SBlock, terms: Sequence[Any], sums: Any) -> tirx.For:
    """The loops of the first sum, around all of them."""

    def stacking(_: SBlock, part: Any) -> SBlock:
        term = terms[-1]
        for number in reversed(range(len(terms) - 1)):
            term = tirx.if_then_else(part == number, terms[number], term)
        return _summing(first, term, sums, part)

    return _over_sums(nest, len(terms), stacking)


def _summing(block: SBlock, term: Any, sums: Any, part: Any) -> SBlock:
    """A block that adds up another term, to a part of some sums."""
    places = [part, *block.body.indices]
    return replace_parts(
        block,
        reads=reads_of(term),
        writes=[element(sums, places)],
        body=tirx.BufferStore(sums, tirx.BufferLoad(sums, places) + term, places),
        init=tirx.BufferStore(sums, block.init.value, places),
    )


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
