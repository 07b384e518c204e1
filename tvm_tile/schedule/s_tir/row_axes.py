"""Split the axes of a row's stages until all go along it by the same ones.

A view of what is normalized divides it otherwise. Before → after, for a group norm of 32 channels
in groups of four, and for a layer norm of 768 elements that is stored as heads::

    for n, g, k, s: sums[n, g] += A[n, g * 4 + k, s]     for b, k: sums[b] += A[b, k]
    for n, c, s: B[n, c, s] = f(A, sums[n, c // 4])      for b, h, d: B[b, h, d] = f(A, sums[b])

    for n, g, k, s: sums[n, g] += A[n, g, k, s]          for b, h, d: sums[b] += A[b, h, d]
    for n, g, k, s: B[n, g, k, s] = f(A, sums[n, g])     for b, h, d: B[b, h, d] = f(A, sums[b])

Then rows of sums are rows of the output, and each dimension of a tensor is one axis. The parameters
change their shape with it; ``restore`` in ``merge.py`` gives them back what callers know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_tile.compat import start_schedule
from tvm_tile.graph.expression import with_simple_indices
from tvm_tile.graph.extract import extract_operators
from tvm_tile.graph.tile_graph import Axis, Operator
from tvm_tile.schedule.s_tir.merge import Divided, MergedShapes, merge_along_rows, turn_tensors
from tvm_tile.schedule.s_tir.normalize import NormalForm, inlined
from tvm_tile.schedule.s_tir.steps import blocks_named, replace_parts
from tvm_tile.tile.rows.common_axes import common_extents, find_divisions, follows, in_order

Parts = Sequence[Sequence[int]]
"""Of each axis, or dimension, the extents that it is made of."""


def view_rows(sch: Schedule, form: NormalForm) -> tuple[Schedule, MergedShapes]:
    """A schedule whose stages have the same few axes along rows, and how it views its tensors.

    ``sch`` itself where TVM cannot analyse what that takes.
    """
    try:
        finer, divided = _with_common_axes(sch.copy(), form)
        merged = merge_along_rows(finer, form)
    except ScheduleError:
        return sch, MergedShapes((), tuple(sch.mod["main"].params))
    return finer, MergedShapes((*divided.steps, *merged.steps), divided.params)


def stay_in_order(func: tirx.PrimFunc) -> bool:
    """Whether all stages of a function go through their largest tensors, and store, in order."""
    sch, form = inlined(func, keep_producers=False)
    if form is None or len(form.outputs) != 1:
        return False
    sch, _ = view_rows(sch, form)
    stages = extract_operators(blocks_named(sch, (*form.reductions, *form.outputs)))
    orders = [in_order(op) for op in stages]
    extents = {tuple(axis.extent for axis in order or ()) for order in orders}
    return len(extents) == 1 and None not in orders and orders[-1] == _long_axes(stages[-1])


def keeps_order(func: tirx.PrimFunc, places: Sequence[int]) -> bool:
    """Whether a function of elements stores them in the order in which it reads some parameters."""
    sch, form = inlined(func, keep_producers=False)
    if form is None or form.reductions or len(form.outputs) != 1:
        return False
    stages = extract_operators(blocks_named(sch, form.outputs))
    names = {str(func.params[place].name) for place in places}
    return bool(stages) and all(follows(op, names) for op in stages)


def _with_common_axes(sch: Schedule, form: NormalForm) -> tuple[Schedule, MergedShapes]:
    """A schedule whose stages have the same axes; ``sch`` itself where that changes nothing.

    Every stage must go through its largest tensor in the order of its elements.
    """
    (output,) = form.outputs
    names = (*form.producers, *form.reductions, output)
    stages = extract_operators(blocks_named(sch, names))
    as_given = sch, MergedShapes((), tuple(sch.mod["main"].params))
    # Where the output reads is divided, maybe; it writes in the order of its axes.
    orders = [*map(in_order, stages[:-1]), *map(_long_axes, stages[-1:])]
    known = [order for order in orders if order is not None]
    extents = [[axis.extent for axis in order] for order in known]
    common = common_extents(extents) if stages and len(known) == len(names) else None
    if common is None or all(tuple(own) == common for own in extents):
        return as_given
    finer = sch.copy()
    for name, op, order in zip(names, stages, known, strict=True):
        of_axis = dict(zip(order, _parts(order, common), strict=True))
        _split(finer, name, [of_axis.get(axis, [axis.extent]) for axis in op.axes])
    found = extract_operators(blocks_named(finer, names))
    if not found or any(in_order(op) is None for op in found):
        return as_given
    if in_order(found[-1]) != _long_axes(found[-1]):
        return as_given
    merged = _divided(finer, names, find_divisions(found), as_given[1].params)
    return start_schedule(_simplified(finer.mod["main"])), merged


def _long_axes(op: Operator) -> tuple[Axis, ...]:
    """Axes of more than one point."""
    return tuple(axis for axis in op.axes if axis.extent > 1)


def _parts(axes: Sequence[Axis], common: Sequence[int]) -> Parts:
    """The common divisors that each axis is made of."""
    rest, found = list(common), []
    for axis in axes:
        own: list[int] = []
        while math.prod(own) < axis.extent:
            own.append(rest.pop(0))
        found.append(own)
    return found


def _split(sch: Schedule, name: str, parts: Parts) -> None:
    """Split the axes of a block."""
    if any(len(own) > 1 for own in parts):
        order = tirx.IndexMap.from_func(partial(_digits, parts), ndim=len(parts))
        sch.transform_block_layout(sch.get_sblock(name), order)


def _digits(parts: Parts, *index: Any) -> list[Any]:
    """Digits of indices, by the divisors of each."""
    found = []
    for own, value in zip(parts, index, strict=True):
        for place, extent in enumerate(own):
            inner = math.prod(own[place + 1 :])
            digit = value if inner == 1 else tirx.floordiv(value, inner)
            found.append(digit if place == 0 else tirx.floormod(digit, extent))
    return found


def _divided(
    sch: Schedule, names: Sequence[str], divisions: Mapping[str, Parts], params: tuple[Any, ...]
) -> MergedShapes:
    """Split dimensions of tensors that are several axes each."""
    orders = {tensor: partial(_digits, parts) for tensor, parts in divisions.items()}
    done = turn_tensors(sch, names, orders)
    steps = [{tensor: step} for tensor in done for step in _steps(divisions[tensor])]
    return MergedShapes(tuple(steps), params)


def _steps(parts: Parts) -> list[Divided]:
    """The divisions one after the other, the last dimension first."""
    return [
        Divided(dimension + place, math.prod(own[place + 1 :]))
        for dimension, own in reversed(list(enumerate(parts)))
        for place in range(len(own) - 1)
    ]


def _simplified(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """The indices without quotients that are always 0: bounds of what is read would keep them."""

    def block(node: SBlock) -> SBlock:
        if not isinstance(node.body, tirx.BufferStore):
            return node
        ranges = sym.Analyzer()
        for v in node.iter_vars:
            if int(v.dom.extent) > 1:  # others would be numbers, which tell no rows apart
                ranges.bind(v.var, v.dom)

        def region(old: Any) -> Any:
            places = [(ranges.simplify(r.min), ranges.simplify(r.extent)) for r in old.region]
            return tirx.BufferRegion(old.source, [ir.Range.from_min_extent(*p) for p in places])

        value = with_simple_indices(node.body.value, ranges)
        indices = [ranges.simplify(index) for index in node.body.indices]
        body = tirx.BufferStore(node.body.buffer, value, indices)
        reads, writes = ([region(r) for r in regions] for regions in (node.reads, node.writes))
        return replace_parts(node, reads=reads, writes=writes, body=body)

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlock, block), order="post"))
