"""Pooling: the largest or the average of windows, of one to three dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tvm import relax

from tvm_tile.frontend.ops import pooling
from tvm_tile.frontend.ops.windows import AdaptiveParts, Windows
from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, shape_of


def _windows(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> list[Windows]:
    """The windows that PyTorch's result has, one for each of the kernel's dimensions.

    How many there are in ``ceil_mode`` is seen from the result's shape.
    """
    rank = len(emit.shape) - 2 if len(emit.shape) > len(kernel_size) + 1 else len(emit.shape) - 1
    settings = (kernel_size, stride or kernel_size, padding, padding, dilation)
    each = [list(values) * (rank if len(values) == 1 else 1) for values in map(_listed, settings)]
    extents = shape_of(x)[-rank:]
    return [Windows(*of) for of in zip(extents, *each, emit.shape[-rank:], strict=True)]


def _listed(values: int | Sequence[int]) -> Sequence[int]:
    return [values] if isinstance(values, int) else values


def _max_pool(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> relax.Expr | tuple[relax.Expr, relax.Expr | None]:
    """The largest elements, and their places if the operator has a second result."""
    windows = _windows(emit, x, kernel_size, stride, padding, dilation)
    if 1 in emit.wanted:
        return pooling.largest_with_places(emit.builder, x, windows)
    made = pooling.largest(emit.builder, x, windows)
    return made if len(emit.results) == 1 else (made, None)


def _avg_pool(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
) -> relax.Expr:
    """Means of windows; ``divisor_override`` (not of the one-dimensional) in place of a count."""
    windows = _windows(emit, x, kernel_size, stride, padding)
    return pooling.average(
        emit.builder, x, windows, counts_padding=count_include_pad, divisor=divisor_override
    )


def _adaptive_avg_pool(emit: Emit, x: relax.Expr, output_size: Sequence[int]) -> relax.Expr:
    return pooling.adaptive(emit.builder, x, output_size, takes_largest=False)


def _adaptive_max_pool(
    emit: Emit, x: relax.Expr, output_size: Sequence[int]
) -> tuple[relax.Expr, relax.Expr]:
    extents = shape_of(x)[-len(output_size) :]
    parts = [AdaptiveParts(*pair) for pair in zip(extents, output_size, strict=True)]
    return pooling.largest_with_places(emit.builder, x, parts)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(
        _max_pool,
        *(_ATEN.max_pool1d.default, _ATEN.max_pool2d.default, _ATEN.max_pool3d.default),
        *(_ATEN.max_pool2d_with_indices.default, _ATEN.max_pool3d_with_indices.default),
    ),
    **overloads(
        _avg_pool, _ATEN.avg_pool1d.default, _ATEN.avg_pool2d.default, _ATEN.avg_pool3d.default
    ),
    **overloads(
        _adaptive_avg_pool,
        _ATEN.adaptive_avg_pool1d.default,
        _ATEN._adaptive_avg_pool2d.default,
        _ATEN._adaptive_avg_pool3d.default,
    ),
    **overloads(
        _adaptive_max_pool, _ATEN.adaptive_max_pool2d.default, _ATEN.adaptive_max_pool3d.default
    ),
}
