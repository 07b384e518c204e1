"""Arithmetic of a spatial block on sums, as an expression of them and of its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import Expression, block_ranges, is_in_order, is_load_of, loads_of
from tvm_tile.graph.extract import extract_operator
from tvm_tile.schedule.tensor_cores.work import operations


@dataclass(frozen=True, slots=True)
class SpatialStage:
    """A spatial block that writes each value in order; channels are the last dimension.

    Attributes:
        buffer: buffer that it writes.
        element: its value; the sums are given, one for each of its parts.
        names: names of the axes, one a dimension of the buffer.
        shifts: shifts of the sums' dimensions against its own, but for the channels.
        parts: first channels of the sums that it reads.
        operations: operations of arithmetic for a value.
    """

    buffer: Any
    element: Expression
    names: tuple[str, ...]
    shifts: tuple[int, ...]
    parts: tuple[int, ...]
    operations: int

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of what it writes."""
        return tuple(int(extent) for extent in self.buffer.ty.shape)

    def at(self, place: Sequence[Any], totals: Sequence[Any], buffers: Mapping[str, Any]) -> Any:
        """The value that it stores at a place.

        Args:
            place: place in the buffer that it writes.
            totals: the sums of each of its parts there.
            buffers: name of a parameter -> the buffer that stands for it.
        """
        return self.element.at(dict(zip(self.names, place, strict=True)), totals, buffers)


def read_step(block: SBlock, made: SBlock) -> SpatialStage | None:
    """Arithmetic of ``block`` on the sums of ``made``; ``None`` where it moves them around."""
    sums, store = made.body.buffer, block.body
    variables = tuple(v.var for v in block.iter_vars)
    operator = extract_operator(block)
    if operator is None or not is_in_order(block):
        return None
    loads = loads_of(store.value, sums)
    if not loads or len(loads[0].indices) != len(variables):
        return None
    ranges = block_ranges(block)
    found = [
        [_shift(index, var, ranges) for index, var in zip(load.indices, variables, strict=True)]
        for load in loads
    ]
    known = [[shift for shift in own if shift is not None] for own in found]
    if any(len(own) < len(variables) or own[:-1] != known[0][:-1] for own in known):
        return None
    parts = tuple(sorted({own[-1] for own in known}))
    given = tuple(tirx.decl_buffer(sums.ty.shape, str(sums.ty.dtype)) for _ in parts)

    def load(node: ir.TensorLoad) -> Any:
        if not is_load_of(node, sums):
            return node
        part = parts.index(_shift(node.indices[-1], variables[-1], ranges))
        return tirx.BufferLoad(given[part], list(node.indices))

    value = tvm_ffi.structural_map(store.value, [(ir.TensorLoad, load)], order="post")
    element = Expression.of(block, operator, value, given)
    names = tuple(axis.name for axis in operator.axes)
    shifts, work = tuple(known[0][:-1]), operations(store.value)
    return SpatialStage(store.buffer, element, names, shifts, parts, work)


def _shift(index: Any, var: Any, ranges: Any) -> int | None:
    """Difference between an index and a variable; ``None`` where that is no number."""
    difference = ranges.simplify(index - var)
    return int(difference) if isinstance(difference, tirx.IntImm) else None
