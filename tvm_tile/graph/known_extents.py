"""Extents of tensors in Relax, as far as they are known."""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from tvm_tile import compat


def known_extents(shape: Any) -> tuple[int, ...] | None:
    """The extents of a shape of Relax, all of which are known; ``None`` of any other."""
    if not isinstance(shape, relax.ShapeExpr):
        return None  # one that is computed, or none
    extents = compat.items_of(shape.values)
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None
    return tuple(int(extent.value) for extent in extents)
