"""Normalizations by the statistics of batches, layers, groups and instances."""

from __future__ import annotations

from functools import partial

import numpy as np
from tvm import topi
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    along,
    cast,
    constant,
    counted_axes,
    counted_axis,
    dtype_of,
    filled,
    is_float,
    permuted,
    shape_of,
)

_HALVES = ("float16", "bfloat16")


def _require_float(x: Value) -> None:
    if not is_float(dtype_of(x)):
        raise NotImplementedError(f"a norm of {dtype_of(x)}")


def _scale_and_shift(call: OperatorCall, channels: int) -> tuple[Value, Value]:
    """The second and the third argument; one and zero where the flags say to ignore them."""
    gamma, beta = call.arguments[1:3]
    dtype = dtype_of(call.arguments[0])
    if not call.attributes["scale"]:
        gamma = filled(call, (channels,), 1, dtype)
    if not call.attributes["center"]:
        beta = filled(call, (channels,), 0, dtype)
    return cast(call, gamma, dtype), cast(call, beta, dtype)


def _batch_norm(call: OperatorCall) -> tuple[Value, Value, Value]:
    x, _, _, mean, variance = call.arguments
    _require_float(x)
    rank = len(shape_of(x))
    axis = counted_axis(int(call.attributes["axis"]), rank)
    dtype = dtype_of(x)
    wide = "float32" if dtype in _HALVES else dtype
    gamma, beta = (cast(call, value, wide) for value in _scale_and_shift(call, shape_of(x)[axis]))
    epsilon = constant(float(call.attributes["epsilon"]), wide)
    spread = call.emit(op.sqrt(op.add(cast(call, variance, wide), epsilon)))
    factor = call.emit(op.divide(gamma, spread))
    shift = call.emit(op.subtract(beta, op.multiply(cast(call, mean, wide), factor)))
    scaled = op.multiply(cast(call, x, wide), along(factor, axis, rank))
    result = call.emit(op.add(scaled, along(shift, axis, rank)))
    return cast(call, result, dtype), mean, variance


def _layer_norm(call: OperatorCall) -> Value:
    x = call.arguments[0]
    _require_float(x)
    shape, dtype = shape_of(x), dtype_of(x)
    axis = counted_axis(int(call.attributes["axis"]), len(shape))
    gamma, beta = _scale_and_shift(call, shape[axis])
    epsilon = float(call.attributes["epsilon"])
    if dtype in ("float16", "float32"):
        return call.emit(op.nn.layer_norm(x, gamma, beta, [axis], epsilon))
    # TVM's takes no others.
    wide = "float64" if dtype == "float64" else "float32"
    value, gamma, beta = (cast(call, one, wide) for one in (x, gamma, beta))
    apart = call.emit(op.subtract(value, op.mean(value, [axis], keepdims=True)))
    squares = op.mean(op.multiply(apart, apart), [axis], keepdims=True)
    spread = op.sqrt(op.add(squares, constant(epsilon, wide)))
    scaled = op.multiply(op.divide(apart, spread), along(gamma, axis, len(shape)))
    return cast(call, call.emit(op.add(scaled, along(beta, axis, len(shape)))), dtype)


def _norm_of_groups(call: OperatorCall, groups: int | None) -> Value:
    """Normalize each group of channels; with ``None`` each channel is a group."""
    x = call.arguments[0]
    _require_float(x)
    shape = shape_of(x)
    axis = counted_axis(int(call.attributes["axis"]), len(shape))
    if axis == 0 or (groups is not None and (groups < 1 or shape[axis] % groups)):
        raise ValueError(f"{groups} groups along axis {axis} of a tensor of {list(shape)}")
    gamma, beta = _scale_and_shift(call, shape[axis])
    order = [0, axis, *(i for i in range(1, len(shape)) if i != axis)]
    data = permuted(call, x, order)
    rest, epsilon = list(range(2, len(shape))), float(call.attributes["epsilon"])
    if groups is None:
        made = op.nn.instance_norm(data, gamma, beta, 1, rest, epsilon)
    else:
        made = op.nn.group_norm(data, gamma, beta, groups, 1, rest, epsilon)
    return permuted(call, call.emit(made), np.argsort(order).tolist())


def _instance_norm(call: OperatorCall) -> Value:
    return _norm_of_groups(call, None)


def _group_norm(call: OperatorCall) -> Value:
    return _norm_of_groups(call, int(call.attributes["num_groups"]))


def _l2_normalize(call: OperatorCall) -> Value:
    (x,) = call.arguments
    _require_float(x)
    dtype = dtype_of(x)
    wide = "float32" if dtype in _HALVES else dtype
    axes = counted_axes(call.attributes["axis"] or None, len(shape_of(x)))
    value = cast(call, x, wide)
    squares = call.emit(op.sum(op.multiply(value, value), list(axes), keepdims=True))
    least = op.maximum(squares, constant(float(call.attributes["eps"]), wide))
    return cast(call, call.emit(op.divide(value, op.sqrt(least))), dtype)


def _lrn(call: OperatorCall) -> Value:
    (x,) = call.arguments
    _require_float(x)
    attributes = call.attributes
    rank, dtype = len(shape_of(x)), dtype_of(x)
    axis, size = counted_axis(int(attributes["axis"]), rank), int(attributes["size"])
    if rank != 4 or axis not in (1, 3) or size % 2 == 0:
        raise NotImplementedError(f"windows of {size} along axis {axis} of {rank} dimensions")
    loops = partial(
        topi.nn.lrn,
        size=size,
        axis=axis,
        alpha=float(attributes["alpha"]),
        beta=float(attributes["beta"]),
        bias=float(attributes["bias"]),
    )
    wide = "float32" if dtype in _HALVES else dtype
    return cast(call, call.compute(loops, cast(call, x, wide), name="lrn"), dtype)


CONVERTERS: dict[str, Converter] = {
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.l2_normalize": _l2_normalize,
    "nn.layer_norm": _layer_norm,
    "nn.lrn": _lrn,
}
