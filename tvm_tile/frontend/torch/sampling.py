"""Sampling of images and volumes at the points of a grid (``grid_sample``)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, dtype_of, shape_of
from tvm_tile.frontend.torch.taps import cubic_weights

# PyTorch's numbers of the modes.
_LINEAR, _NEAREST, _CUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


@dataclass(frozen=True, slots=True)
class Axis:
    """How coordinates along one dimension become places in the input.

    Attributes:
        extent: elements of the input.
        padding: what lies outside: zeros, the border's elements, or the elements reflected.
        corners: whether -1 and 1 are the centres of the outermost elements, not their outer edges.
    """

    extent: int
    padding: int
    corners: bool

    def place(self, coordinate: Any) -> Any:
        """The place, a real number, of a coordinate for which -1 to 1 is the whole extent."""
        if self.corners:
            return (coordinate + 1.0) * ((self.extent - 1) / 2)
        return ((coordinate + 1.0) * self.extent - 1.0) / 2.0

    def padded(self, place: Any) -> Any:
        """Where the element lies that stands at a place, be it outside."""
        if self.padding == _ZEROS:
            return place
        if self.padding == _REFLECTION:
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


def _nearest_parts(axis: Axis, place: Any) -> _Parts:
    """One element; of two that are as near the even one."""
    place = axis.padded(place)
    below = tirx.floor(place)
    rest = place - below
    is_odd = below != tirx.floor(below / 2.0) * 2.0
    half = _like(place, 0.5)
    is_up = tirx.any(rest > half, tirx.all(rest == half, is_odd))
    return [(tirx.Select(is_up, below + 1.0, below), _like(place, 1))]


def _linear_parts(axis: Axis, place: Any) -> _Parts:
    place = axis.padded(place)
    below = tirx.floor(place)
    rest = place - below
    return [(below, 1.0 - rest), (below + 1.0, rest)]


def _cubic_parts(axis: Axis, place: Any) -> _Parts:
    below = tirx.floor(place)
    rest = place - below
    return [
        (axis.padded(below + float(offset)), weight)
        for offset, weight in zip(range(-1, 3), cubic_weights(rest), strict=True)
    ]


_PARTS: dict[int, Callable[[Axis, Any], _Parts]] = {
    _LINEAR: _linear_parts,
    _NEAREST: _nearest_parts,
    _CUBIC: _cubic_parts,
}


def _grid_sample(
    emit: Emit,
    input: relax.Expr,
    grid: relax.Expr,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> relax.Expr:
    """Elements outside count as 0; no place outside, not even NaN, is ever read.

    First the indices and weights along each dimension, which all channels share, then the sums.
    """
    axes = [Axis(extent, padding_mode, align_corners) for extent in shape_of(input)[2:]]
    wide = "float64" if dtype_of(input) == torch.float64 else "float32"
    parts_of = _PARTS[interpolation_mode]

    def tables(points: te.Tensor) -> list[te.Tensor]:
        made: list[te.Tensor] = []
        for i, axis in enumerate(axes):
            # A point's first coordinate is that of the last dimension.
            made += _tables(points, len(axes) - 1 - i, axis, parts_of, wide)
        return made

    def sums(data: te.Tensor, *given: te.Tensor) -> te.Tensor:
        pairs = list(zip(given[::2], given[1::2], strict=True))

        def body(n: Any, c: Any, *at: Any) -> Any:
            total = _weighted_sum(data, (n, c), (n, *at), pairs)
            return total.astype(str(data.dtype))

        return te.compute(emit.shape, body, name="grid_sample")

    made = emit.te(tables, grid, name="grid_places")
    each = [emit(relax.TupleGetItem(made, i)) for i in range(2 * len(axes))]
    return emit.te(sums, input, *each, name="grid_sample")


def _tables(
    points: te.Tensor, coordinate: int, axis: Axis, parts_of: Callable[..., _Parts], wide: str
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


def _weighted_sum(
    data: te.Tensor,
    lead: Sequence[Any],
    point: Sequence[Any],
    tables: Sequence[tuple[te.Tensor, te.Tensor]],
) -> Any:
    total: Any = None
    for parts in itertools.product(*(range(int(index.shape[-1])) for index, _ in tables)):
        indices = [index(*point, k) for (index, _), k in zip(tables, parts, strict=True)]
        weights = [weight(*point, k) for (_, weight), k in zip(tables, parts, strict=True)]
        value = data(*lead, *(tirx.max(i, 0) for i in indices)).astype(weights[0].ty.dtype)
        weighted = value * math.prod(weights[1:], start=weights[0])
        inside = tirx.all(*(i >= 0 for i in indices))
        term = tirx.Select(inside, weighted, tirx.const(0, str(weighted.ty.dtype)))
        total = term if total is None else total + term
    return total


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(_grid_sample, _ATEN.grid_sampler_2d.default, _ATEN.grid_sampler_3d.default)
}
