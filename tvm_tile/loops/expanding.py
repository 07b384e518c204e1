"""Values of a matrix that is kept without its zeros, in loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from tvm_tile.graph.sparsity import PLACES_DEPTH, PLACES_ROWS, PLACES_WORDS, places_shape
from tvm_tile.loops.rows import number


def expanding_loops(shape: Sequence[int], axis: int, dtype: str) -> tirx.PrimFunc:
    """The function that makes of a matrix' kept numbers, two of four, all of them.

    Args:
        shape: extents of the matrix, of which those of one element are left out of what is kept.
        axis: which of the others are rows, whose elements are summed up.
        dtype: element type.

    Returns:
        A function of the kept numbers, rows by half of the elements, of the words that tell which
        they are (see :mod:`tvm_tile.graph.sparsity`), and of the matrix.
    """
    long = [place for place, extent in enumerate(shape) if extent > 1]
    row_place, depth_place = long[axis], long[1 - axis]
    rows, depth = shape[row_place], shape[depth_place]
    values = te.placeholder([number(rows), number(depth // 2)], dtype, "values")
    words = te.placeholder(list(map(number, places_shape(rows, depth))), "uint32", "places")

    def element(*at: Any) -> Any:
        row, k = at[row_place], at[depth_place]
        lane = row % 64 // 16 * 32 + row % 8 * 4 + k % 64 // 16
        word = k // PLACES_DEPTH * PLACES_WORDS + lane * 2 + k % PLACES_DEPTH // 64
        shift = tirx.Cast("int32", row % 16 // 8 * 16 + k % 16 // 4 * 4)
        pair = tirx.Cast("int32", words(row // PLACES_ROWS, word)) >> shift
        place, group = tirx.Cast("int32", k % 4), k // 4 * 2
        second = tirx.Select((pair >> 2 & 3) == place, values(row, group + 1), tirx.const(0, dtype))
        return tirx.Select((pair & 3) == place, values(row, group), second)

    expanded = te.compute(list(map(number, shape)), element, name="expand")
    return te.create_prim_func([values, words, expanded]).without_attr("global_symbol")
