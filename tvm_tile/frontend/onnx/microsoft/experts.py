"""Define mixtures of experts: a few products of each token, with matrices that are chosen for it.

A product looks its matrix up among those of all experts, by a number that is known at run time. No
matrix is copied for that, and rows of one expert are multiplied side by side: see
:class:`~tvm_tile.passes.GroupProducts`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tvm_tile.frontend.onnx.microsoft.function_body import FunctionBody
from tvm_tile.frontend.onnx.microsoft.numbers import gelu

_BYTE = 8  # bits
_BITS = (2, 4, 8)
# Inputs of codes that are floating-point numbers, by their places.
_FLOAT_CODES = {
    "fc1_global_scale": 15,
    "fc2_global_scale": 16,
    "fc1_act_scale": 17,
    "fc2_act_scale": 18,
    "fc1_act_block_scale": 19,
    "fc2_act_block_scale": 20,
}


@dataclass(frozen=True, slots=True)
class _Layer:
    """A layer of all experts.

    Attributes:
        weights: (experts, outputs, inputs): numbers, or codes packed along inputs.
        bias: (experts, outputs); empty where there is none.
        scales: (experts, outputs) or (experts, outputs, blocks); empty where weights are numbers.
        zeros: zero points, packed along the last axis of ``scales``; empty where they are the
            middle of all codes.
        bits: width of a code; 0 where weights are numbers.
    """

    weights: str
    bias: str
    scales: str = ""
    zeros: str = ""
    bits: int = 0


def write_experts(b: FunctionBody) -> tuple[str, ...]:
    """MoE: the weighted sum of what the ``k`` best experts make of a token."""
    layers = [_Layer(b.input(place), b.input(place + 1)) for place in (2, 4, 6)]
    return (_mixture(b, layers, router_weights=""),)


def write_coded_experts(b: FunctionBody) -> tuple[str, ...]:
    """QMoE, whose weights are codes of 2, 4 or 8 bits that lie as they were made."""
    b.require_absent({name: b.input(place) for name, place in _FLOAT_CODES.items()})
    kind, packed = b.attribute("quant_type", "int"), b.attribute("weights_prepacked", -1)
    if kind != "int":
        raise NotImplementedError(f"quant_type {kind}")
    if packed != 0:  # ONNX Runtime takes -1 for codes of rows on a CPU, and for tiles on a GPU
        raise NotImplementedError(
            f"weights_prepacked {packed}, by which codes lie as one device wants them (set the "
            "attribute to 0 if they lie row by row, as they were made)"
        )
    router_weights = b.input(14)
    if not router_weights and b.attribute("normalize_routing_weights", 0) != 1:
        raise NotImplementedError(
            "normalize_routing_weights 0, which ONNX Runtime's kernels for CPUs take for 1"
        )
    bits = b.attribute("expert_weight_bits", 4)
    layers = [
        _Layer(
            weights=b.input(place),
            bias=b.input(place + 2),
            scales=b.input(place + 1),
            zeros=b.input(11 + number),
            bits=int(b.attribute(f"fc{number + 1}_expert_weight_bits", bits)),
        )
        for number, place in enumerate((2, 5, 8))
    ]
    return (_mixture(b, layers, router_weights),)


def _mixture(b: FunctionBody, layers: list[_Layer], router_weights: str) -> str:
    """What the experts of each token make of it, added up from the best one on."""
    b.require_absent({"use_sparse_mixer": b.attribute("use_sparse_mixer", 0)})
    x, router = b.inputs(2)
    extents, (tokens, experts), chosen = b.shape(x), b.shape(router), int(b.attribute("k", 1))
    hidden = extents[-1]
    _require_shape("router_probs", (tokens, experts), (math.prod(extents[:-1]), experts))
    weights, ids = _routes(b, router, router_weights, chosen)
    rows = b("Expand", b("Reshape", x, [tokens, 1, hidden]), [tokens, chosen, hidden])
    rows = b("Reshape", rows, [tokens * chosen, 1, hidden])
    first, second, third = layers
    inner = b.shape(second.weights)[2] * (_BYTE // second.bits if second.bits else 1)
    is_gated = b.attribute("activation_type") in ("swiglu", "geglu")
    is_fused = is_gated and b.attribute("swiglu_fusion", 0) != 0
    y = _product(b, first, rows, ids, (experts, 2 * inner if is_fused else inner, hidden))
    beside = ""
    if third.weights:
        beside = _product(b, third, rows, ids, (experts, inner, hidden))
    if is_fused:
        b.require_absent({"fc3_experts_weights": beside})
        y, beside = _halves(b, y, inner)
    y = _product(b, second, _activated(b, y, beside), ids, (experts, hidden, inner))
    outer = [*extents[:-1], chosen]
    y = b("Reshape", b.cast(y, np.float32), [*outer, hidden])
    y = b("Mul", y, b("Reshape", weights, [*outer, 1]))
    return b.cast(b.reduced("ReduceSum", y, [len(extents) - 1], keepdims=0), b.real)


def _routes(b: FunctionBody, router: str, other: str, chosen: int) -> tuple[str, str]:
    """How much each token's experts count, (tokens, chosen) in float32, and their numbers in a row.

    ``router`` has the scores by which they are chosen, (tokens, experts); ``other`` what they
    count, or is empty where the scores say that, too.
    """
    is_normalized = b.attribute("normalize_routing_weights", 0) == 1
    has_shares = not is_normalized and not other
    if has_shares or b.dtype(router).kind != "f":  # TopK is not defined for bfloat16
        router = b.cast(router, np.float32)
    if has_shares:
        router = b("Softmax", router, axis=-1)
    weights, ids = b("TopK", router, [chosen], results=2, axis=-1)
    if other:
        weights = b("GatherElements", b.cast(other, np.float32), ids, axis=-1)
    weights = b.cast(weights, np.float32)
    if is_normalized and other:
        total = b.reduced("ReduceSum", weights, [1])
        is_zero = b("Equal", total, np.float32(0))
        weights = b("Div", weights, b("Where", is_zero, np.float32(1), total))
    elif is_normalized:
        weights = b("Softmax", weights, axis=-1)
    return weights, b("Reshape", ids, [-1])


def _product(
    b: FunctionBody, layer: _Layer, rows: str, ids: str, shape: tuple[int, int, int]
) -> str:
    """Rows, (rows, 1, inputs), times the matrices that they choose, (experts, outputs, inputs)."""
    weights = layer.weights
    if layer.bits:
        weights = _decoded(b, layer, shape)
    else:
        _require_shape("the weights of experts", b.shape(weights), shape)
    y = b("MatMul", rows, b("Transpose", b("Gather", weights, ids, axis=0), perm=[0, 2, 1]))
    if not layer.bias:
        return str(y)
    _require_shape("a bias of experts", b.shape(layer.bias), shape[:2])
    return str(b("Add", y, b("Reshape", b("Gather", layer.bias, ids, axis=0), [-1, 1, shape[1]])))


def _halves(b: FunctionBody, y: str, inner: int) -> tuple[str, str]:
    """The gate and what is beside it, of a product that has both."""
    if b.attribute("swiglu_fusion") == 2:
        return b.part(y, 0, inner), b.part(y, inner, 2 * inner)
    gate, beside = (b("Slice", y, [first], [2 * inner], [-1], [2]) for first in range(2))
    return gate, beside


def _activated(b: FunctionBody, gate: str, beside: str) -> str:
    """The activation of the first product, times the other one where there is any."""
    kind = b.attribute("activation_type", "relu")
    if kind in ("swiglu", "geglu") and not beside:
        raise NotImplementedError(f"{kind} without what its gate is multiplied with")
    if kind == "swiglu":
        return _swiglu(b, gate, beside)
    if kind == "relu":
        y = b("Relu", gate)
    elif kind in ("gelu", "geglu"):
        (y,) = gelu(b, gate, "tanh")
    elif kind == "silu":
        y = b("Mul", gate, b("Sigmoid", gate))
    elif kind == "identity":
        y = gate
    else:
        raise NotImplementedError(f"the activation {kind}")
    if beside and kind not in ("geglu", "silu"):
        raise NotImplementedError(f"fc3_experts_weights beside the activation {kind}")
    return str(b("Mul", y, beside) if beside else y)


def _swiglu(b: FunctionBody, gate: str, beside: str) -> str:
    """``gate * sigmoid(alpha * gate) * (beside + beta)``, each of the two within a limit."""
    limit = float(b.attribute("swiglu_limit", math.inf))
    is_after = b.attribute("swiglu_limit_after_activation", 0) == 1
    if limit < math.inf:
        beside = b("Clip", beside, -limit, limit)
        gate = gate if is_after else b("Clip", gate, "", limit)
    y = b("Mul", gate, b("Sigmoid", b("Mul", gate, b.attribute("activation_alpha", 1.0))))
    if limit < math.inf and is_after:
        y = b("Clip", y, "", limit)
    return str(b("Mul", y, b("Add", beside, b.attribute("activation_beta", 0.0))))


def _decoded(b: FunctionBody, layer: _Layer, shape: tuple[int, int, int]) -> str:
    """``(codes - zeros) * scales``, each scale of a row, or of a block of ``block_size`` in it."""
    experts, rows, depth = shape
    bits, side = layer.bits, int(b.attribute("block_size", 0))
    if bits not in _BITS:
        raise NotImplementedError(f"codes of {bits} bits")
    if side > 0 and depth % side:
        raise NotImplementedError(f"blocks of {side} in rows of {depth}")
    blocks = depth // side if side > 0 else 1
    scales = (experts, rows, blocks) if side > 0 else (experts, rows)
    packed = (*scales[:-1], -(-scales[-1] * bits // _BYTE))
    _require_shape("codes of experts", b.shape(layer.weights), (experts, rows, depth * bits // 8))
    _require_shape("scales of experts", b.shape(layer.scales), scales)
    zeros = layer.zeros
    if zeros:
        _require_shape("zero points of experts", b.shape(zeros), packed)
        numbers = b.part(_unpacked(b, zeros, bits), 0, scales[-1])
        zeros = b.cast(numbers, b.dtype(layer.scales))
    # Codes of all experts are those of a matrix.
    sizes = {"N": experts * rows, "K": depth, "bits": bits, "block_size": depth // blocks}
    numbers = b("DequantizeNBits", layer.weights, layer.scales, zeros, **sizes)
    return str(b("Reshape", b.cast(numbers, b.real), list(shape)))


def _unpacked(b: FunctionBody, packed: str, bits: int) -> str:
    """The codes in rows of bytes, the first one in the lowest bits."""
    if bits == _BYTE:
        return packed
    *outer, width = b.shape(packed)
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)
    codes = b("BitShift", b("Reshape", packed, [*outer, width, 1]), shifts, direction="RIGHT")
    codes = b("Mod", codes, np.uint8(1 << bits))
    return str(b("Reshape", codes, [*outer, width * _BYTE // bits]))


def _require_shape(what: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    if found != wanted:
        raise NotImplementedError(f"{what} of shape {found}, not {wanted}")
