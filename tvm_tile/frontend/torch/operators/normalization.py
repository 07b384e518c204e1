"""Normalization: by the statistics of a batch, a group, an instance or a row; softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from tvm import relax, te, tirx

from tvm_tile.frontend.torch.convert import Converters
from tvm_tile.frontend.torch.emit import Emit, axis_of, constant, dtype_of, shape_of

_HALVES = (torch.float16, torch.bfloat16)
Results = Sequence[relax.Expr | None]


def _layer_norm(
    emit: Emit,
    input: relax.Expr,
    normalized_shape: Sequence[int],
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    eps: float,
) -> Results:
    rank = len(shape_of(input))
    axes = list(range(rank - len(normalized_shape), rank))
    normalized: relax.Expr | None = None
    if 0 in emit.wanted:
        scale = _filled(emit, weight, 1, normalized_shape, dtype_of(input))
        shift = _filled(emit, bias, 0, normalized_shape, dtype_of(input))
        normalized = relax.op.nn.layer_norm(input, scale, shift, axes, eps)
    if emit.wanted <= {0}:
        return normalized, None, None
    return normalized, *_statistics(emit, input, axes, eps)


def _filled(
    emit: Emit, value: relax.Expr | None, number: float, shape: Sequence[int], dtype: torch.dtype
) -> relax.Expr:
    """A weight of the input's type, or one that changes nothing."""
    if value is not None:
        return emit.cast(value, dtype)
    return emit(relax.op.full(tuple(shape), constant(number, dtype)))


def _statistics(
    emit: Emit, x: relax.Expr, axes: Sequence[int], eps: float
) -> tuple[relax.Expr, relax.Expr]:
    """The second and third result of a normalization: the mean and the reciprocal deviation."""
    x = emit.wide(x)
    mean = emit(relax.op.mean(x, list(axes), keepdims=True))
    off = emit(relax.op.subtract(x, mean))
    variance = emit(relax.op.mean(emit(relax.op.multiply(off, off)), list(axes), keepdims=True))
    padded = emit(relax.op.add(variance, constant(eps, dtype_of(variance))))
    values = zip((mean, emit(relax.op.rsqrt(padded))), emit.results[1:3], strict=True)
    first, second = (
        emit.cast(emit.reshape(value, tuple(like.shape)), like.dtype) for value, like in values
    )
    return first, second


def _group_norm(
    emit: Emit,
    input: relax.Expr,
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> Results:
    shape = shape_of(input)
    normalized: relax.Expr | None = None
    if 0 in emit.wanted:
        # TVM types it for no bfloat16; its loops are in float32 for any half.
        dtype = dtype_of(input)
        computed = torch.float32 if dtype == torch.bfloat16 else dtype
        scale = _filled(emit, weight, 1, (C,), computed)
        shift = _filled(emit, bias, 0, (C,), computed)
        axes = list(range(2, len(shape)))
        wide = emit.cast(input, computed)
        normalized = relax.op.nn.group_norm(
            wide, scale, shift, num_groups=group, channel_axis=1, axes=axes, epsilon=eps
        )
        normalized = emit.cast(emit(normalized), dtype)
    if emit.wanted <= {0}:
        return normalized, None, None
    rows = emit.reshape(input, (N, group, math.prod(shape) // (N * group)))
    return normalized, *_statistics(emit, rows, (2,), eps)


def _inference_batch_norm(
    emit: Emit,
    input: relax.Expr,
    weight: relax.Expr | None,
    bias: relax.Expr | None,
    running_mean: relax.Expr,
    running_var: relax.Expr,
    momentum: float,
    eps: float,
) -> Results:
    channels = shape_of(input)[1:2]
    dtype = dtype_of(running_mean) if dtype_of(input) in _HALVES else dtype_of(input)
    wide = emit.cast(input, dtype)
    result = relax.op.nn.batch_norm(
        wide,
        _filled(emit, weight, 1, channels, dtype),
        _filled(emit, bias, 0, channels, dtype),
        emit.cast(running_mean, dtype),
        emit.cast(running_var, dtype),
        axis=1,
        epsilon=eps,
        training=False,
    )
    normalized = emit(relax.TupleGetItem(emit(result), 0))
    empty = [relax.op.zeros(tuple(r.shape), str(r.dtype)[6:]) for r in emit.results[1:]]
    return emit.cast(normalized, dtype_of(input)), *map(emit, empty)


def _along(
    function: Callable[..., relax.Expr], emit: Emit, x: relax.Expr, dim: int, half_to_float: bool
) -> relax.Expr:
    shape = shape_of(x)
    if half_to_float:
        x = emit.cast(x, torch.float32)
    if 0 in shape:
        return x
    rows = emit.reshape(x, shape or (1,))
    return emit.reshape(emit(function(rows, axis_of(dim, len(shape)))), shape)


def _safe_softmax(emit: Emit, x: relax.Expr, dim: int, dtype: torch.dtype | None) -> relax.Expr:
    """A softmax whose rows of nothing but minus infinity become zeros, as attention's do.

    ::

        most[i] = max(most[i], x[i, k]);  total[i] += exp(x[i, k] - most[i])
        y[i, k] = 0 if most[i] == -inf else exp(x[i, k] - most[i]) / total[i]
    """
    shape = shape_of(x) or (1,)
    axis = axis_of(dim, len(shape))
    rows = emit.reshape(emit.wide(emit.cast(x, emit.dtype)), shape)
    if 0 in shape:
        return emit.cast(rows, emit.dtype)
    reduced = (*shape[:axis], *shape[axis + 1 :])

    def row(at: Sequence[Any]) -> list[Any]:
        return [*at[:axis], *at[axis + 1 :]]

    def loops(x: te.Tensor) -> te.Tensor:
        def along(reduce: Any, values: te.Tensor, name: str) -> te.Tensor:
            k = te.reduce_axis((0, shape[axis]), "k")
            return te.compute(
                reduced,
                lambda *at: reduce(values(*at[:axis], k, *at[axis:]), axis=k),
                name=name,
            )

        lowest = tirx.const(-math.inf, str(x.dtype))
        largest = te.comm_reducer(lambda a, b: tirx.max(a, b), lambda _: lowest, name="largest")
        most = along(largest, x, "most")
        power = te.compute(shape, lambda *at: te.exp(x(*at) - most(*row(at))), name="power")
        total = along(te.sum, power, "total")

        def weight(*at: Any) -> Any:
            none = most(*row(at)) == lowest
            return tirx.Select(none, tirx.const(0, str(x.dtype)), power(*at) / total(*row(at)))

        return te.compute(shape, weight, name="weight")

    found = emit.te(loops, rows, name="safe_softmax")
    return emit.cast(emit.reshape(found, shape_of(x)), emit.dtype)


_ATEN = torch.ops.aten
CONVERTERS: Converters = {
    _ATEN.native_layer_norm.default: _layer_norm,
    _ATEN.native_group_norm.default: _group_norm,
    _ATEN._native_batch_norm_legit_no_training.default: _inference_batch_norm,
    _ATEN._softmax.default: partial(_along, relax.op.nn.softmax),
    _ATEN._log_softmax.default: partial(_along, relax.op.nn.log_softmax),
    _ATEN._safe_softmax.default: _safe_softmax,
}
