"""ONNX's optimizers, and normalization by a batch's own statistics."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.onnx.random import drop
from tvm_tile.frontend.ops.values import Value, along, constant, dtype_of, shape_of


def convert_batch_norm(node: Node) -> Value | None:
    """BatchNormalization by the statistics of its input; ``None`` for that by given ones."""
    if not node.attrs.get("training_mode", 0):
        return None
    x, scale, bias, mean, variance = node.inputs
    if node.opset < 14:
        raise NotImplementedError("training_mode before opset 14")
    rank = len(x.ty.shape)
    axes = [i for i in range(rank) if i != 1]
    # In the statistics' type, as ONNX has it; squares of differences do not cancel.
    wide = dtype_of(mean)
    data = node.emit(op.astype(x, wide))
    current = node.emit(op.mean(data, axes))
    shifted = node.emit(data - along(current, 1, rank))
    spread = node.emit(op.mean(shifted * shifted, axes))
    epsilon = constant(float(node.attrs.get("epsilon", 1e-5)), wide)
    factor = node.emit(op.astype(scale, wide) / op.sqrt(spread + epsilon))
    shift = node.emit(op.astype(bias, wide))
    result = node.emit(shifted * along(factor, 1, rank) + along(shift, 1, rank))
    result = node.emit(op.astype(result, dtype_of(x)))
    if node.results == 1:
        return result
    momentum = float(node.attrs.get("momentum", 0.9))
    kept, added = constant(momentum, wide), constant(1 - momentum, wide)
    pairs = ((mean, current), (variance, spread))
    return relax.Tuple([result, *(node.emit(old * kept + new * added) for old, new in pairs)])


def convert_dropout(node: Node) -> Value | None:
    """Dropout, and the mask of what is kept; in inference: what comes in, and a mask of ones.

    Raises:
        NotImplementedError: the node is for training, and written for an opset before 7.
    """
    training = node.parameter(2, "a training mode")
    ratio = node.constant(1)
    is_kept = ratio is not None and float(ratio.item()) == 0
    if training is not None and bool(training.item()) and not is_kept:
        usual = constant(0.5, "float32")
        dropped, kept = drop(node, usual if node.input(1) is None else node.input(1))
        return dropped if node.results == 1 else relax.Tuple([dropped, kept])
    if node.opset < 7 and not node.attrs.get("is_test", 0):
        raise NotImplementedError("is_test=0, which drops elements at random")
    if node.results == 1:
        return node.inputs[0]
    mask = "bool" if node.opset >= 10 else dtype_of(node.inputs[0])
    return relax.Tuple([node.inputs[0], op.ones(shape_of(node.inputs[0]), mask)])


def convert_optimizer(node: Node) -> Value:
    """Adagrad, Adam or Momentum of ``ai.onnx.preview.training``, of any number of tensors."""
    states = {"Adagrad": 1, "Adam": 2, "Momentum": 1}[node.op_type]
    rate, step, *tensors = node.inputs
    count = len(tensors) // (2 + states)
    if count * (2 + states) != len(tensors) or not count:
        raise ValueError(f"{len(tensors)} tensors for {node.op_type}")
    step = node.emit(op.astype(step, dtype_of(tensors[0])))
    updated = [
        _updated(node, rate, step, *tensors[i::count])  # value, gradient, states
        for i in range(count)
    ]
    by_kind = zip(*updated, strict=True)
    return relax.Tuple([node.emit(value) for kind in by_kind for value in kind])


def _updated(
    node: Node, rate: Value, step: Value, x: Value, gradient: Value, *states: Value
) -> tuple[Value, ...]:
    """The new value and the new states of one tensor."""
    one, zero = constant(1, dtype_of(x)), constant(0, dtype_of(x))

    def attribute(name: str, default: float = 0.0) -> Value:
        return constant(float(node.attrs.get(name, default)), dtype_of(x))

    gradient = node.emit(attribute("norm_coefficient") * x + gradient)
    if node.op_type == "Adagrad":
        slowed = rate / (one + step * attribute("decay_factor"))
        sums = node.emit(states[0] + gradient * gradient)
        return x - slowed * gradient / (op.sqrt(sums) + attribute("epsilon", 1e-6)), sums
    started = node.emit(step > zero)
    if node.op_type == "Momentum":
        alpha, beta = attribute("alpha"), op.where(started, attribute("beta"), one)
        speed = node.emit(alpha * states[0] + beta * gradient)
        is_nesterov = node.text("mode", "standard") == "nesterov"
        return x - rate * (gradient + alpha * speed if is_nesterov else speed), speed
    alpha, beta = attribute("alpha", 0.9), attribute("beta", 0.999)
    first = node.emit(alpha * states[0] + (one - alpha) * gradient)
    second = node.emit(beta * states[1] + (one - beta) * (gradient * gradient))
    bias = op.sqrt(one - op.power(beta, step)) / (one - op.power(alpha, step))
    factor = op.where(started, rate * bias, rate)
    moved = x - factor * (first / (op.sqrt(second) + attribute("epsilon", 1e-6)))
    return (one - attribute("norm_coefficient_post")) * moved, first, second
