"""Mixtures of experts in ONNX Runtime's operators, on the emulated device."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tvm_tile
from bench.onnx_forms import Draw, Form, form
from bench.onnx_forms.microsoft_experts import coded_matrices
from bench.onnx_forms.microsoft_form import DOMAIN
from bench.onnx_random import difference, onnxruntime_outputs

pytest.importorskip("onnxruntime")

EXPERTS, TOKENS, HIDDEN, INNER = 5, 7, 36, 20
Array = np.ndarray
Layer = tuple[Array, Array]
OPTIONS = tvm_tile.Options(cache=False)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def layer(rows: int, depth: int) -> Layer:
    return normal(EXPERTS, rows, depth), normal(EXPERTS, rows)


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def apart(gate: Array, beside: Array, attrs: dict[str, Any]) -> Array:
    """What ONNX Runtime's documents say of gates."""
    kind, limit = attrs["activation_type"], attrs.get("swiglu_limit", np.inf)
    if kind == "geglu":
        return gelu(gate) * beside
    if kind == "silu":
        return gate * sigmoid(gate) * beside
    is_after = attrs.get("swiglu_limit_after_activation", 0)
    gate = gate if is_after else np.minimum(gate, limit)
    gate = gate * sigmoid(attrs.get("activation_alpha", 1.0) * gate)
    gate = np.minimum(gate, limit) if is_after else gate
    return np.asarray(gate * (np.clip(beside, -limit, limit) + attrs.get("activation_beta", 0.0)))


def reference(x: Array, router: Array, layers: list[Layer], attrs: dict[str, Any]) -> Array:
    """A mixture of experts with gates, token by token in float64."""
    weights, biases = zip(*layers, strict=True)
    result = np.zeros(x.shape)
    for token, (row, scores) in enumerate(zip(x.astype("float64"), router, strict=True)):
        shares = np.exp(scores - scores.max())
        chosen = np.argsort(-scores)[: attrs["k"]]
        total = shares[chosen].sum() if attrs.get("normalize_routing_weights") else shares.sum()
        for expert in chosen:
            inner = zip(weights[::2], biases[::2], strict=True)
            made = [weight[expert] @ row + bias[expert] for weight, bias in inner]
            fusion = attrs.get("swiglu_fusion", 0)
            if fusion:
                made = [made[0][0::2], made[0][1::2]] if fusion == 1 else np.split(made[0], 2)
            y = weights[1][expert] @ apart(made[0], made[1], attrs) + biases[1][expert]
            result[token] += shares[expert] / total * y
    return result


@pytest.mark.parametrize(
    "attrs",
    [
        {"activation_type": "swiglu", "swiglu_fusion": 2, "swiglu_limit": 1.0},
        {"activation_type": "swiglu", "activation_alpha": 1.7, "activation_beta": 1.0},
        {"activation_type": "silu", "normalize_routing_weights": 1},
        {"activation_type": "geglu", "swiglu_fusion": 1},
        {
            "activation_type": "swiglu",
            "swiglu_fusion": 1,
            "swiglu_limit": 0.5,
            "swiglu_limit_after_activation": 1,
        },
    ],
    ids=lambda attrs: "-".join(map(str, attrs.values())),
)
def test_gates_as_they_are_specified(attrs: dict[str, Any]) -> None:
    attrs = {"k": 2, **attrs}
    is_fused = "swiglu_fusion" in attrs
    layers = [layer(2 * INNER if is_fused else INNER, HIDDEN), layer(HIDDEN, INNER)]
    layers += [] if is_fused else [layer(INNER, HIDDEN)]
    x, router = normal(TOKENS, HIDDEN), normal(TOKENS, EXPERTS)
    arrays = [array for each in layers for array in each]
    own = form("MoE", x, router, *arrays, domain=DOMAIN, constants=range(2, 8), opset=17, **attrs)
    compiled = tvm_tile.compile(own.model(), "emulated", options=OPTIONS)
    wanted = reference(x, router, layers, attrs)
    np.testing.assert_allclose(np.asarray(compiled(x, router)), wanted, rtol=2e-4, atol=2e-4)


def beside_onnxruntime(own: Form) -> tvm_tile.CompiledModel:
    model = own.model()
    wanted = onnxruntime_outputs(model, own.arguments())
    compiled = tvm_tile.compile(model, "emulated", options=OPTIONS)
    assert difference(own, [np.asarray(compiled(*own.arguments()))], wanted) == ""
    return compiled


