"""Pooling: the largest or the average of windows, of one to three dimensions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax import op

from tvm_tile.frontend.ops.values import Value, dtype_of, shape_of
from tvm_tile.frontend.ops.windows import (
    AdaptiveParts,
    Windows,
    largest_and_where,
    over_windows,
    where_all,
)

_MAX = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVERAGE = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}
_HALVES = ("float16", "bfloat16")


def largest(builder: relax.BlockBuilder, x: Value, windows: Sequence[Windows]) -> Value:
    """The largest element of each window.

    Args:
        builder: where operators go.
        x: up to two dimensions, then those that have windows.
        windows: those of the last one to three dimensions.
    """
    if "float" in dtype_of(x):
        return _by_operator(builder, _MAX[len(windows)], x, windows)
    return reduced(builder, x, windows, te.max, tirx.min_value(dtype_of(x)).value)


def largest_with_places(
    builder: relax.BlockBuilder, x: Value, windows: Sequence[Windows | AdaptiveParts]
) -> tuple[Value, Value]:
    """The largest element of each window and, counted over the pooled dimensions, its place.

    See :func:`tvm_tile.frontend.ops.windows.largest_and_where`; places are int64.
    """

    def loops(data: te.Tensor) -> list[te.Tensor]:
        return largest_and_where(data, windows)

    both = builder.emit_te(loops, x, primfunc_name_hint="max_pool_places")
    return builder.emit(relax.TupleGetItem(both, 0)), builder.emit(relax.TupleGetItem(both, 1))


def average(
    builder: relax.BlockBuilder,
    x: Value,
    windows: Sequence[Windows],
    *,
    counts_padding: bool,
    divisor: int | None = None,
) -> Value:
    """Means of windows; of integers in their type, towards zero.

    Args:
        builder: where operators go.
        x: up to two dimensions, then those that have windows.
        windows: those of the last one to three dimensions.
        counts_padding: whether sums are divided by the number of elements and padding in a window,
            and not of elements alone; what is behind the padding never counts.
        divisor: divides sums in the place of a count.
    """
    # TVM's operator counts what lies behind the padding, too.
    is_regular = not counts_padding or all(w.behind <= w.after for w in windows)
    if is_regular and divisor is None and "float" in dtype_of(x):
        how = {"count_include_pad": counts_padding}
        return _by_operator(builder, _AVERAGE[len(windows)], x, windows, **how)

    def count(*at: Any) -> Any:
        if divisor is not None:
            return divisor
        return math.prod(
            w.elements(i, w.before, w.after) if counts_padding else w.elements(i)
            for w, i in zip(windows, at, strict=True)
        )

    return reduced(builder, x, windows, te.sum, 0, count)


def adaptive(
    builder: relax.BlockBuilder, x: Value, sizes: Sequence[int], *, takes_largest: bool
) -> Value:
    """The means or the largest elements of parts of nearly equal length.

    Args:
        builder: where operators go.
        x: any dimensions, then those that are cut into parts.
        sizes: how many parts the last dimensions have.
        takes_largest: whether the largest elements are wanted, and not means.
    """
    shape, rank = shape_of(x), len(sizes)
    pairs = list(zip(shape[-rank:], sizes, strict=True))
    if all(extent == count for extent, count in pairs):
        return x
    if set(sizes) == {1} and (takes_largest or "float" in dtype_of(x)):
        reduce = op.max if takes_largest else op.mean
        return builder.emit(reduce(x, list(range(len(shape) - rank, len(shape))), keepdims=True))
    if not any(extent % count for extent, count in pairs):
        even = [Windows(e, e // n, e // n, 0, 0, 1, n) for e, n in pairs]
        if takes_largest:
            return largest(builder, x, even)
        return average(builder, x, even, counts_padding=False)
    parts = [AdaptiveParts(*pair) for pair in pairs]
    if takes_largest:
        return reduced(builder, x, parts, te.max, tirx.min_value(dtype_of(x)).value)

    def count(*at: Any) -> Any:
        return math.prod(part.elements(i) for part, i in zip(parts, at, strict=True))

    return reduced(builder, x, parts, te.sum, 0, count)


def reduced(
    builder: relax.BlockBuilder,
    x: Value,
    windows: Sequence[Windows | AdaptiveParts],
    reduce: Callable[..., Any],
    outside: float,
    divisor: Callable[..., Any] | None = None,
) -> Value:
    """A reduction of each window, with a value for the padding; sums of halves are float32.

    Args:
        builder: where the loops go.
        x: any dimensions, then those that have windows.
        windows: those of the last dimensions.
        reduce: such as ``te.sum``.
        outside: the value of what does not belong to a window.
        divisor: from a window's numbers to what its result is divided by.
    """
    dtype = dtype_of(x)
    wide = "float32" if dtype in _HALVES else dtype

    def loops(data: te.Tensor) -> te.Tensor:
        def element(_: Any, value: Any, __: Any, inside: list[Any]) -> Any:
            return where_all(inside, value.astype(wide), tirx.const(outside, wide))

        total = over_windows(data, windows, "windows", element, reduce)
        if divisor is None and wide == dtype:
            return total

        def body(*at: Any) -> Any:
            value = total(*at)
            if divisor is not None:
                value = _quotient(value, divisor(*at[-len(windows) :]))
            return value.astype(dtype)

        return te.compute(total.shape, body, name="pooled")

    return builder.emit_te(loops, x, primfunc_name_hint="pool")


def _quotient(total: Any, divisor: Any) -> Any:
    """A sum by a count; of integers towards zero."""
    dtype = str(total.ty.dtype)
    divisor = tirx.const(divisor, dtype) if isinstance(divisor, int) else divisor.astype(dtype)
    return total / divisor if "float" in dtype else tirx.truncdiv(total, divisor)


def _by_operator(
    builder: relax.BlockBuilder,
    pool: Callable[..., Value],
    x: Value,
    windows: Sequence[Windows],
    **how: bool,
) -> Value:
    """By TVM's operator, which takes a batch of channels."""
    shape = shape_of(x)
    lead = shape[: -len(windows)]
    if len(lead) != 2:
        x = builder.emit(op.reshape(x, (*(1,) * (2 - len(lead)), *shape)))
    made = pool(
        x,
        pool_size=[w.kernel for w in windows],
        strides=[w.stride for w in windows],
        padding=[*(w.before for w in windows), *(w.behind for w in windows)],
        dilation=[w.dilation for w in windows],
        **how,
    )
    made = builder.emit(made)
    if len(lead) == 2:
        return made
    return builder.emit(op.reshape(made, (*lead, *(w.count for w in windows))))
