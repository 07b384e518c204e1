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
    if len(operator.reads) != 2 or not operator.reduce_axes:
        return False
    depth = math.prod(axis.extent for axis in operator.reduce_axes)
    spatial = {axis.name: axis.extent for axis in operator.spatial_axes}
    reuse = [
        math.prod(extent for name, extent in spatial.items() if name not in read.axes)
        for read in operator.reads
    ]
    return depth >= 4 and max(reuse) >= 4 and (min(reuse) >= 4 or depth > _WINDOW)


def is_window(operator: Operator) -> bool:
    """A short reduction over a sliding window: pooling, depthwise convolution.

    Also a short sum whose elements are far apart, so that neighbouring threads read neighbours.
    """
    depth = math.prod(axis.extent for axis in operator.reduce_axes)
    if depth > _WINDOW:
        return False
    if depth <= _FEW:
        # Too little to share among threads. (Of several at one element TVM would hear only some.)
        return True
    reduce = {axis.name for axis in operator.reduce_axes}
    largest = max(operator.reads, key=lambda read: read.tensor.size, default=None)
    if largest is None:
        return True
    slides = any(a.name in operator.sliding_axes for a in operator.spatial_axes if a.extent > 1)
    return slides or largest.contiguous_axis not in reduce
