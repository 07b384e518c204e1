"""ONNX's operators that draw random numbers.

An operator's attribute ``seed`` is part of the key: two operators of other seeds draw other
numbers, and the model's own seed still changes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from tvm.relax import op

from tvm_tile.frontend.onnx.model import dtype_name
from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.onnx.rewrite import walk_nodes
from tvm_tile.frontend.ops.values import Value, constant, dtype_of, shape_of
from tvm_tile.frontend.random_state import STATE
from tvm_tile.graph.signature import RANDOM
from tvm_tile.loops.random import Draw, exponential, normal, uniform

ALWAYS_RANDOM = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Multinomial", "Bernoulli"),
    }
)
"""Operators that draw in each of their forms."""


def draws_numbers(graph: onnx.GraphProto) -> bool:
    """Whether a graph, or one within it, draws random numbers."""
    values = {tensor.name: tensor for tensor in graph.initializer}
    return any(
        node.op_type in ALWAYS_RANDOM or (node.op_type == "Dropout" and _trains(node, values))
        for node in walk_nodes(graph)
    )


NEXT_CALL = "next call of random numbers"
"""Output of a graph for the state that its random numbers leave behind."""


def with_random_state(graph: onnx.GraphProto) -> onnx.GraphProto:
    """A copy of a graph that takes the state of its random numbers, and returns the new one, behind
    all of its inputs and outputs."""
    result = onnx.GraphProto()
    result.CopyFrom(graph)
    for names, name in ((result.input, RANDOM), (result.output, NEXT_CALL)):
        shape = STATE.signature.shape
        names.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, shape))
    return result


def _trains(node: onnx.NodeProto, values: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a dropout drops anything, so far as its inputs are known."""
    ratio, mode = ([*node.input, "", ""][at] for at in (1, 2))
    known = [
        onnx.numpy_helper.to_array(values[name]).item() if name in values else True
        for name in (ratio, mode)
    ]
    return bool(mode) and all(known)


def convert_random(node: Node) -> Value:
    """RandomNormal, RandomUniform, and those of the shape of a tensor."""
    is_like = node.op_type.endswith("Like")
    shape = shape_of(node.inputs[0]) if is_like else tuple(map(int, node.attrs["shape"]))
    dtype = _type(node, dtype_of(node.inputs[0]) if is_like else "float32")
    wide = _wide(dtype)
    if "Normal" in node.op_type:
        scale, low = (float(node.attrs.get(*given)) for given in (("scale", 1.0), ("mean", 0.0)))
        drawn = node.emit(_drawn(node, normal(shape, wide)) * constant(scale, wide))
        return op.astype(drawn + constant(low, wide), dtype)
    low, high = (float(node.attrs.get(*given)) for given in (("low", 0.0), ("high", 1.0)))
    part = op.astype(_drawn(node, uniform(shape, dtype)), wide)
    drawn = op.astype(part * constant(high - low, wide) + constant(low, wide), dtype)
    drawn, first = node.emit(drawn), constant(low, dtype)
    # Rounding may have reached the end, which is not to be drawn.
    return op.where(op.greater_equal(drawn, constant(high, dtype)), first, drawn)


def convert_bernoulli(node: Node) -> Value:
    """Draw ones as likely as each element of the input says."""
    chance = node.inputs[0]
    wide = _wide(dtype_of(chance))
    drawn = _drawn(node, uniform(shape_of(chance), wide))
    return op.astype(op.less(drawn, op.astype(chance, wide)), _type(node, dtype_of(chance)))


def convert_multinomial(node: Node) -> Value:
    """The categories that come first in races, whose times are exponential: the largest of
    ``logits - log(times)``, again for each sample."""
    logits = node.inputs[0]
    rows, classes = shape_of(logits)
    wide = _wide(dtype_of(logits))
    samples = int(node.attrs.get("sample_size", 1))
    times = _drawn(node, exponential((rows, samples, classes), wide))
    scores = op.reshape(op.astype(logits, wide), (rows, 1, classes)) - op.log(times)
    return op.astype(op.argmax(node.emit(scores), 2), _type(node, "int32"))


def drop(node: Node, ratio: Value) -> tuple[Value, Value]:
    """A tensor some of whose elements are dropped, the others scaled, and which are left.

    Args:
        node: the dropout.
        ratio: how likely an element is dropped, a scalar of any floating-point type.
    """
    x = node.inputs[0]
    wide = _wide(dtype_of(x))
    ratio, one = op.astype(ratio, wide), constant(1.0, wide)
    kept = node.emit(op.greater_equal(_drawn(node, uniform(shape_of(x), wide)), ratio))
    scale = op.where(op.less(ratio, one), one / (one - ratio), constant(0.0, wide))
    scaled = op.astype(x, wide) * op.astype(kept, wide) * scale
    return node.emit(op.astype(scaled, dtype_of(x))), kept


def _drawn(node: Node, draw: Draw) -> Value:
    if node.draws is None:
        raise NotImplementedError("random numbers within a loop")
    return node.draws(node.builder, draw, _key(node.attrs.get("seed", 0)))


def _key(seed: Any) -> int:
    """32 bits of an operator's seed, an integer or a float32."""
    if isinstance(seed, int):
        return seed % 2**32
    return int(np.float32(seed).view(np.uint32))


def _type(node: Node, default: str) -> str:
    """The element type that the attribute ``dtype`` tells."""
    code = int(node.attrs.get("dtype", 0))
    return dtype_name(code) if code else default


def _wide(dtype: str) -> str:
    """The type in which numbers are drawn for results of another one."""
    return dtype if dtype == "float64" else "float32"