@pytest.mark.parametrize(("tokens", "share"), [(1, 0.5), (33, 4.0)])
def test_matrices_are_not_copied(tokens: int, share: float) -> None:
    """A token reads its own experts; copies for 33 tokens would be 13 times all experts."""
    layers = [array for each in (layer(2 * INNER, HIDDEN), layer(HIDDEN, INNER)) for array in each]
    own = form(
        "MoE", normal(tokens, HIDDEN), normal(tokens, EXPERTS), *layers, domain=DOMAIN,
        constants=range(2, 6), opset=17, k=2, activation_type="swiglu", swiglu_fusion=1,
        tolerance=1e-4,
    )  # fmt: skip
    compiled = beside_onnxruntime(own)
    assert compiled.report.traffic < share * sum(array.nbytes for array in layers)


@pytest.mark.parametrize(("bits", "side"), [(4, 0), (4, 16), (2, 16), (8, 0)])
def test_codes(bits: int, side: int) -> None:
    hidden, inner = 64, 48
    d = Draw(0)
    first, second = (
        coded_matrices(d, shape, bits, side)
        for shape in ((EXPERTS, inner, hidden), (EXPERTS, hidden, inner))
    )
    own = form(
        "QMoE", normal(TOKENS, hidden), normal(TOKENS, EXPERTS), *first[:2], None, *second[:2],
        *[None] * 4, first[2], second[2], domain=DOMAIN, opset=17, k=3, expert_weight_bits=bits,
        weights_prepacked=0, normalize_routing_weights=1, tolerance=1e-4,
        constants=(2, 3, 5, 6, 11, 12) if bits < 8 else (),
        **({"block_size": side} if side else {}),
    )  # fmt: skip
    beside_onnxruntime(own)


def test_codes_of_other_bits_in_each_layer() -> None:
    """Of 8 and 4 bits; ONNX Runtime has them on GPUs alone, so that numbers stand for them."""
    first = coded_matrices(Draw(1), (EXPERTS, INNER, HIDDEN), 8, 0)
    second = coded_matrices(Draw(2), (EXPERTS, HIDDEN, INNER), 4, 0)
    x, router = normal(TOKENS, HIDDEN), normal(TOKENS, EXPERTS)
    coded = form(
        "QMoE", x, router, *first[:2], None, *second[:2], domain=DOMAIN, opset=17, k=2,
        constants=(2, 3, 5, 6), expert_weight_bits=4, fc1_expert_weight_bits=8,
        weights_prepacked=0, normalize_routing_weights=1,
    )  # fmt: skip
    codes = np.stack([second[0] & 15, second[0] >> 4], -1).reshape(EXPERTS, HIDDEN, INNER)
    numbers = [
        ((own.astype("float32") - middle) * scales[..., None]).astype("float32")
        for own, scales, middle in ((first[0], first[1], 128), (codes, second[1], 8))
    ]
    plain = form(
        "MoE", x, router, numbers[0], None, numbers[1], domain=DOMAIN, opset=17, k=2,
        normalize_routing_weights=1,
    )  # fmt: skip
    (wanted,) = onnxruntime_outputs(plain.model(), plain.arguments())
    found = tvm_tile.compile(coded.model(), "emulated", options=OPTIONS)(x, router)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)


def test_halves() -> None:
    """ONNX Runtime has bfloat16 on GPUs alone, so that float32 stands for it."""
    x, router = normal(TOKENS, HIDDEN), normal(TOKENS, EXPERTS)
    arrays = [x, router, *layer(INNER, HIDDEN), *layer(HIDDEN, INNER)]
    halves = [array.astype(ml_dtypes.bfloat16) for array in arrays]
    attrs = {"k": 2, "activation_type": "silu", "normalize_routing_weights": 1}
    own, whole = (
        form("MoE", *given, domain=DOMAIN, constants=range(2, 6), opset=17, dtypes=(kind,), **attrs)
        for given, kind in (
            (halves, "bfloat16"),
            ([array.astype("float32") for array in halves], "float32"),
        )
    )
    (wanted,) = onnxruntime_outputs(whole.model(), whole.arguments())
    found = tvm_tile.compile(own.model(), "emulated", options=OPTIONS)(*own.arguments())
    assert np.abs(np.asarray(found, "float32") - wanted).max() < 2e-2 * np.abs(wanted).max()
