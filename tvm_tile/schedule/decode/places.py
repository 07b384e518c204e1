"""Rows, keys and columns of a group, as values of the axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import digits, value_of
from tvm_tile.schedule.decode.find import Cache, DecodeMatch

_INTEGERS = "int32", "int64"


class GroupPlaces:
    """Values of axes for a group of rows.

    Args:
        found: the attention whose axes they are.
        group: number of the group.
    """

    def __init__(self, found: DecodeMatch, group: Any) -> None:
        self._found = found
        axes = [own.axis for own in found.shared]
        values = dict(digits(group, axes, [own.groups for own in found.shared]))
        self._first = {
            own.axis.name: ib.Bind(values[own.axis.name] * own.rows) for own in found.shared
        }

    def at(self, row: Any, key: Any = None, column: Any = None) -> dict[str, Any]:
        """Values of all axes at a row of the group, and at a key or a column."""
        shared = self._found.shared
        rows = dict(digits(row, [own.axis for own in shared], [own.rows for own in shared]))
        place = {name: first + rows[name] for name, first in self._first.items()}
        if key is not None:
            place[self._found.key.name] = key
        if column is not None:
            place[self._found.column.name] = column
        return place

    def rows_of(self, cache: Cache, buffers: Mapping[str, Any]) -> tuple[Any, Any]:
        """A tensor as a flat buffer, and elements from its start to the group's first row of it."""
        source = buffers[cache.name]
        size = math.prod(int(extent) for extent in source.ty.shape)
        flat = ib.decl_buffer((size,), cache.rows.dtype, data=source.data)
        groups = {own.outer: self._first[own.axis.name] // own.rows for own in cache.shared}
        return flat, ib.Bind(value_of(cache.offset, groups))


def held(buffer: Any) -> Any:
    """A parameter; instead of a single integer, such as the place that a step is at, a register.

    Compilers load it again behind each wait and barrier, where all that follows is late by that.
    """
    shape = [int(extent) for extent in buffer.ty.shape]
    if math.prod(shape) != 1 or str(buffer.ty.dtype) not in _INTEGERS:
        return buffer
    own, first = ib.alloc_buffer(shape, str(buffer.ty.dtype), scope="local"), [0] * len(shape)
    ib.buffer_store(own, buffer[tuple(first)], first)
    return own
