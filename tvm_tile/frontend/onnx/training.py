"""ONNX's optimizers, and normalization by a batch's own statistics."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
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
    shifted = node.emit(op.subtract(data, along(current, 1, rank)))
    spread = node.emit(op.mean(op.multiply(shifted, shifted), axes))
    epsilon = constant(float(node.attrs.get("epsilon", 1e-5)), wide)
    factor = op.divide(op.astype(scale, wide), op.sqrt(op.add(spread, epsilon)))
    result = op.multiply(shifted, along(node.emit(factor), 1, rank))
    result = op.add(result, along(node.emit(op.astype(bias, wide)), 1, rank))
    momentum = float(node.attrs.get("momentum", 0.9))

    def running(old: Value, new: Value) -> Value:
        kept, added = constant(momentum, wide), constant(1 - momentum, wide)
        return node.emit(op.add(op.multiply(old, kept), op.multiply(new, added)))

    result = node.emit(op.astype(node.emit(result), dtype_of(x)))
    if node.results == 1:
        return result
    return relax.Tuple([result, running(mean, current), running(variance, spread)])


def convert_dropout(node: Node) -> Value | None:
    """Dropout in inference: what comes in, and a mask that keeps everything.

    Raises:
        NotImplementedError: the node is for training, which is random.
    """
    training = node.parameter(2, "a training mode")
    ratio = node.constant(1)
    is_kept = ratio is not None and float(ratio.item()) == 0
    if training is not None and bool(training.item()) and not is_kept:
        raise NotImplementedError("training_mode, which drops elements at random")
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
    dtype = dtype_of(x)

    def number(value: float) -> Value:
        return constant(value, dtype)

    def attribute(name: str, default: float = 0.0) -> Value:
        return number(float(node.attrs.get(name, default)))

    def share(value: Value) -> Value:
        return op.subtract(number(1), value)

    decayed = op.multiply(attribute("norm_coefficient"), x)
    gradient = node.emit(op.add(decayed, gradient))
    if node.op_type == "Adagrad":
        slowed = op.add(number(1), op.multiply(step, attribute("decay_factor")))
        sums = node.emit(op.add(states[0], op.multiply(gradient, gradient)))
        root = op.add(op.sqrt(sums), attribute("epsilon", 1e-6))
        moved = op.divide(op.multiply(op.divide(rate, slowed), gradient), root)
        return op.subtract(x, moved), sums
    started = node.emit(op.greater(step, number(0)))
    if node.op_type == "Momentum":
        alpha = attribute("alpha")
        beta = op.where(started, attribute("beta"), number(1))
        speed = node.emit(op.add(op.multiply(alpha, states[0]), op.multiply(beta, gradient)))
        way = speed
        if node.text("mode", "standard") == "nesterov":
            way = op.add(gradient, op.multiply(alpha, speed))
        return op.subtract(x, op.multiply(rate, way)), speed
    alpha, beta = attribute("alpha", 0.9), attribute("beta", 0.999)
    first = op.add(op.multiply(alpha, states[0]), op.multiply(share(alpha), gradient))
    square = op.multiply(gradient, gradient)
    second = op.add(op.multiply(beta, states[1]), op.multiply(share(beta), square))
    first, second = node.emit(first), node.emit(second)
    root = op.add(op.sqrt(second), attribute("epsilon", 1e-6))
    bias = op.divide(op.sqrt(share(op.power(beta, step))), share(op.power(alpha, step)))
    factor = op.where(started, op.multiply(rate, bias), rate)
    moved = op.subtract(x, op.multiply(factor, op.divide(first, root)))
    return op.multiply(share(attribute("norm_coefficient_post")), moved), first, second
