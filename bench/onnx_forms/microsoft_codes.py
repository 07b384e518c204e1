"""Operators of ONNX Runtime's on codes, in forms that its CPU provider has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bench.onnx_forms.form import Draw, Form
from bench.onnx_forms.microsoft_form import Array, codes, own_form, some


def _quantizing(d: Draw, kind: str, *, always: bool = False) -> tuple[np.ndarray, Array]:
    """A scale and a zero point."""
    low = 90 if kind == "uint8" else -20
    zero = np.asarray(d.int(low, low + 50)).astype(kind)
    return np.float32(0.01 + 0.04 * d.rng.random()), zero if always or d.maybe(0.8) else None


def _quantized(d: Draw, op_type: str, kind: str, *inputs: Array, **kept: Any) -> Form:
    return own_form(d, op_type, *inputs, dtypes=(kind,), **kept)


def microsoft_codes(d: Draw) -> Form:
    kind, rank = d.choose("uint8", "int8"), d.int(1, 4)
    shape = d.shape(rank)
    op_type = d.choose("Add", "Mul", "Sigmoid", "LeakyRelu", "Softmax", "Concat", "Where")
    x, own = codes(d, kind, shape), _quantizing(d, kind)
    if op_type in ("Add", "Mul"):
        other = tuple(1 if d.maybe(0.2) else extent for extent in shape[d.int(0, rank - 1) :])
        own = _quantizing(d, kind, always=True)
        operands = (x, *own, codes(d, kind, other), *_quantizing(d, kind, always=True))
        return _quantized(
            d, f"QLinear{op_type}", kind, *operands, *_quantizing(d, kind, always=True)
        )
    if op_type == "Concat":
        axis, parts = d.axis(rank), []
        for _ in range(d.int(1, 3)):
            extents = list(shape)
            extents[axis] = d.int(1, 4)
            parts += [codes(d, kind, tuple(extents)), *_quantizing(d, kind, always=True)]
        return _quantized(
            d, "QLinearConcat", kind, *_quantizing(d, kind, always=True), *parts, axis=axis
        )
    if op_type == "Where":
        own, others, made = (_quantizing(d, kind, always=True) for _ in range(3))
        condition = d.rng.integers(0, 2, shape).astype(bool)
        return _quantized(
            d, "QLinearWhere", kind, condition, x, *own, codes(d, kind, shape), *others, *made,
            constants=(2, 3, 5, 6, 7, 8),
        )  # fmt: skip
    if op_type == "Softmax":
        made = (np.float32(1 / 256), np.asarray(0 if kind == "uint8" else -128).astype(kind))
        made_form = _quantized(
            d, "QLinearSoftmax", kind, x, *own, *made, axis=d.axis(rank), constants=(1, 3, 4)
        )  # fmt: skip
        return replace(made_form, attrs={**made_form.attrs, "opset": made_form.opset})
    attrs: dict[str, Any] = d.some({"alpha": 0.3}) if op_type == "LeakyRelu" else {}
    return _quantized(
        d, f"QLinear{op_type}", kind, x, *own, *_quantizing(d, kind),
        constants=(1, 2, 3, 4), **attrs,
    )  # fmt: skip


def microsoft_code_windows(d: Draw) -> Form:
    kind, is_last = d.choose("uint8", "int8"), d.int(0, 1)
    batch, channels, height, width = d.int(1, 2), 2 * d.int(1, 3), d.int(3, 7), d.int(3, 7)
    shape = (batch, height, width, channels) if is_last else (batch, channels, height, width)
    x, own = codes(d, kind, shape), _quantizing(d, kind, always=True)
    made = _quantizing(d, kind, always=True)
    op_type = d.choose("AveragePool", "GlobalAveragePool", "Conv")
    attrs: dict[str, Any] = {"channels_last": is_last} if is_last or d.maybe() else {}
    window = d.ints(1, 3, 2)
    if op_type == "AveragePool":
        attrs |= {"kernel_shape": window, **d.some({"strides": d.ints(1, 2, 2)})}
        attrs |= d.some(
            {"pads": [d.int(0, w - 1) for w in (*window, *window)], "count_include_pad": 1}
        )
    if op_type != "Conv":
        return _quantized(
            d, f"QLinear{op_type}", kind, x, *own, *made, constants=(1, 2, 3, 4), **attrs
        )
    weight = codes(d, "int8", (4, channels // 2, *window))
    parameters = (np.float32(0.02), np.int8(0))
    bias = some(d, d.rng.integers(-500, 500, 4).astype("int32"))
    return _quantized(
        d, "QLinearConv", kind, x, *own, weight, *parameters, np.float32(2), made[1], bias,
        constants=(1, 2, 3, 4, 5, 6, 7, 8), group=2, **attrs, **d.some({"pads": d.ints(0, 2, 4)}),
    )  # fmt: skip


def microsoft_code_product(d: Draw) -> Form:
    m, n, k = d.int(1, 6), d.int(1, 8), d.int(1, 9)
    outer = d.shape(d.int(0, 2), 3)
    left, right = d.choose(("uint8", "int8"), ("uint8", "uint8"), ("int8", "int8"))
    columns = (n,) if d.maybe(0.4) else ()
    scale = np.asarray(0.01 + 0.02 * d.rng.random(columns), "float32")
    zero = np.full(columns, d.int(0, 9), right)
    op_type = d.choose("QGemm", "DynamicQuantizeMatMul", "MatMulIntegerToFloat")
    bias = some(d, d.normal((n,)))
    weight = codes(d, right, (k, n))
    if op_type == "DynamicQuantizeMatMul":
        x = d.normal((*outer, m, k))
        return own_form(
            d, op_type, x, weight, scale, some(d, zero), bias, constants=(1,), tolerance=2e-2
        )
    x = codes(d, left, (*outer, m, k))
    own, x_zero = _quantizing(d, left, always=True)
    if op_type == "MatMulIntegerToFloat":
        return own_form(
            d,
            op_type,
            x,
            weight,
            own,
            scale,
            some(d, x_zero),
            some(d, zero),
            bias,
            constants=(1,),
        )
    x = x.reshape(-1, k)
    attrs = {"transA": d.int(0, 1), "transB": d.int(0, 1), **d.some({"alpha": 0.5})}
    made = _quantizing(d, left, always=True) if d.maybe() else (None, None)
    units = some(d, d.rng.integers(-900, 900, n).astype("int32"))
    return own_form(
        d, op_type, x.T.copy() if attrs["transA"] else x, own, x_zero,
        weight.T.copy() if attrs["transB"] else weight, scale, zero, units,
        *((np.float32(0.5), made[1]) if made[1] is not None else (None, None)),
        dtypes=("float32" if made[1] is None else left,), constants=(3, 6), **attrs,
    )  # fmt: skip


def microsoft_quantize(d: Draw) -> Form:
    kind = d.choose("uint8", "int8", "uint16", "int16")
    rank = d.int(1, 4)
    shape, axis = d.shape(rank), d.int(0, rank - 1)
    extents = (shape[axis],) if d.maybe(0.4) else ()
    scale = np.asarray(0.02 + 0.05 * d.rng.random(extents), "float32")
    attrs = {"axis": axis} if extents else {}
    zero = np.asarray(d.rng.integers(0, 90, extents)).astype(kind)
    if d.maybe():
        zeros = some(d, zero, 0.9 if kind == "uint8" else 1)
        return _quantized(d, "QuantizeLinear", kind, d.normal(shape) * 3, scale, zeros, **attrs)
    return own_form(d, "DequantizeLinear", codes(d, kind, shape), scale, some(d, zero), **attrs)


def microsoft_integers(d: Draw) -> Form:
    m, n, k = d.ints(1, 5, 3)
    a, b = (d.rng.integers(-3000, 3000, shape).astype("int16") for shape in ((m, k), (k, n)))
    return own_form(d, "MatMulInteger16", a, b, dtypes=("int32",))


def microsoft_bits(d: Draw) -> Form:
    rows, depth, columns = d.int(1, 5), d.int(3, 70), d.int(1, 9)
    bits, block = d.choose(4, 8), d.choose(16, 32)
    blocks = -(-depth // block)
    zeros = codes(d, "uint8", (columns * -(-blocks * bits // 8),))
    return own_form(
        d, "MatMulNBits", d.normal((d.int(1, 2), rows, depth)),
        codes(d, "uint8", (columns, blocks, block * bits // 8)),
        np.asarray(d.rng.random(columns * blocks), "float32"), some(d, zeros), None,
        some(d, d.normal((columns,))), constants=(1, 2, 3, 5), K=depth, N=columns, bits=bits,
        block_size=block, tolerance=1e-3,
    )  # fmt: skip
