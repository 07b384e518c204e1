"""Operands whose chunks bulk tensor copies (TMA) bring."""

from __future__ import annotations

from tvm_tile.graph.tile_graph import Axis
from tvm_tile.tile.products.warpgroup_tile import LINE
from tvm_tile.tile.units.product import Operand

ALIGNMENT = 16  # bytes, of strides and of where a box begins in its contiguous dimension
LONGEST_STEP = 8  # elements that a copy may step over
_RANK = 5


def is_copyable(operand: Operand, depth: Axis, chunk: int | None = None) -> bool:
    """Whether an operand is a tensor that TMA takes, chunks of its depth at a time, by default of a
    line each."""
    if not _ends_with_depth(operand, depth, chunk or LINE // operand.tensor.element_size):
        return False  # chunks would go on into what lies behind
    names = {axis.name for axis in operand.free} | {depth.name}
    steps = [c for index in operand.indices for name, c in index.terms if name in names]
    if len(operand.indices) > _RANK or max(steps) > LONGEST_STEP:
        return False
    # A box that begins elsewhere along the contiguous dimension is an illegal instruction. Tiles
    # and chunks begin aligned: what is left is a slice's or padding's offset.
    starts = (*operand.strides[:-1], operand.indices[-1].offset * operand.tensor.element_size)
    return not any(start % ALIGNMENT for start in starts)


def _ends_with_depth(operand: Operand, depth: Axis, chunk: int) -> bool:
    """Whether what the last chunk has too much lies outside of the tensor, and is zero."""
    if depth.extent % chunk == 0:
        return True
    sizes = zip(operand.indices, operand.tensor.shape, strict=True)
    end = next((i.offset, extent) for i, extent in sizes if i.coefficient(depth.name))
    return depth.extent + end[0] >= end[1]
