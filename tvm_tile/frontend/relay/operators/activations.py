"""Operators of Relay's neural networks that keep the shape: activations, softmax, losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.ops.values import along, constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import (
    is_float,
    require_floats,
    require_numbers,
    require_one_type,
)


def _relu(call: OperatorCall, x: Value) -> Value:
    require_numbers(x)
    zero = constant(0, dtype_of(x))
    return call.emit(op.nn.relu(x) if is_float(dtype_of(x)) else op.maximum(x, zero))


def _leaky_relu(call: OperatorCall, x: Value, *, alpha: float) -> Value:
    return _below_zero(call, x, constant(alpha, dtype_of(x)))


def _prelu(call: OperatorCall, x: Value, slopes: Value, *, axis: int) -> Value:
    return _below_zero(call, x, _spread(call, slopes, x, axis))


def _below_zero(call: OperatorCall, x: Value, slope: Value) -> Value:
    """Numbers that are not above zero times a slope."""
    require_floats(x)
    is_above = op.greater(x, constant(0, dtype_of(x)))
    return call.emit(op.where(is_above, x, op.multiply(x, slope)))


def _spread(call: OperatorCall, vector: Value, x: Value, axis: int) -> Value:
    """A vector that broadcasts along an axis."""
    rank, (count,) = len(shape_of(x)), shape_of(vector)
    axis = counted_axis(axis, rank)
    if count != shape_of(x)[axis]:
        raise ValueError(f"{count} numbers for an axis of {shape_of(x)[axis]}")
    require_one_type(x, vector)
    return call.reshaped(vector, [count if place == axis else 1 for place in range(rank)])


def _bias_add(call: OperatorCall, x: Value, bias: Value, *, axis: int) -> Value:
    require_numbers(x)
    return call.emit(op.add(x, _spread(call, bias, x, axis)))


def _hard_swish(call: OperatorCall, x: Value) -> Value:
    require_floats(x)
    dtype = dtype_of(x)
    moved = call.emit(op.add(x, constant(3, dtype)))
    product = op.multiply(x, call.clipped(moved, 0, 6))
    return call.emit(op.divide(product, constant(6, dtype)))


def _softmax(function: Callable[..., Value]) -> Converter:
    def convert(call: OperatorCall, x: Value, *, axis: int) -> Value:
        own = counted_axis(axis, len(shape_of(x)))
        return call.widened(lambda wide: function(wide, own), x)

    return convert


def _cross_entropy(call: OperatorCall, predictions: Value, targets: Value) -> Value:
    """Cross entropy of predictions or of their logarithms, the mean over the rows."""
    require_floats(predictions)
    if shape_of(predictions) != shape_of(targets) or len(shape_of(targets)) != 2:
        raise ValueError("predictions and targets that are not matrices of one shape")
    if call.name == "nn.cross_entropy":
        predictions = call.widened(op.log, predictions)
    total = op.negative(op.sum(op.multiply(predictions, targets)))
    rows = constant(shape_of(predictions)[0], dtype_of(predictions))
    return call.emit(op.divide(total, rows))


def _nll_loss(
    call: OperatorCall, predictions: Value, targets: Value, weights: Value, *, reduction: str
) -> Value:
    """The negative log-likelihood of the targets' classes, each class with a weight."""
    require_floats(predictions)
    dtype, shape = dtype_of(predictions), shape_of(predictions)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction {reduction!r}")
    axis = 0 if len(shape) == 1 else 1
    if shape_of(targets) != (*shape[:axis], *shape[axis + 1 :]):
        raise ValueError(f"targets of {list(shape_of(targets))} for {list(shape)}")
    numbers = call.cast(targets, "int64")
    wide = call.reshaped(numbers, (*shape[:axis], 1, *shape[axis + 1 :]))
    classes = along(constant(np.arange(shape[axis]), "int64"), axis, len(shape))
    is_kept = op.not_equal(wide, constant(call.attributes["ignore_index"], "int64"))
    is_meant = call.emit(op.logical_and(op.equal(wide, classes), is_kept))
    spread = call.emit(along(weights, axis, len(shape)))

    def chosen(values: Value) -> Value:
        return op.sum(op.where(is_meant, values, constant(0, dtype)), axis)

    losses = call.emit(op.negative(chosen(op.multiply(predictions, spread))))
    if reduction == "none":
        return losses
    total = op.sum(losses)
    return call.emit(total if reduction == "sum" else op.divide(total, op.sum(chosen(spread))))


CONVERTERS: dict[str, Converter] = {
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "nn.bias_add": _bias_add,
    # When a network runs, nothing is dropped.
    "nn.dropout": lambda call, x: (x, call.filled(shape_of(x), 1, dtype_of(x))),
    "hardswish": _hard_swish,
    **dict.fromkeys(("nn.softmax", "nn.fast_softmax"), _softmax(op.nn.softmax)),
    "nn.log_softmax": _softmax(op.nn.log_softmax),
    **dict.fromkeys(("nn.cross_entropy", "nn.cross_entropy_with_logits"), _cross_entropy),
    "nn.nll_loss": _nll_loss,
}
