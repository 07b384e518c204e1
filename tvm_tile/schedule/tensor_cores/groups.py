"""Grouped convolutions as batches of products: the groups as an axis of their own.

Before → after, for 4 groups of 12 filters and 16 channels::

    for y, f, c:     B[y, f]          += A[y, f // 12 * 16 + c] * W[f, c]
    for y, g, f', c: B[y, 12 g + f'] += A[y, 16 g + c]         * W[12 g + f', c]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_tile.graph.extract import nodes_in
from tvm_tile.schedule.s_tir.steps import SBlockRV


def split_groups(sch: Schedule, block: SBlockRV) -> None:
    """Give ``block`` an axis of groups, if one of its own is divided by their size."""
    variables = list(sch.get(block).iter_vars)
    for division in nodes_in(sch.get(block).body, tirx.FloorDiv):
        for place, v in enumerate(variables):
            if division.a.same_as(v.var) and int(v.dom.extent) % int(division.b) == 0:
                index = tirx.IndexMap.from_func(
                    partial(_split, place, int(division.b)), ndim=len(variables)
                )
                sch.transform_block_layout(block, index)
                return


def _split(place: int, size: int, *values: Any) -> list[Any]:
    """The values with one of them as quotient and remainder by ``size``."""
    value = values[place]
    return [*values[:place], value // size, value % size, *values[place + 1 :]]
