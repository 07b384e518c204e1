"""Define ONNX Runtime's norms and embeddings by standard operators."""

from __future__ import annotations

import numpy as np

from tvm_tile.frontend.onnx.microsoft.function_body import FunctionBody

_LAYER_NORM_SINCE = 17  # opset
_EPSILON = 1e-12  # ONNX Runtime's, where a node has none


def _layer_norm(b: FunctionBody, x: str, gamma: str, beta: str, epsilon: float) -> str:
    """Numbers less their mean, over their deviation, along the last axis."""
    if b.opset >= _LAYER_NORM_SINCE:
        return str(b("LayerNormalization", x, gamma, beta, axis=-1, epsilon=epsilon))
    return b.add(_normalized(b, x, gamma, epsilon, [-1], is_centred=True)[0], beta)


def _normalized(
    b: FunctionBody, x: str, gamma: str, epsilon: float, axes: list[int], *, is_centred: bool
) -> tuple[str, str, str]:
    """The result, means, and one over deviations; in float32, as ONNX Runtime computes."""
    dtype = b.real
    is_half = dtype.itemsize < np.dtype(np.float32).itemsize
    wide = b.cast(x, np.float32) if is_half else x
    mean = b.reduced("ReduceMean", wide, axes) if is_centred else ""
    centred = b("Sub", wide, mean) if is_centred else wide
    square = b.reduced("ReduceMean", b("Mul", centred, centred), axes)
    limit = np.array(epsilon, np.float32 if is_half else dtype)
    deviation = b("Sqrt", b("Add", square, limit))
    normal = b("Div", centred, deviation)
    scaled = b("Mul", b.cast(normal, dtype) if is_half else normal, gamma)
    return scaled, mean, b("Reciprocal", deviation)


def _axes(b: FunctionBody) -> list[int]:
    axis = int(b.attribute("axis", -1))
    return list(range(axis if axis < 0 else axis - len(b.shape(b.input(0))), 0))


def write_layer_norm(b: FunctionBody) -> tuple[str, ...]:
    """LayerNormalization in a model of an opset that lacks it."""
    x, gamma, beta = b.inputs(3)
    epsilon = b.attribute("epsilon", 1e-5)
    scaled, *others = _normalized(b, x, gamma, epsilon, _axes(b), is_centred=True)
    return b.add(scaled, beta), *others


def write_rms_norm(b: FunctionBody) -> tuple[str, ...]:
    """SimplifiedLayerNormalization: numbers over the root of their squares' mean."""
    epsilon = b.attribute("epsilon", 1e-5)
    x, gamma = b.inputs(2)
    scaled, _, inverse = _normalized(b, x, gamma, epsilon, _axes(b), is_centred=False)
    return scaled, inverse


def write_skip_layer_norm(b: FunctionBody) -> tuple[str, ...]:
    """SkipLayerNormalization: the norm of a sum, and the sum."""
    x, skip, gamma, beta, bias = b.inputs(5)
    total = b.add(b("Add", x, skip), bias)
    return _behind_skip(
        b, _layer_norm(b, total, gamma, beta, b.attribute("epsilon", _EPSILON)), total
    )


def write_skip_rms_norm(b: FunctionBody) -> tuple[str, ...]:
    """SkipSimplifiedLayerNormalization: the norm of a sum, and the sum."""
    x, skip, gamma, bias = b.inputs(4)
    total = b.add(b("Add", x, skip), bias)
    epsilon = b.attribute("epsilon", _EPSILON)
    return _behind_skip(b, _normalized(b, total, gamma, epsilon, [-1], is_centred=False)[0], total)


def _behind_skip(b: FunctionBody, result: str, total: str) -> tuple[str, ...]:
    b.require_absent({"the output mean": b.returns(1), "the output inv_std_var": b.returns(2)})
    return result, "", "", total


def write_embeddings(b: FunctionBody) -> tuple[str, ...]:
    """EmbedLayerNormalization: the norm of embeddings' sum, numbers of words, and the sum."""
    ids, segments, words, positions, kinds, gamma, beta, mask, places = b.inputs(9)
    batch, length = b.shape(ids)
    at = b("Gather", positions, places) if places else b.part(positions, 0, length, 0)
    total = b("Add", b("Gather", words, ids), at)
    if segments:
        total = b("Add", total, b("Gather", kinds, segments))
    if mask:
        count = b.reduced("ReduceSum", mask, [1], keepdims=0)
    else:
        count = b.constant(np.zeros(batch, np.int32))
    return _layer_norm(b, total, gamma, beta, b.attribute("epsilon", _EPSILON)), count, total
