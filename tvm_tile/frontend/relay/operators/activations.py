"""Operators of Relay's neural networks that keep the shape: activations, softmax, losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.elementwise import widened
from tvm_tile.frontend.relay.values import (
    along,
    cast,
    clipped,
    constant,
    counted_axis,
    dtype_of,
    filled,
    is_float,
    reshaped,
    shape_of,
)


def _relu(call: OperatorCall) -> Value:
    (x,) = call.arguments
    dtype = dtype_of(x)
    if is_float(dtype):
        return call.emit(op.nn.relu(x))
    if dtype == "bool":
        raise NotImplementedError("elements of bool")
    return call.emit(op.maximum(x, constant(0, dtype)))


def _require_float(value: Value) -> None:
    if not is_float(dtype_of(value)):
        raise NotImplementedError(f"elements of {dtype_of(value)}")


def _leaky_relu(call: OperatorCall) -> Value:
    (x,) = call.arguments
    _require_float(x)
    slope = constant(float(call.attributes["alpha"]), dtype_of(x))
    return _below_zero(call, x, slope)


def _below_zero(call: OperatorCall, x: Value, slope: Value) -> Value:
    """Numbers that are not above zero times a slope."""
    is_above = call.emit(op.greater(x, constant(0, dtype_of(x))))
    return call.emit(op.where(is_above, x, call.emit(op.multiply(x, slope))))


def _prelu(call: OperatorCall) -> Value:
    x, slopes = call.arguments
    _require_float(x)
    return _below_zero(call, x, _spread(call, slopes, x))


def _spread(call: OperatorCall, vector: Value, x: Value) -> Value:
    """A vector that broadcasts along the axis of the attributes."""
    rank = len(shape_of(x))
    axis = counted_axis(int(call.attributes["axis"]), rank)
    (count,) = shape_of(vector)
    if count != shape_of(x)[axis]:
        raise ValueError(f"{count} numbers for an axis of {shape_of(x)[axis]}")
    if dtype_of(vector) != dtype_of(x):
        raise ValueError(f"operands of {dtype_of(x)} and {dtype_of(vector)}")
    wide = [count if place == axis else 1 for place in range(rank)]
    return reshaped(call, vector, wide)


def _bias_add(call: OperatorCall) -> Value:
    x, bias = call.arguments
    if dtype_of(x) == "bool":
        raise NotImplementedError("elements of bool")
    return call.emit(op.add(x, _spread(call, bias, x)))


def _dropout(call: OperatorCall) -> Value:
    """When a network runs, nothing is dropped."""
    (x,) = call.arguments
    return x, filled(call, shape_of(x), 1, dtype_of(x))


def _hard_swish(call: OperatorCall) -> Value:
    (x,) = call.arguments
    _require_float(x)
    dtype = dtype_of(x)
    moved = call.emit(op.add(x, constant(3, dtype)))
    product = call.emit(op.multiply(x, clipped(call, moved, 0, 6)))
    return call.emit(op.divide(product, constant(6, dtype)))


def _softmax(function: Callable[..., Value]) -> Converter:
    def convert(call: OperatorCall) -> Value:
        (x,) = call.arguments
        axis = counted_axis(int(call.attributes["axis"]), len(shape_of(x)))
        return widened(call, lambda wide: function(wide, axis), x)

    return convert


def _cross_entropy(call: OperatorCall) -> Value:
    """Cross entropy of predictions or of their logarithms, the mean over the rows."""
    predictions, targets = call.arguments
    _require_float(predictions)
    if shape_of(predictions) != shape_of(targets) or len(shape_of(targets)) != 2:
        raise ValueError("predictions and targets that are not matrices of one shape")
    if call.name == "nn.cross_entropy":
        predictions = widened(call, op.log, predictions)
    dtype = dtype_of(predictions)
    total = call.emit(op.sum(call.emit(op.multiply(predictions, targets))))
    rows = constant(shape_of(predictions)[0], dtype)
    return call.emit(op.divide(call.emit(op.negative(total)), rows))


def _nll_loss(call: OperatorCall) -> Value:
    """The negative log-likelihood of the targets' classes, each class with a weight."""
    predictions, targets, weights = call.arguments
    _require_float(predictions)
    dtype, shape = dtype_of(predictions), shape_of(predictions)
    reduction = call.attributes["reduction"]
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction {reduction!r}")
    axis = 0 if len(shape) == 1 else 1
    if shape_of(targets) != (*shape[:axis], *shape[axis + 1 :]):
        raise ValueError(f"targets of {list(shape_of(targets))} for {list(shape)}")
    numbers = cast(call, targets, "int64")
    wide = reshaped(call, numbers, (*shape[:axis], 1, *shape[axis + 1 :]))
    classes = along(constant(np.arange(shape[axis]), "int64"), axis, len(shape))
    is_meant = call.emit(op.equal(wide, call.emit(classes)))
    ignored = constant(int(call.attributes["ignore_index"]), "int64")
    is_meant = call.emit(op.logical_and(is_meant, call.emit(op.not_equal(wide, ignored))))
    spread = call.emit(along(weights, axis, len(shape)))
    none = constant(0, dtype)

    def chosen(values: Value) -> Value:
        return call.emit(op.sum(call.emit(op.where(is_meant, values, none)), axis))

    losses = call.emit(op.negative(chosen(call.emit(op.multiply(predictions, spread)))))
    if reduction == "none":
        return losses
    total = call.emit(op.sum(losses))
    if reduction == "sum":
        return total
    return call.emit(op.divide(total, call.emit(op.sum(chosen(spread)))))


CONVERTERS: dict[str, Converter] = {
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.bias_add": _bias_add,
    "nn.dropout": _dropout,
    "hardswish": _hard_swish,
    "nn.softmax": _softmax(op.nn.softmax),
    "nn.fast_softmax": _softmax(op.nn.softmax),
    "nn.log_softmax": _softmax(op.nn.log_softmax),
    "nn.cross_entropy": _cross_entropy,
    "nn.cross_entropy_with_logits": _cross_entropy,
    "nn.nll_loss": _nll_loss,
}
