"""Resizing: every kind of ``interpolate``, antialiased ones included, and ``grid_sample``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tvm import relax

from tvm_tile.frontend.ops.resampling import resampled
from tvm_tile.frontend.ops.sampling import Filter, PaddingMode, grid_sample
from tvm_tile.frontend.torch.convert import Converter, Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, Refusal, dtype_of, shape_of
from tvm_tile.frontend.torch.operators.taps import (
    Resize,
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
    return resampled(emit.builder, x, dict(enumerate(by_dimension, _BATCH_AND_CHANNELS)))


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


def _resizing(resize: Resize, rank: int) -> Converter:
    """The converter of both overloads of an operator; the one takes scales by their names."""

    def convert(
        emit: Emit,
        output_size: Any,
        x: relax.Expr | None = None,
        input: relax.Expr | None = None,
        align_corners: bool = False,
        scale_factors: Sequence[float] | None = None,
        scales: float | None = None,
        scales_d: float | None = None,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> relax.Expr:
        own = [scales] if rank == 1 else [scales_d, scales_h, scales_w][-rank:]
        image = input if x is None else x
        return _resized(emit, image, resize, scale_factors or own, align_corners)

    return convert


def _grid_sample(
    emit: Emit,
    input: relax.Expr,
    grid: relax.Expr,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> relax.Expr:
    kind, padding = list(Filter)[interpolation_mode], list(PaddingMode)[padding_mode]
    return grid_sample(emit.builder, input, grid, kind, padding, corners=align_corners)


_OPERATORS = (
    (_ATEN.upsample_nearest1d, nearest, 1),
    (_ATEN.upsample_nearest2d, nearest_of_images, 2),
    (_ATEN.upsample_nearest3d, nearest, 3),
    (_ATEN._upsample_nearest_exact1d, nearest_exact, 1),
    (_ATEN._upsample_nearest_exact2d, nearest_exact, 2),
    (_ATEN._upsample_nearest_exact3d, nearest_exact, 3),
    (_ATEN.upsample_linear1d, linear, 1),
    (_ATEN.upsample_bilinear2d, linear, 2),
    (_ATEN.upsample_trilinear3d, linear, 3),
    (_ATEN.upsample_bicubic2d, cubic, 2),
    (_ATEN._upsample_bilinear2d_aa, antialiased, 2),
    (_ATEN._upsample_bicubic2d_aa, antialiased_cubic, 2),
)
CONVERTERS: Converters = {
    **overloads(_grid_sample, _ATEN.grid_sampler_2d.default, _ATEN.grid_sampler_3d.default),
    **{
        getattr(operator, overload): _resizing(resize, rank)
        for operator, resize, rank in _OPERATORS
        for overload in ("default", "vec")
    },
}
