"""Grouped convolutions as batches of products: the groups as an axis of their own.

Before → after, for 4 groups of 12 filters and 16 channels::

    for y, f, c:     B[y, f]          += A[y, f // 12 * 16 + c] * W[f, c]
    for y, g, f', c: B[y, 12 g + f'] += A[y, 16 g + c]         * W[12 g + f', c]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.graph.extract import nodes_in
from tvm_tile.schedule.s_tir.steps import SBlockRV


def split_groups(sch: Schedule, block: SBlockRV) -> None:
    """Give ``block`` an axis of groups, if one of its own is divided by their size."""
    found = division_in(sch.get(block))
    if found is not None:
        split_axis(sch, block, *found)


def division_in(block: SBlock) -> tuple[int, int] | None:
    """Which axis of a block is divided by the size of groups, and that size."""
    for division in nodes_in(block.body, tirx.FloorDiv):
        place = axis_of(block, division.a)
        if place is not None and int(block.iter_vars[place].dom.extent) % int(division.b) == 0:
            return place, int(division.b)
    return None


def axis_of(block: SBlock, value: Any) -> int | None:
    """The place of the axis of a block that an expression is; ``None`` if it is none."""
    return next((n for n, v in enumerate(block.iter_vars) if value.same_as(v.var)), None)


def split_axis(sch: Schedule, block: SBlockRV, place: int, size: int) -> None:
    """Split an axis of ``block``, by its place, into groups and the ``size`` values of each."""
    count = len(sch.get(block).iter_vars)
    index = tirx.IndexMap.from_func(partial(_split, place, size), ndim=count)
    sch.transform_block_layout(block, index)


def _split(place: int, size: int, *values: Any) -> list[Any]:
    """The values with one of them as quotient and remainder by ``size``."""
    value = values[place]
    return [*values[:place], value // size, value % size, *values[place + 1 :]]
