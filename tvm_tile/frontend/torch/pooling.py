"""Pooling: the largest or the average of windows, of one to three dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tvm import relax, te, tirx, topi

from tvm_tile.frontend.torch.convert import Converters, overloads
from tvm_tile.frontend.torch.emit import Emit, dtype_of, shape_of
from tvm_tile.frontend.torch.maxima import largest_and_where

_MAX = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
_HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows along one dimension.

    Attributes:
        extent: elements of the input.
        kernel: elements of a window.
        stride: from a window's start to the next one's.
        padding: positions before the first element at which windows may start; as many may be
            behind the last.
        dilation: from an element of a window to the next.
        count: windows.
    """

    extent: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    count: int

    @property
    def behind(self) -> int:
        """Positions behind the last element that windows reach."""
        last = (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return max(last - self.extent - self.padding, 0)

    @property
    def is_regular(self) -> bool:
        """Whether no window reaches further than the padding."""
        return self.behind <= self.padding

    def position(self, window: Any, element: Any) -> Any:
        """Where a window's element lies; negative or beyond the extent in the padding."""
        return window * self.stride + element * self.dilation - self.padding


def _windows(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1,),
) -> tuple[Windows, ...]:
    """The windows that PyTorch's result has, one for each of the kernel's dimensions.

    How many there are in ``ceil_mode`` is seen from the result's shape.
    """
    rank = len(emit.shape) - 2 if len(emit.shape) > len(kernel_size) + 1 else len(emit.shape) - 1
    settings = (kernel_size, stride or kernel_size, padding, dilation)
    each = [list(values) * (rank if len(values) == 1 else 1) for values in map(_listed, settings)]
    extents = shape_of(x)[-rank:]
    return tuple(Windows(*of) for of in zip(extents, *each, emit.shape[-rank:], strict=True))


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
) -> relax.Expr:
    windows = _windows(emit, x, kernel_size, stride, padding, dilation)
    return _largest(emit, x, windows, emit.shape)


def _max_pool_with_indices(
    emit: Emit,
    x: relax.Expr,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
) -> tuple[relax.Expr | None, relax.Expr | None]:
    windows = _windows(emit, x, kernel_size, stride, padding, dilation)
    if emit.wanted <= {0}:
        return _largest(emit, x, windows, emit.shape), None

    def loops(data: te.Tensor) -> list[te.Tensor]:
        def elements(at: Sequence[Any], along: Sequence[Any]) -> tuple[list[Any], Any]:
            places = [w.position(i, k) for w, i, k in zip(windows, at, along, strict=True)]
            inside = [
                condition
                for w, place in zip(windows, places, strict=True)
                for condition in _is_inside(w, place)
            ]
            return places, tirx.all(*inside) if inside else None

        extents = [w.kernel for w in windows]
        return largest_and_where(data, extents, [w.count for w in windows], elements)

    both = emit.te(loops, x, name="max_pool_places")
    return emit(relax.TupleGetItem(both, 0)), emit(relax.TupleGetItem(both, 1))


def _is_inside(windows: Windows, place: Any) -> list[Any]:
    """The conditions that a place of some windows is an element and no padding."""
    conditions = [place >= 0] if windows.padding else []
    return [*conditions, place < windows.extent] if windows.behind else conditions


def _largest(
    emit: Emit, x: relax.Expr, windows: Sequence[Windows], shape: Sequence[int]
) -> relax.Expr:
    """Max pooling, without the places of the largest elements."""
    dtype = dtype_of(x)
    if not dtype.is_floating_point:
        return _reduced(emit, x, windows, te.max, torch.iinfo(dtype).min)
    batched, restored = _batched(emit, x, len(windows))
    pooled = _MAX[len(windows)](
        batched,
        pool_size=[w.kernel for w in windows],
        strides=[w.stride for w in windows],
        padding=[*(w.padding for w in windows), *(w.behind for w in windows)],
        dilation=[w.dilation for w in windows],
    )
    return restored(emit(pooled))


