"""TVM's arrays and shapes as Python's, at once."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax, tirx

_ITEM = tvm.get_global_func("ffi.ArrayGetItem")


def items_of(array: Any) -> list[Any]:
    """The items of one of TVM's arrays: its own iterator takes three times as long."""
    return [_ITEM(array, place) for place in range(len(array))]


def known_extents(shape: Any) -> tuple[int, ...] | None:
    """The extents of a shape of Relax, all of which are known; ``None`` of any other."""
    if not isinstance(shape, relax.ShapeExpr):
        return None  # one that is computed, or none
    extents = items_of(shape.values)
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent.value) for extent in extents)
