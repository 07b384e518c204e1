"""Resampling along axes: each element a weighted sum of elements at constant places."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_tile.frontend.ops.values import Value, constant, dtype_of, shape_of

_UNROLLED = 4  # taps along an axis up to which a sum is written out
_MOST_TERMS = 16  # of a sum that is written out


def near_weight(distance: Any, a: float) -> Any:
    """The cubic weight of an element at most 1 away, by Keys's coefficient ``a``."""
    return ((a + 2) * distance - (a + 3)) * distance * distance + 1.0


def far_weight(distance: Any, a: float) -> Any:
    """The cubic weight of an element 1 to 2 away, by Keys's coefficient ``a``."""
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a


def cubic_weights(distance: Any, a: float) -> list[Any]:
    """The weights of four neighbours, of which the second is ``distance`` below the place."""
    near, far = partial(near_weight, a=a), partial(far_weight, a=a)
    return [far(distance + 1.0), near(distance), near(1.0 - distance), far(2.0 - distance)]


@dataclass(frozen=True, slots=True)
class Taps:
    """What each element along one resampled axis is a sum of.

    Attributes:
        places: [elements, taps]: places in the input; -1 where an element has fewer taps.
        weights: of these, of the same shape; all 1 where one input element is taken as it is.
    """

    places: np.ndarray
    weights: np.ndarray

    @property
    def count(self) -> int:
        """The most taps that an element has."""
        return int(self.places.shape[1])

    @property
    def is_copy(self) -> bool:
        """Whether each element is one of the input."""
        return self.count == 1 and bool((self.weights == 1).all())

    @property
    def is_even(self) -> bool:
        """Whether all elements have as many taps."""
        return bool((self.places >= 0).all())


def resampled(builder: relax.BlockBuilder, x: Value, by_axis: Mapping[int, Taps]) -> Value:
    """A tensor whose elements along some axes are sums of others.

    What has no share is not multiplied by 0, as infinite elements would make NaN of it. Sums are
    of float32, or of float64 if the tensor is; the result has the tensor's element type.
    """
    counts = [taps.count for taps in by_axis.values()]
    if max(counts, default=0) <= _UNROLLED and math.prod(counts) <= _MOST_TERMS:
        return _gathered(builder, x, by_axis)
    for axis, taps in by_axis.items():
        if taps.count <= _UNROLLED:
            x = _gathered(builder, x, {axis: taps})
        else:
            tables = constant(taps.places, "int32"), constant(taps.weights, _wide(x))
            x = builder.emit_te(_weighted_sums(axis), x, *tables, primfunc_name_hint="resize")
    return x


def _wide(x: Value) -> str:
    return "float64" if dtype_of(x) == "float64" else "float32"


def _gathered(builder: relax.BlockBuilder, x: Value, by_axis: Mapping[int, Taps]) -> Value:
    """Each element a sum of few, written out::

    B[n, c, i, j] = sum(u[i, a] * v[j, b] * A[n, c, p[i, a], q[j, b]] for a, b)
    """
    is_copy = all(taps.is_copy for taps in by_axis.values())
    wide = _wide(x)
    tables = [constant(taps.places, "int32") for taps in by_axis.values()]
    weights = [] if is_copy else [constant(taps.weights, wide) for taps in by_axis.values()]
    shape = list(shape_of(x))
    for axis, taps in by_axis.items():
        shape[axis] = len(taps.places)

    def loops(data: te.Tensor, *given: te.Tensor) -> te.Tensor:
        places, factors = given[: len(by_axis)], given[len(by_axis) :]

        def element(at: Sequence[Any], of: Sequence[int]) -> Any:
            inside, source = [], list(at)
            for axis, table, k in zip(by_axis, places, of, strict=True):
                place = table(at[axis], k)
                if not by_axis[axis].is_even:
                    inside.append(place >= 0)
                    place = tirx.max(place, 0)
                source[axis] = place
            value = data(*source)
            if is_copy:
                return value
            value = value.astype(wide)
            for axis, table, k in zip(by_axis, factors, of, strict=True):
                value = value * table(at[axis], k)
            return tirx.Select(tirx.all(*inside), value, tirx.const(0, wide)) if inside else value

        def body(*at: Any) -> Any:
            choices = itertools.product(*(range(taps.count) for taps in by_axis.values()))
            total, *others = [element(at, of) for of in choices]
            for value in others:
                total = total + value
            return total.astype(str(data.dtype))

        return te.compute(shape, body, name="resize")

    return builder.emit_te(loops, x, *tables, *weights, primfunc_name_hint="resize")


def _weighted_sums(axis: int) -> Callable[[te.Tensor, te.Tensor, te.Tensor], te.Tensor]:
    """Loops in which each element is a sum of many along ``axis``, by places and weights."""

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