def _batched(
    emit: Emit, x: relax.Expr, rank: int
) -> tuple[relax.Expr, Callable[[relax.Expr], relax.Expr]]:
    """An input with a batch dimension, and what takes that away from a result."""
    shape = shape_of(x)
    if len(shape) == rank + 2:
        return x, lambda result: result
    return emit.reshape(x, (1, *shape)), lambda result: emit.reshape(result, emit.shape)


def avg_pool(
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
    plain = all(w.is_regular for w in windows) and divisor_override is None
    if plain and dtype_of(x).is_floating_point:
        batched, restored = _batched(emit, x, len(windows))
        pooled = _AVERAGE[len(windows)](
            batched,
            pool_size=[w.kernel for w in windows],
            strides=[w.stride for w in windows],
            padding=[*(w.padding for w in windows), *(w.behind for w in windows)],
            count_include_pad=count_include_pad,
        )
        return restored(emit(pooled))

    def divisor(*at: Any) -> Any:
        if divisor_override is not None:
            return divisor_override
        return math.prod(
            _elements(w, i, w.padding if count_include_pad else 0)
            for w, i in zip(windows, at[-len(windows) :], strict=True)
        )

    return _reduced(emit, x, windows, te.sum, 0, divisor)


def _elements(windows: Windows, window: Any, padding: int) -> Any:
    """How many positions a window has among the elements and so much padding at both ends."""
    start = windows.position(window, 0)
    end = tirx.min(start + windows.kernel, windows.extent + windows.padding)
    return tirx.min(end, windows.extent + padding) - tirx.max(start, -padding)


def _reduced(
    emit: Emit,
    x: relax.Expr,
    windows: Sequence[Windows],
    reduce: Callable[..., Any],
    outside: float,
    divisor: Callable[..., Any] | None = None,
) -> relax.Expr:
    """A reduction of the windows, with a value for the padding; sums of halves are float32."""
    dtype = dtype_of(x)
    wide = "float32" if dtype in _HALVES else str(x.ty.dtype)

    def loops(data: te.Tensor) -> te.Tensor:
        lead = len(data.shape) - len(windows)
        padded = topi.nn.pad(
            data,
            [*[0] * lead, *(w.padding for w in windows)],
            [*[0] * lead, *(w.behind for w in windows)],
            pad_value=tirx.const(outside, str(data.dtype)),
        )
        along = [te.reduce_axis((0, w.kernel), f"k{i}") for i, w in enumerate(windows)]

        def body(*at: Any) -> Any:
            places = [
                i * w.stride + k.var * w.dilation
                for w, i, k in zip(windows, at[lead:], along, strict=True)
            ]
            return reduce(padded(*at[:lead], *places).astype(wide), axis=along)

        shape = [*data.shape[:lead], *(w.count for w in windows)]
        result = te.compute(shape, body, name="windows")
        if divisor is not None:
            result = te.compute(
                shape, lambda *at: _quotient(result(*at), divisor(*at)), name="quotients"
            )
        if wide == str(data.dtype):
            return result
        return te.compute(shape, lambda *at: result(*at).astype(data.dtype), name="narrowed")

    return emit.te(loops, x, name="pool")


def _quotient(total: Any, divisor: Any) -> Any:
    """A sum by a count; of integers towards zero."""
    dtype = str(total.ty.dtype)
    divisor = tirx.const(divisor, dtype) if isinstance(divisor, int) else divisor.astype(dtype)
    return total / divisor if "float" in dtype else tirx.truncdiv(total, divisor)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    **overloads(
        _max_pool, _ATEN.max_pool1d.default, _ATEN.max_pool2d.default, _ATEN.max_pool3d.default
    ),
    **overloads(
        _max_pool_with_indices,
        _ATEN.max_pool2d_with_indices.default,
        _ATEN.max_pool3d_with_indices.default,
    ),
    **overloads(
        avg_pool, _ATEN.avg_pool1d.default, _ATEN.avg_pool2d.default, _ATEN.avg_pool3d.default
    ),
}
