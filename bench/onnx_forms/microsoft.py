"""Operators of ONNX Runtime's own domain, in forms that its CPU provider has."""

from __future__ import annotations

import numpy as np

from bench.onnx_forms.form import Draw, Form
from bench.onnx_forms.microsoft_codes import (
    microsoft_bits,
    microsoft_code_product,
    microsoft_code_windows,
    microsoft_codes,
    microsoft_integers,
    microsoft_quantize,
)
from bench.onnx_forms.microsoft_experts import microsoft_coded_experts, microsoft_experts
from bench.onnx_forms.microsoft_form import Array, codes, own_form, some


def _mask(d: Draw, batch: int, queries: int, keys: int, *, has_starts: bool) -> Array:
    """Keys that are seen, or where they end; at least the first one, unless they have starts."""
    kind = d.int(0, 4 if has_starts else 3)
    if kind == 0:
        return None
    if kind < 3:
        shape = (batch, keys) if kind == 1 else (batch, queries, keys)
        seen = d.rng.integers(0, 2, shape)
        seen[..., 0] = 1
        return seen.astype("int32")
    ends = d.rng.integers(1, keys + 1, batch)
    return np.asarray([*ends, *(ends - 1)] if kind == 4 else ends).astype("int32")


def microsoft_attention(d: Draw) -> Form:
    batch, queries, heads, size = d.int(1, 3), d.int(1, 6), d.int(1, 3), 2 * d.int(1, 4)
    width, wide = heads * size, heads * d.choose(size, d.int(1, 5))
    past = (
        d.normal((2, batch, heads, d.int(1, 4), size)) if wide == width and d.maybe(0.4) else None
    )
    keys = queries + (0 if past is None else past.shape[3])
    depth = d.int(2, 9)
    added = d.normal((d.choose(1, batch), d.choose(1, heads), queries, keys))
    return own_form(
        d,
        "Attention",
        d.normal((batch, queries, depth)),
        d.normal((depth, 2 * width + wide)),
        some(d, d.normal((2 * width + wide,)), 0.8),
        _mask(d, batch, queries, keys, has_starts=True),
        past,
        some(d, added, 0.4) if past is None else None,
        results=2 if past is not None or (wide == width and d.maybe()) else 1,
        num_heads=heads,
        **({"qkv_hidden_sizes": [width, width, wide]} if wide != width or d.maybe(0.3) else {}),
        **d.some({"unidirectional": 1, "scale": 0.3, "mask_filter_value": -3.0}, 0.4),
    )


def microsoft_qattention(d: Draw) -> Form:
    batch, queries, heads, size = d.int(1, 3), d.int(1, 5), d.int(1, 3), d.int(1, 6)
    width, depth = heads * size, d.int(2, 9)
    past = d.normal((2, batch, heads, d.int(1, 4), size)) if d.maybe(0.4) else None
    keys = queries + (0 if past is None else past.shape[3])
    columns = (3 * width,) if d.maybe(0.4) else ()
    kind = d.choose("int8", "uint8")
    return own_form(
        d,
        "QAttention",
        d.rng.integers(0, 256, (batch, queries, depth)).astype("uint8"),
        codes(d, kind, (depth, 3 * width)),
        d.normal((3 * width,)),
        np.float32(0.02),
        np.asarray(0.01 + 0.01 * d.rng.random(columns), "float32"),
        _mask(d, batch, queries, keys, has_starts=True),
        np.uint8(d.int(100, 140)),
        np.full(columns, 3, kind),
        past,
        constants=(1, 4, 7),
        results=1 if past is None else 2,
        num_heads=heads,
        tolerance=5e-5,
        **d.some({"unidirectional": 1}, 0.4),
    )


