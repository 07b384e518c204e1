"""Resampling along an axis: the weights of cubic filters, and sums of many weighted elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import te, tirx


def near_weight(distance: Any, a: float) -> Any:
    """The cubic weight of an element at most 1 away, by Keys's coefficient ``a``."""
    return ((a + 2) * distance - (a + 3)) * distance * distance + 1.0


def far_weight(distance: Any, a: float) -> Any:
    """The cubic weight of an element 1 to 2 away, by Keys's coefficient ``a``."""
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a


def weighted_sums(axis: int) -> Callable[[te.Tensor, te.Tensor, te.Tensor], te.Tensor]:
    """Loops in which each element is a sum of many along ``axis``.

    They are of a tensor, of places and of weights. Both are [elements, terms], places -1 where an
    element has fewer terms: what has no share is not multiplied by 0, as infinite elements would
    make NaN of it. Sums are of the weights' element type, the result of the tensor's.
    """

    def loops(data: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
        dtype, wide = str(data.dtype), str(weights.dtype)
        shape = [*data.shape[:axis], places.shape[0], *data.shape[axis + 1 :]]
        k = te.reduce_axis((0, places.shape[1]), "k")

        def term(*at: Any) -> Any:
            place = places(at[axis], k.var)
            value = data(*at[:axis], tirx.max(place, 0), *at[axis + 1 :]).astype(wide)
            value = value * weights(at[axis], k.var)
            return te.sum(tirx.Select(place >= 0, value, tirx.const(0, wide)), axis=k)

        total = te.compute(shape, term, name="resize")
        if wide == dtype:
            return total
        return te.compute(shape, lambda *at: total(*at).astype(dtype), name="narrowed")

    return loops
