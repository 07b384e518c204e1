"""Normalizations by the statistics of batches, layers, groups and instances."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import topi
from tvm.relax import op

from tvm_tile.frontend.ops.values import along, constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import counted_axes, is_float, wide_type


def _require_float(x: Value) -> None:
    if not is_float(dtype_of(x)):
        raise NotImplementedError(f"a norm of {dtype_of(x)}")


def _scale_and_shift(call: OperatorCall, channels: int) -> tuple[Value, Value]:
    """The second and the third argument; one and zero where the flags say to ignore them."""
    _, gamma, beta = call.arguments[:3]
    dtype = dtype_of(call.arguments[0])
    if not call.attributes["scale"]:
        gamma = call.filled((channels,), 1, dtype)
    if not call.attributes["center"]:
        beta = call.filled((channels,), 0, dtype)
    return call.cast(gamma, dtype), call.cast(beta, dtype)


def _batch_norm(
    call: OperatorCall, x: Value, *moments: Value, axis: int, epsilon: float
) -> tuple[Value, Value, Value]:
    _require_float(x)
    *_, mean, variance = moments
    shape, dtype = shape_of(x), dtype_of(x)
    axis = counted_axis(axis, len(shape))
    wide = wide_type(dtype)
    pair = _scale_and_shift(call, shape[axis])
    value, gamma, beta, center, square = (call.cast(v, wide) for v in (x, *pair, mean, variance))
    factor = call.emit(op.divide(gamma, op.sqrt(op.add(square, constant(epsilon, wide)))))
    shift = call.emit(op.subtract(beta, op.multiply(center, factor)))
    scaled = op.multiply(value, along(factor, axis, len(shape)))
    result = call.emit(op.add(scaled, along(shift, axis, len(shape))))
    return call.cast(result, dtype), mean, variance


def _layer_norm(call: OperatorCall, x: Value, *_: Value, axis: int, epsilon: float) -> Value:
    _require_float(x)
    shape, dtype = shape_of(x), dtype_of(x)
    axis = counted_axis(axis, len(shape))
    gamma, beta = _scale_and_shift(call, shape[axis])
    if dtype in ("float16", "float32"):
        return call.emit(op.nn.layer_norm(x, gamma, beta, [axis], epsilon))
    # TVM's takes no others.
    wide = wide_type(dtype)
    value, gamma, beta = (call.cast(one, wide) for one in (x, gamma, beta))
    apart = call.emit(op.subtract(value, op.mean(value, [axis], keepdims=True)))
    squares = op.mean(op.multiply(apart, apart), [axis], keepdims=True)
    spread = op.sqrt(op.add(squares, constant(epsilon, wide)))
    scaled = op.multiply(op.divide(apart, spread), along(gamma, axis, len(shape)))
    return call.cast(call.emit(op.add(scaled, along(beta, axis, len(shape)))), dtype)


def _norm_of_groups(
    call: OperatorCall, x: Value, *_: Value, axis: int, epsilon: float, num_groups: int = 0
) -> Value:
    """Normalize each group of channels, or each channel."""
    _require_float(x)
    shape, by_channel = shape_of(x), call.name == "nn.instance_norm"
    axis = counted_axis(axis, len(shape))
    if axis == 0 or not (by_channel or (num_groups > 0 and shape[axis] % num_groups == 0)):
        raise ValueError(f"{num_groups} groups along axis {axis} of a tensor of {list(shape)}")
    order = [0, axis, *(i for i in range(1, len(shape)) if i != axis)]
    data = call.permuted(x, order)
    operands, rest = (data, *_scale_and_shift(call, shape[axis])), list(range(2, len(shape)))
    if by_channel:
        made = op.nn.instance_norm(*operands, 1, rest, epsilon)
    else:
        made = op.nn.group_norm(*operands, num_groups, 1, rest, epsilon)
    return call.permuted(call.emit(made), np.argsort(order).tolist())


def _l2_normalize(
    call: OperatorCall, x: Value, *, axis: tuple[int, ...] | None, eps: float
) -> Value:
    _require_float(x)
    axes = list(counted_axes(axis or None, len(shape_of(x))))

    def normalized(value: Value) -> Value:
        squares = op.sum(op.multiply(value, value), axes, keepdims=True)
        least = constant(eps, wide_type(dtype_of(x)))
        return op.divide(value, op.sqrt(op.maximum(squares, least)))

    return call.widened(normalized, x)


def _lrn(
    call: OperatorCall, x: Value, *, size: int, axis: int, alpha: float, beta: float, bias: float
) -> Value:
    _require_float(x)
    rank = len(shape_of(x))
    own = counted_axis(axis, rank)
    if rank != 4 or own not in (1, 3) or size % 2 == 0:
        raise NotImplementedError(f"windows of {size} along axis {own} of {rank} dimensions")
    loops = partial(topi.nn.lrn, size=size, axis=own, alpha=alpha, beta=beta, bias=bias)
    return call.widened(lambda wide: call.compute(loops, wide, name="lrn"), x)


CONVERTERS: dict[str, Converter] = {
    "nn.batch_norm": _batch_norm,
    **dict.fromkeys(("nn.group_norm", "nn.instance_norm"), _norm_of_groups),
    "nn.l2_normalize": _l2_normalize,
    "nn.layer_norm": _layer_norm,
    "nn.lrn": _lrn,
}
