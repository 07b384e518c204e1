"""How the weights of products of few rows are stored.

``y[m, n] = sum over k of x[m, k] * w[n, k]`` with few ``m`` lasts as long as reading ``w``. By
rows, as here, each output's weights are contiguous: lanes of a warp share a sum, and there are
blocks enough for any device. By columns, ``w[k, n]``, lanes have outputs of their own, and blocks
share the sums of few. Which is faster depends on the extents, the device and what else the kernel
does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm_tile.graph.tile_graph import Access, Operator

_MOST_ROWS = 16  # the fewest that a tile of matrix units has: of more, weights are reused
_MATRIX = 2  # dimensions


def is_of_few_rows(shape: Sequence[int] | None) -> bool:
    """Whether a product is of few rows, by its shape; not where that is not known."""
    return shape is not None and math.prod(shape[:-1]) <= _MOST_ROWS


def is_weight(operator: Operator, read: Access) -> bool:
    """Whether ``operator`` is a product of few rows that reads a matrix of weights, each once.

    Args:
        operator: any operator.
        read: one of the accesses that it reads by.
    """
    if len(read.indices) != _MATRIX or not read.is_exact or read.is_computed:
        return False
    axes = {axis.name: axis for axis in operator.axes}
    own = [axes[term[0]] for index in read.indices for term in index.terms]
    is_whole = all(
        not index.offset and [c for _, c in index.terms] == [1] for index in read.indices
    )
    if not is_whole or tuple(axis.extent for axis in own) != read.tensor.shape:
        return False
    rows = math.prod(axis.extent for axis in operator.spatial_axes if axis not in own)
    one_of_each = {axis.is_reduce for axis in own} == {True, False}
    return one_of_each and rows <= _MOST_ROWS and min(read.tensor.shape) > 1
