"""Which family an operator belongs to, from its accesses alone."""

from __future__ import annotations

import math

from tvm_tile.graph.tile_graph import Operator

_FEW = 16
_WINDOW = 64  # points of a reduction that one thread sums alone


def is_contraction(operator: Operator) -> bool:
    """A product or convolution: two operands, and some axis reuses each long reduction.

    Depthwise convolutions and pooling are not: every input element meets few outputs.
    """
    if not is_product(operator):
        return False
    return min(_reuse(operator)) >= 4 or operator.depth > _WINDOW


def is_product(operator: Operator) -> bool:
    """Two operands, one of which is reused: a contraction, or each of several vectors, few of them,
    with short ones of its own, as attention's step by one position has it."""
    if len(operator.reads) != 2 or not operator.reduce_axes:
        return False
    return operator.depth >= 4 and max(_reuse(operator)) >= 4


def _reuse(operator: Operator) -> list[int]:
    """How often each operand's elements are used."""
    spatial = {axis.name: axis.extent for axis in operator.spatial_axes}
    return [
        math.prod(extent for name, extent in spatial.items() if name not in read.axes)
        for read in operator.reads
    ]


def is_window(operator: Operator) -> bool:
    """A short reduction over a sliding window: pooling, depthwise convolution.

    Also a short sum whose elements are far apart, so that neighbouring threads read neighbours.
    """
    if operator.depth > _WINDOW:
        return False
    if operator.depth <= _FEW:
        # Too little to share among threads. (Of several at one element TVM would hear only some.)
        return True
    reduce = {axis.name for axis in operator.reduce_axes}
    largest = max(operator.reads, key=lambda read: read.tensor.size, default=None)
    if largest is None:
        return True
    slides = any(a.name in operator.sliding_axes for a in operator.spatial_axes if a.extent > 1)
    return slides or largest.contiguous_axis not in reduce
