"""Sampling of images and volumes at places that are data: of a grid, of boxes, of offsets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tvm import relax, te, tirx

from tvm_tile.frontend.ops.resampling import cubic_weights
from tvm_tile.frontend.ops.values import Value, dtype_of, shape_of

_CUBIC = -0.75  # Keys's coefficient, as PyTorch and ONNX have it


class Filter(Enum):
    """Which elements around a place count: four of a plane, one, or sixteen."""

    LINEAR = "linear"
    NEAREST = "nearest"
    CUBIC = "cubic"


class PaddingMode(Enum):
    """What lies outside: zeros, the border's elements, or the elements reflected."""

    ZEROS = "zeros"
    BORDER = "border"
    REFLECTION = "reflection"


@dataclass(frozen=True, slots=True)
class SampledAxis:
    """How places along one dimension are read.

    Attributes:
        extent: elements of the input.
        padding: what lies outside.
        corners: whether the outermost coordinates, -1 and 1, are the centres of the outermost
            elements, not their outer edges.
    """

    extent: int
    padding: PaddingMode = PaddingMode.ZEROS
    corners: bool = True

    def place(self, coordinate: Any) -> Any:
        """The place, a real number, of a coordinate for which -1 to 1 is the whole extent."""
        if self.corners:
            return (coordinate + 1.0) * ((self.extent - 1) / 2)
        return ((coordinate + 1.0) * self.extent - 1.0) / 2.0

    def padded(self, place: Any) -> Any:
        """Where the element lies that stands at a place, be it outside."""
        if self.padding is PaddingMode.ZEROS:
            return place
        if self.padding is PaddingMode.REFLECTION:
            place = self._reflected(place)
        return tirx.min(tirx.max(place, _like(place, 0)), _like(place, self.extent - 1))

    def _reflected(self, place: Any) -> Any:
        low = 0.0 if self.corners else -0.5
        span = float(self.extent - 1 if self.corners else self.extent)
        if span == 0:
            return _like(place, 0)
        # A wave of triangles: up from the low end to the high one, and down again.
        distance = tirx.abs(place - low)
        phase = distance - tirx.floor(distance * (0.5 / span)) * (2.0 * span)
        return span + low - tirx.abs(phase - span)

    def is_inside(self, place: Any) -> Any:
        """Whether there is an element at a whole place; there is none at NaN."""
        return tirx.all(place >= _like(place, 0), place <= _like(place, self.extent - 1))

    def index(self, place: Any) -> Any:
        """A whole place as an index, -1 where there is no element."""
        return tirx.Cast("int32", tirx.Select(self.is_inside(place), place, _like(place, -1)))


def _like(value: Any, number: float) -> Any:
    return tirx.const(number, str(value.ty.dtype))


# The elements along one dimension that count for a place, each with its whole place and weight.
_Parts = list[tuple[Any, Any]]


def _nearest_parts(axis: SampledAxis, place: Any) -> _Parts:
    """One element; of two that are as near the even one."""
    place = axis.padded(place)
    below = tirx.floor(place)
    rest = place - below
    is_odd = below != tirx.floor(below / 2.0) * 2.0
    half = _like(place, 0.5)
    is_up = tirx.any(rest > half, tirx.all(rest == half, is_odd))
    return [(tirx.Select(is_up, below + 1.0, below), _like(place, 1))]


def _linear_parts(axis: SampledAxis, place: Any) -> _Parts:
    place = axis.padded(place)
    below = tirx.floor(place)
    rest = place - below
    return [(below, 1.0 - rest), (below + 1.0, rest)]


def _cubic_parts(axis: SampledAxis, place: Any) -> _Parts:
    below = tirx.floor(place)
    rest = place - below
    return [
        (axis.padded(below + float(offset)), weight)
        for offset, weight in zip(range(-1, 3), cubic_weights(rest, _CUBIC), strict=True)
    ]


_PARTS: dict[Filter, Callable[[SampledAxis, Any], _Parts]] = {
    Filter.LINEAR: _linear_parts,
    Filter.NEAREST: _nearest_parts,
    Filter.CUBIC: _cubic_parts,
}


