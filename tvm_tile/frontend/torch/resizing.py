"""Resizing: every kind of ``interpolate``, antialiased ones included."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.resampling import weighted_sums
from tvm_tile.frontend.torch.convert import Converter, Converters
from tvm_tile.frontend.torch.emit import Emit, Refusal, dtype_of, shape_of
from tvm_tile.frontend.torch.taps import (
    Resize,
    Taps,
    antialiased,
    antialiased_cubic,
    cubic,
    linear,
    nearest,
    nearest_exact,
    nearest_of_images,
    taps,
)

_ATEN = torch.ops.aten
_BATCH_AND_CHANNELS = 2
_UNROLLED = 4  # taps along a dimension up to which the sum is written out


def _resized(
    emit: Emit,
    x: relax.Expr,
    resize: Resize,
    scales: Sequence[float | None],
    corners: bool = False,
) -> relax.Expr:
    """Resize the last dimensions, as many as there are scales."""
    rank = len(scales)
    old, new = shape_of(x)[-rank:], emit.shape[-rank:]
    if len(shape_of(x)) != rank + _BATCH_AND_CHANNELS:
        raise Refusal(f"rank {len(shape_of(x))}")
    if not dtype_of(x).is_floating_point and resize not in (
        nearest,
        nearest_of_images,
        nearest_exact,
    ):
        raise Refusal(f"weights of elements of type {dtype_of(x)}, which PyTorch rounds")
    copies = _by_tvm(x, resize, old, new, scales)
    if copies is not None:
        return copies
    wide = torch.float64 if dtype_of(x) == torch.float64 else torch.float32
    by_dimension = [
        taps(resize, before, after, corners, scale, wide)
        for before, after, scale in zip(old, new, scales, strict=True)
    ]
    if all(found.count <= _UNROLLED for found in by_dimension):
        return _gathered(emit, x, dict(enumerate(by_dimension, _BATCH_AND_CHANNELS)))
    for axis, found in enumerate(by_dimension, _BATCH_AND_CHANNELS):
        write = _gathered if found.count <= _UNROLLED else _summed
        x = write(emit, x, {axis: found})
    return x


def _by_tvm(
    x: relax.Expr,
    resize: Resize,
    old: Sequence[int],
    new: Sequence[int],
    scales: Sequence[float | None],
) -> relax.Expr | None:
    """TVM's operator on images, whose layout TVM can change, where it does the same.

    That is where each element becomes a whole number of copies.
    """
    is_whole = all(
        after % before == 0 and scale in (None, after / before)
        for before, after, scale in zip(old, new, scales, strict=True)
    )
    if resize is not nearest_of_images or not is_whole:
        return None
    return relax.op.image.resize2d(
        x,
        tuple(new),
        layout="NCHW",
        method="nearest_neighbor",
        coordinate_transformation_mode="asymmetric",
        rounding_method="floor",
    )


def _gathered(emit: Emit, x: relax.Expr, by_axis: dict[int, Taps]) -> relax.Expr:
    """Each element a sum of few, written out::

    B[n, c, i, j] = sum(u[i, a] * v[j, b] * A[n, c, p[i, a], q[j, b]] for a, b)
    """
    axes = list(by_axis)
    is_copy = all(found.is_copy for found in by_axis.values())
    dtype = dtype_of(x)
    wide = "float64" if dtype == torch.float64 else "float32"
    tables = [_table(found.places) for found in by_axis.values()]
    weights = [] if is_copy else [_table(t.weights, wide) for t in by_axis.values()]
    shape = list(shape_of(x))
    for axis, found in by_axis.items():
        shape[axis] = len(found.places)

    def loops(data: te.Tensor, *given: te.Tensor) -> te.Tensor:
        places, factors = given[: len(axes)], given[len(axes) :]

        def element(at: Sequence[Any], of: Sequence[int]) -> Any:
            inside, source = [], list(at)
            for axis, table, k in zip(axes, places, of, strict=True):
                place = table(at[axis], k)
                if not by_axis[axis].is_even:
                    inside.append(place >= 0)
                    place = tirx.max(place, 0)
                source[axis] = place
            value = data(*source)
            if is_copy:
                return value
            value = value.astype(wide)
            for axis, table, k in zip(axes, factors, of, strict=True):
                value = value * table(at[axis], k)
            return tirx.Select(tirx.all(*inside), value, tirx.const(0, wide)) if inside else value

        def body(*at: Any) -> Any:
            choices = itertools.product(*(range(found.count) for found in by_axis.values()))
            values = [element(at, of) for of in choices]
            total = values[0]
            for value in values[1:]:
                total = total + value
            return total.astype(str(data.dtype))

        return te.compute(shape, body, name="resize")

    return emit.te(loops, x, *tables, *weights, name="resize")


def _summed(emit: Emit, x: relax.Expr, by_axis: dict[int, Taps]) -> relax.Expr:
    """Each element a sum of many along one dimension, in a loop."""
    ((axis, found),) = by_axis.items()
    dtype = dtype_of(x)
    wide = "float64" if dtype == torch.float64 else "float32"
    tables = _table(found.places), _table(found.weights, wide)
    return emit.te(weighted_sums(axis), x, *tables, name="resize")


def _table(values: np.ndarray, dtype: str = "int32") -> relax.Expr:
    return relax.const(values.astype(dtype), dtype)


def _scales(factors: Sequence[float] | None, rank: int) -> list[float | None]:
    return [None] * rank if factors is None else list(factors)


def _copying(resize: Resize, rank: int) -> dict[str, Converter]:
    """Converters of the overloads of an operator that copies the nearest elements."""

    def plain(emit: Emit, x: relax.Expr, output_size: Any, scales: float | None) -> relax.Expr:
        return _resized(emit, x, resize, [scales])

    def image(
        emit: Emit, x: relax.Expr, output_size: Any, scales_h: float | None, scales_w: float | None
    ) -> relax.Expr:
        return _resized(emit, x, resize, [scales_h, scales_w])

    def volume(
        emit: Emit,
        x: relax.Expr,
        output_size: Any,
        scales_d: float | None,
        scales_h: float | None,
        scales_w: float | None,
    ) -> relax.Expr:
        return _resized(emit, x, resize, [scales_d, scales_h, scales_w])

    def factors(
        emit: Emit, input: relax.Expr, output_size: Any, scale_factors: Sequence[float] | None
    ) -> relax.Expr:
        return _resized(emit, input, resize, _scales(scale_factors, rank))

    by_rank: dict[int, Converter] = {1: plain, 2: image, 3: volume}
    return {"default": by_rank[rank], "vec": factors}


def _weighing(resize: Resize, rank: int) -> dict[str, Converter]:
    """Converters of the overloads of an operator that weighs neighbouring elements."""

    def plain(
        emit: Emit, x: relax.Expr, output_size: Any, align_corners: bool, scales: float | None
    ) -> relax.Expr:
        return _resized(emit, x, resize, [scales], align_corners)

    def image(
        emit: Emit,
        x: relax.Expr,
        output_size: Any,
        align_corners: bool,
        scales_h: float | None,
        scales_w: float | None,
    ) -> relax.Expr:
        return _resized(emit, x, resize, [scales_h, scales_w], align_corners)

    def volume(
        emit: Emit,
        x: relax.Expr,
        output_size: Any,
        align_corners: bool,
        scales_d: float | None,
        scales_h: float | None,
        scales_w: float | None,
    ) -> relax.Expr:
        return _resized(emit, x, resize, [scales_d, scales_h, scales_w], align_corners)

    def factors(
        emit: Emit,
        input: relax.Expr,
        output_size: Any,
        align_corners: bool,
        scale_factors: Sequence[float] | None,
    ) -> relax.Expr:
        return _resized(emit, input, resize, _scales(scale_factors, rank), align_corners)

    by_rank: dict[int, Converter] = {1: plain, 2: image, 3: volume}
    return {"default": by_rank[rank], "vec": factors}


_OPERATORS = (
    (_ATEN.upsample_nearest1d, _copying(nearest, 1)),
    (_ATEN.upsample_nearest2d, _copying(nearest_of_images, 2)),
    (_ATEN.upsample_nearest3d, _copying(nearest, 3)),
    (_ATEN._upsample_nearest_exact1d, _copying(nearest_exact, 1)),
    (_ATEN._upsample_nearest_exact2d, _copying(nearest_exact, 2)),
    (_ATEN._upsample_nearest_exact3d, _copying(nearest_exact, 3)),
    (_ATEN.upsample_linear1d, _weighing(linear, 1)),
    (_ATEN.upsample_bilinear2d, _weighing(linear, 2)),
    (_ATEN.upsample_trilinear3d, _weighing(linear, 3)),
    (_ATEN.upsample_bicubic2d, _weighing(cubic, 2)),
    (_ATEN._upsample_bilinear2d_aa, _weighing(antialiased, 2)),
    (_ATEN._upsample_bicubic2d_aa, _weighing(antialiased_cubic, 2)),
)
CONVERTERS: Converters = {
    getattr(operator, overload): converter
    for operator, converters in _OPERATORS
    for overload, converter in converters.items()
}