def microsoft_multi_head_attention(d: Draw) -> Form:
    batch, queries, heads, size = d.int(1, 3), d.int(1, 6), d.int(1, 3), 2 * d.int(1, 4)
    width, wide = heads * size, heads * d.choose(size, d.int(1, 5))
    is_causal = d.maybe(0.3)
    new = queries if is_causal or d.maybe() else d.int(1, 6)
    kind = d.int(0, 2)  # keys together; behind a past; apart
    old = d.int(1, 4) if kind == 1 else 0
    if kind:
        wide = width
    bias = d.normal((2 * width + wide,)) if d.maybe() and kind < 2 else None
    shapes = (
        ((batch, heads, new, size), (batch, heads, new, wide // heads))
        if kind == 2
        else ((batch, new, width), (batch, new, wide))
    )
    past = [d.normal((batch, heads, old, size)) if old else None for _ in range(2)]
    added = d.normal((d.choose(1, batch), d.choose(1, heads), queries, new + old))
    return own_form(
        d,
        "MultiHeadAttention",
        d.normal((batch, queries, width)),
        *(d.normal(shape) for shape in shapes),
        bias,
        _mask(d, batch, queries, new + old, has_starts=False),
        some(d, added, 0.4),
        *past,
        results=3 if old or (kind == 0 and d.maybe()) else 1,
        num_heads=heads,
        **({"unidirectional": 1} if is_causal else {}),
        **d.some({"scale": 0.3, "mask_filter_value": -3.0}, 0.4),
    )


def microsoft_group_query_attention(d: Draw) -> Form:
    groups, size = d.int(1, 3), 16 * d.int(1, 2)
    heads = groups * d.int(1, 3)
    batch, queries, old = d.int(1, 3), d.choose(1, d.int(2, 6)), d.choose(0, d.int(1, 5))
    if queries > 1 and old:
        batch = 1
    room = d.choose(0, queries + d.int(0, 3)) if old else 0  # of a buffer, behind what is in it
    total = old + queries
    lengths = np.full(batch, total - 1)
    if queries == 1:
        lengths -= d.rng.integers(0, old + 1, batch)
        lengths[0] = total - 1
    past = [np.zeros((batch, groups, old + room, size), "float32") for _ in range(2)]
    for each in past:
        each[:, :, :old] = d.normal((batch, groups, old, size))
        for b, length in enumerate(lengths):
            each[b, :, length + 1 - queries :] = 0
    turns = d.maybe()
    pairs = d.choose(8, size // 2)
    angles = d.normal((total + 3, pairs))
    places = np.tile(np.arange(queries) + total - queries, (batch, 1)) if d.maybe(0.3) else None
    is_packed = d.maybe(0.3)
    widths = (heads, 0, 0) if not is_packed else (heads + 2 * groups, 0, 0)
    parts: list[Array] = [d.normal((batch, queries, widths[0] * size)), None, None]
    if not is_packed:
        parts[1:] = [d.normal((batch, queries, groups * size)) for _ in range(2)]
    causal = d.maybe(0.8)
    sink = d.normal((heads,)) if d.maybe(0.2) else None
    return own_form(
        d,
        "GroupQueryAttention",
        *parts,
        *(past if old else (None, None)),
        lengths.astype("int32"),
        np.int32(total),
        *((np.cos(angles), np.sin(angles)) if turns else (None, None)),
        places if turns else None,
        some(d, d.normal((d.choose(1, batch), d.choose(1, heads), queries, total)), 0.3),
        sink,
        constants=(6,),
        results=3,
        num_heads=heads,
        kv_num_heads=groups,
        **({"do_rotary": 1, **d.some({"rotary_interleaved": 1})} if turns else {}),
        **({"local_window_size": d.int(1, 4)} if causal and d.maybe(0.3) else {}),
        **({} if causal else {"causal": 0}),
        **({"smooth_softmax": 1} if sink is None and d.maybe(0.2) else {}),
        **d.some({"softcap": 2.0, "scale": 0.3}, 0.3),
    )


def microsoft_rotary_embedding(d: Draw) -> Form:
    batch, length, heads, pairs = d.int(1, 3), d.int(1, 5), d.int(1, 3), d.int(1, 4)
    is_apart, is_partial = d.maybe(), d.maybe(0.4)
    size = 2 * pairs + (2 * d.int(1, 3) if is_partial else 0)
    shape = (batch, heads, length, size) if is_apart else (batch, length, heads * size)
    places = (
        np.array([d.int(0, 3)]) if d.maybe() else d.rng.integers(0, length + 3, (batch, length))
    )
    angles = d.normal((length + 3, pairs))
    attrs = {"num_heads": heads, "rotary_embedding_dim": 2 * pairs} if is_partial else {}
    return own_form(
        d, "RotaryEmbedding", d.normal(shape), places, np.cos(angles), np.sin(angles),
        **attrs, **d.some({"interleaved": 1}),
    )  # fmt: skip


def microsoft_norm(d: Draw) -> Form:
    batch, length, width = d.int(1, 3), d.int(1, 5), d.int(1, 9)
    x = d.normal((batch, length, width))
    gamma, other, bias = (d.normal((width,)) for _ in range(3))
    kind = d.int(0, 2)
    epsilon = d.some({"epsilon": 1e-3})
    if kind == 0:
        skip = d.normal(d.choose((batch, length, width), (1, length, width), (length, width)))
        inputs = (x, skip, gamma, some(d, other), some(d, bias))
        op_type = "SkipLayerNormalization"
    elif kind == 1:
        inputs = (x, d.normal(x.shape), gamma, some(d, bias))
        op_type = "SkipSimplifiedLayerNormalization"
    else:
        words, places = d.normal((9, width)), d.normal((length + 2, width))
        ids, kinds = (d.rng.integers(0, 9, (batch, length)).astype("int32") for _ in range(2))
        has_kinds = d.maybe()
        return own_form(
            d, "EmbedLayerNormalization", ids, kinds if has_kinds else None, words, places,
            d.normal((9, width)) if has_kinds else None, gamma, other,
            some(d, d.rng.integers(0, 2, (batch, length)).astype("int32")),
            some(d, d.rng.integers(0, length + 2, (batch, length)).astype("int32")),
            results=3, dtypes=("float32", "int32", "float32"), **epsilon,
        )  # fmt: skip
    return own_form(d, op_type, *inputs, **epsilon)


def microsoft_activation(d: Draw) -> Form:
    x = d.normal((*d.shape(2), 7)) * 3
    kind = d.choose("Gelu", "FastGelu", "BiasGelu", "QuickGelu")
    if kind in ("Gelu", "QuickGelu"):
        return own_form(d, kind, x, **(d.some({"alpha": 0.7}) if kind == "QuickGelu" else {}))
    bias = d.normal((7,))
    return own_form(d, kind, x, bias if kind == "BiasGelu" else some(d, bias))


def microsoft_fused(d: Draw) -> Form:
    kind = d.choose("FusedMatMul", "FusedConv", "FusedGemm")
    if kind == "FusedMatMul":
        rank, turned = d.int(2, 4), {name: int(d.maybe()) for name in ("transA", "transB")}
        outer = d.ints(1, 3, rank - 2)
        m, n, k = d.ints(1, 5, 3)
        shapes = [[*outer, m, k], [*outer, k, n]]
        for shape, name in zip(shapes, "AB", strict=True):
            if turned[f"trans{name}"]:
                shape[-2:] = reversed(shape[-2:])
            if rank > 2 and d.maybe(0.3):
                turned[f"transBatch{name}"] = 1
                shape[:-1] = [shape[-2], *shape[:-2]]
        return own_form(d, kind, *map(d.normal, shapes), **turned, **d.some({"alpha": 0.25}))
    name, values = d.choose(
        ("Relu", []), ("Sigmoid", []), ("Tanh", []), ("LeakyRelu", [0.2]),
        ("HardSigmoid", [0.3, 0.4]), ("Clip", [-0.5, 0.75]),
    )  # fmt: skip
    if kind == "FusedGemm":
        m, n, k = d.ints(1, 6, 3)
        name, values = ("Relu", []) if name == "Clip" else (name, values)
        names = ("activation_alpha", "activation_beta")
        attrs = {"activation": name, **dict(zip(names, values, strict=False))}
        attrs |= {"transA": int(d.maybe()), "transB": int(d.maybe())}
        a, b = ((k, m) if attrs["transA"] else (m, k)), ((n, k) if attrs["transB"] else (k, n))
        c = some(d, d.normal(d.choose((m, n), (n,), (1, n), (m, 1))), 0.8)
        return own_form(
            d, kind, d.normal(a), d.normal(b), c, **attrs, **d.some({"alpha": 0.5, "beta": 2.0})
        )
    x, w = d.normal((d.int(1, 2), 4, *d.ints(3, 6, 2))), d.normal((6, 2, *d.ints(1, 3, 2)))
    pads, strides = d.ints(0, 2, 4), d.ints(1, 2, 2)
    extents = [
        (x.shape[2 + i] + pads[i] + pads[2 + i] - w.shape[2 + i]) // strides[i] + 1
        for i in range(2)
    ]
    return own_form(
        d, kind, x, w, some(d, d.normal((6,)), 0.7),
        some(d, d.normal((x.shape[0], 6, *extents)), 0.4), constants=(1, 2), activation=name,
        **({"activation_params": values} if values else {}), group=2, pads=pads, strides=strides,
    )  # fmt: skip


MICROSOFT = (
    microsoft_activation,
    microsoft_attention,
    microsoft_bits,
    microsoft_code_product,
    microsoft_code_windows,
    microsoft_coded_experts,
    microsoft_codes,
    microsoft_experts,
    microsoft_fused,
    microsoft_group_query_attention,
    microsoft_integers,
    microsoft_multi_head_attention,
    microsoft_norm,
    microsoft_qattention,
    microsoft_quantize,
    microsoft_rotary_embedding,
)