def weighted_neighbours(
    data: te.Tensor, lead: Sequence[Any], places: Sequence[Any], axes: Sequence[SampledAxis]
) -> list[Any]:
    """The elements next to a place, each times its weight; their sum is interpolated linearly.

    Args:
        data: what is read; no place outside, not even NaN, ever is.
        lead: the indices of the dimensions before those of the place.
        places: real numbers, of the tensor's element type.
        axes: the dimensions of the place.
    """
    parts = [_linear_parts(axis, place) for axis, place in zip(axes, places, strict=True)]
    found = []
    for chosen in itertools.product(*parts):
        indices = [axis.index(place) for axis, (place, _) in zip(axes, chosen, strict=True)]
        found.append(_weighted(data, lead, indices, [weight for _, weight in chosen]))
    return found


def grid_sample(
    builder: relax.BlockBuilder,
    x: Value,
    grid: Value,
    kind: Filter,
    padding: PaddingMode,
    *,
    corners: bool,
) -> Value:
    """What lies at the points of a grid.

    First the indices and weights along each dimension, which all channels share, then the sums.

    Args:
        builder: where the loops go.
        x: [batch, channels, ...].
        grid: [batch, ..., coordinates], the coordinate of the last dimension first, from -1 to 1.
        kind: which elements count.
        padding: what lies outside.
        corners: see :class:`Axis`.

    Raises:
        NotImplementedError: cubic filters of a volume, which no format defines.
    """
    if kind is Filter.CUBIC and len(shape_of(x)) != 4:
        raise NotImplementedError("bicubic interpolation of a volume")
    axes = [SampledAxis(extent, padding, corners) for extent in shape_of(x)[2:]]
    wide = "float64" if dtype_of(x) == "float64" else "float32"
    shape = (*shape_of(x)[:2], *shape_of(grid)[1:-1])

    def tables(points: te.Tensor) -> list[te.Tensor]:
        made: list[te.Tensor] = []
        for i, axis in enumerate(axes):
            made += _tables(points, len(axes) - 1 - i, axis, _PARTS[kind], wide)
        return made

    def sums(data: te.Tensor, *given: te.Tensor) -> te.Tensor:
        pairs = list(zip(given[::2], given[1::2], strict=True))

        def body(n: Any, c: Any, *at: Any) -> Any:
            total: Any = None
            for parts in itertools.product(*(range(int(index.shape[-1])) for index, _ in pairs)):
                indices = [index(n, *at, k) for (index, _), k in zip(pairs, parts, strict=True)]
                weights = [weight(n, *at, k) for (_, weight), k in zip(pairs, parts, strict=True)]
                term = _weighted(data, (n, c), indices, weights)
                total = term if total is None else total + term
            return total.astype(str(data.dtype))

        return te.compute(shape, body, name="grid_sample")

    made = builder.emit_te(tables, grid, primfunc_name_hint="grid_places")
    each = [builder.emit(relax.TupleGetItem(made, i)) for i in range(2 * len(axes))]
    return builder.emit_te(sums, x, *each, primfunc_name_hint="grid_sample")


def _tables(
    points: te.Tensor,
    coordinate: int,
    axis: SampledAxis,
    parts_of: Callable[..., _Parts],
    wide: str,
) -> tuple[te.Tensor, te.Tensor]:
    """The indices, -1 outside, and weights of the elements that count along a dimension."""

    def parts(at: Sequence[Any]) -> _Parts:
        return parts_of(axis, axis.place(points(*at, coordinate).astype(wide)))

    count = len(parts([0] * (len(points.shape) - 1)))
    shape = [*points.shape[:-1], count]

    def index(*at: Any) -> Any:
        return _chosen([axis.index(place) for place, _ in parts(at[:-1])], at[-1])

    def weight(*at: Any) -> Any:
        return _chosen([weight for _, weight in parts(at[:-1])], at[-1])

    return te.compute(shape, index, name="index"), te.compute(shape, weight, name="weight")


def _chosen(values: Sequence[Any], number: Any) -> Any:
    """The value of a number."""
    chosen = values[-1]
    for i, value in enumerate(values[:-1]):
        chosen = tirx.Select(number == i, value, chosen)
    return chosen


def _weighted(
    data: te.Tensor, lead: Sequence[Any], indices: Sequence[Any], weights: Sequence[Any]
) -> Any:
    """An element times its weights; zero where an index is -1."""
    value = data(*lead, *(tirx.max(i, 0) for i in indices)).astype(weights[0].ty.dtype)
    weighted = value * math.prod(weights[1:], start=weights[0])
    inside = tirx.all(*(i >= 0 for i in indices))
    return tirx.Select(inside, weighted, tirx.const(0, str(weighted.ty.dtype)))
