"""Mixtures of experts of ONNX Runtime's, in forms that its CPU provider has."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.onnx_forms.form import Draw, Form
from bench.onnx_forms.microsoft_form import Array, own_form, some

_BYTE = 8  # bits


def _activation(d: Draw) -> dict[str, Any]:
    kind = d.choose("relu", "gelu", "silu", "identity", "swiglu", "swiglu")
    if kind != "swiglu":
        return {"activation_type": kind}
    limits = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.5}
    return {"activation_type": kind, "swiglu_fusion": 1, **d.some(limits)}


def _tokens(d: Draw, hidden: int) -> tuple[np.ndarray, int]:
    shape = d.shape(d.int(1, 2))
    return d.normal((*shape, hidden)), int(np.prod(shape))


def microsoft_experts(d: Draw) -> Form:
    experts, hidden, inner = d.int(1, 6), d.int(2, 40), d.int(2, 40)
    x, tokens = _tokens(d, hidden)
    activation = _activation(d)
    wide = 2 * inner if "swiglu_fusion" in activation else inner
    return own_form(
        d,
        "MoE",
        x,
        d.normal((tokens, experts)),
        d.normal((experts, wide, hidden)),
        some(d, d.normal((experts, wide))),
        d.normal((experts, hidden, inner)),
        some(d, d.normal((experts, hidden))),
        k=d.int(1, experts),
        constants=(2, 3, 4, 5) if d.maybe(0.7) else (),
        **activation,
        **d.some({"normalize_routing_weights": 1}),
    )


def microsoft_coded_experts(d: Draw) -> Form:
    experts, bits, side = d.int(1, 5), d.choose(2, 4, 8), d.choose(0, 16, 32)
    hidden, inner = (d.int(2, 4) * max(side, 4) for _ in range(2))
    activation = _activation(d)
    wide = 2 * inner if "swiglu_fusion" in activation else inner
    shapes = (experts, wide, hidden), (experts, hidden, inner)
    has_zeros = d.maybe()
    dtype = d.choose("float32", "float16")
    coded = [coded_matrices(d, shape, bits, side, dtype) for shape in shapes]
    x, tokens = _tokens(d, hidden)
    scores = [d.normal((tokens, experts)).astype(dtype) for _ in range(2)]
    router_weights = np.abs(scores[1]) if d.maybe(0.3) else None
    inputs: list[Array] = [x.astype(dtype), scores[0]]
    for (packed, scales, _), (_, rows, _) in zip(coded, shapes, strict=True):
        inputs += [packed, scales, some(d, d.normal((experts, rows), dtype))]
    inputs += [None] * 3 + [zeros if has_zeros else None for *_, zeros in coded]
    is_normalized = router_weights is None or d.maybe()
    is_constant = bits != _BYTE  # constants of 8 bits meet rows that are rounded to 8 bits
    return own_form(
        d,
        "QMoE",
        *inputs,
        None,
        router_weights,
        k=d.int(1, experts),
        expert_weight_bits=bits,
        weights_prepacked=0,
        constants=(2, 3, 5, 6, 11, 12) if is_constant and d.maybe(0.7) else (),
        tolerance=2e-5 if dtype == "float32" else 8e-3,
        dtypes=(dtype,),
        **activation,
        **({"block_size": side} if side else {}),
        **({"normalize_routing_weights": 1} if is_normalized else {}),
    )


def coded_matrices(
    d: Draw, shape: tuple[int, int, int], bits: int, side: int, dtype: str = "float32"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Packed codes of matrices, their scales and packed zero points."""
    experts, rows, depth = shape
    parts = (experts, rows, depth // side) if side else (experts, rows)
    codes, zeros = (d.rng.integers(0, 1 << bits, extents) for extents in (shape, parts))
    scales = (0.2 + d.rng.random(parts)) / (1 << bits)
    return packed_codes(codes, bits), scales.astype(dtype), packed_codes(zeros, bits)


def packed_codes(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes of the last axis in bytes, the first one in the lowest bits."""
    count = _BYTE // bits
    missing = -codes.shape[-1] % count
    whole = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, missing)])
    parts = whole.reshape(*codes.shape[:-1], -1, count) << np.arange(0, _BYTE, bits)
    return np.asarray(parts.sum(-1)).astype("uint8")
