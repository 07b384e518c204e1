"""Element-wise operators, reductions, products, normalizations, quantization."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.onnx_forms.form import Draw, Form, form

_UNARY = (
    "Abs", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Acos", "Ceil", "Cos", "Cosh", "Erf", "Exp",
    "Floor", "HardSwish", "IsInf", "IsNaN", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round",
    "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh",
)  # fmt: skip


def unary(d: Draw) -> Form:
    op_type = d.choose(*_UNARY)
    x = 2 * d.normal(d.shape(d.int(0, 3)))
    if op_type in ("Asin", "Acos", "Atanh"):
        x = np.tanh(x)
    if op_type == "Acosh":
        x = 1 + np.abs(x)
    if op_type in ("Log", "Sqrt"):
        x = np.abs(x)
    if op_type in ("Abs", "Neg", "Sign") and d.maybe():
        x = x.astype("int32")
    if op_type in ("Round", "Ceil", "Floor"):
        x = np.round(2 * x) / 2
    if op_type in ("IsInf", "IsNaN"):
        x = np.where(d.rng.random(x.shape) < 0.5, d.choose(np.inf, -np.inf, np.nan), x)
        attrs = {"detect_negative": d.int(0, 1), "detect_positive": d.int(0, 1)}
        return form(op_type, x.astype("float32"), **(d.some(attrs) if op_type == "IsInf" else {}))
    return form(op_type, np.asarray(x))


def activation(d: Draw) -> Form:
    x = 2 * d.normal(d.shape(d.int(1, 4)))
    kind = d.int(0, 14)
    simple: dict[int, tuple[str, dict[str, Any]]] = {
        0: ("Elu", {"alpha": 1.5}), 1: ("Selu", {"alpha": 1.2, "gamma": 0.7}),
        2: ("Celu", {"alpha": 0.6}), 3: ("LeakyRelu", {"alpha": -0.3}),
        4: ("ThresholdedRelu", {"alpha": 0.4}), 5: ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}),
        6: ("Shrink", {"lambd": 0.6, "bias": 0.3}),
        7: ("Gelu", {"approximate": d.choose("none", "tanh")}),
    }  # fmt: skip
    if kind in simple:
        return form(simple[kind][0], x, **d.some(simple[kind][1], 0.6))
    if kind in (8, 9, 10):
        op_type = ("Softmax", "LogSoftmax", "Hardmax")[kind - 8]
        return form(op_type, x, opset=d.choose(11, 13, 21), **d.some({"axis": d.axis(x.ndim)}, 0.7))
    if kind == 11:
        slope = d.normal([1 if d.maybe() else e for e in x.shape[d.int(0, x.ndim - 1) :]])
        return form("PRelu", x, slope)
    if kind == 12:
        low, high = np.float32(-0.5), np.float32(0.8)
        inputs = [[low, high], [low], [None, high], []][d.int(0, 3)]
        inputs = [None if v is None else np.asarray(v) for v in inputs]
        return form("Clip", x, *inputs, constants=(1, 2) if d.maybe() else ())
    if kind == 13:
        return form("Swish", x, opset=24, **d.some({"alpha": 0.7}))
    ratio = [np.asarray(np.float32(0.3))] if d.maybe() else []
    return form("Dropout", x, *ratio, constants=(1,), results=d.int(1, 2))


_BINARY = ("Add", "Sub", "Mul", "Div", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")


def binary(d: Draw) -> Form:
    shape = d.shape(d.int(1, 3))
    left = tuple(1 if d.maybe(0.3) else e for e in shape)
    right = tuple(1 if d.maybe(0.3) else e for e in shape)[d.int(0, 1) :]
    dtype = d.choose("float32", "int32", "int64")
    kind = d.int(0, 6)
    x, y = ((3 * d.normal(s)).astype(dtype) for s in (left, right))
    if kind <= 1:
        op_type = d.choose(*_BINARY)
        if op_type == "Div":
            y = np.where(y == 0, 2, y).astype(dtype)
        return form(op_type, x, y)
    if kind == 2:
        fmod = 1 if dtype == "float32" else d.int(0, 1)
        return form("Mod", x, np.where(y == 0, 2, y).astype(dtype), fmod=fmod)
    if kind == 3:
        exponent = d.choose(d.normal(right), d.rng.integers(0, 4, right))
        return form("Pow", np.abs(x), exponent, tolerance=1e-4)
    if kind == 4:
        op_type = d.choose("Max", "Min", "Sum", "Mean")
        dtype = "float32" if op_type in ("Sum", "Mean") else dtype
        return form(op_type, *(a.astype(dtype) for a in (x, y, x)[: d.int(1, 3)]))
    if kind == 5:
        return form(d.choose("And", "Or", "Xor"), x > 0, y > 0)
    unsigned = d.choose("uint8", "uint32", "uint64")
    x, y = (d.rng.integers(0, 8, s).astype(unsigned) for s in (left, right))
    if d.maybe():
        return form("BitShift", x, y, direction=d.choose("LEFT", "RIGHT"))
    return form(d.choose("BitwiseAnd", "BitwiseOr", "BitwiseXor"), x, y)


_CASTS = ("float32", "float64", "int8", "uint8", "int32", "int64", "bool", "float16")


def cast(d: Draw) -> Form:
    source = d.choose("float32", "int32", "int64", "bool", "uint8")
    x = np.abs(20 * d.normal(d.shape(2))).astype(source)
    if source == "float32" and d.maybe():
        x = -x / 8
    target = d.choose(*_CASTS)
    if target == "uint8":
        x = np.abs(x) if source != "bool" else x
    from onnx import helper

    return form("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(target)))


_REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip


def reduction(d: Draw) -> Form:
    op_type = d.choose(*_REDUCTIONS)
    dtype = "float32" if d.maybe(0.8) else "int32"
    if op_type in ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        dtype = "float32"
    x = (2 * d.normal(d.shape(d.int(1, 4)))).astype(dtype)
    if op_type == "ReduceLogSum":
        x = np.abs(x) + np.float32(0.1)
    axes = d.axes(x.ndim)
    attrs = d.some({"keepdims": d.int(0, 1)})
    if d.maybe(0.3) and op_type != "ReduceSum" and axes:
        return form(op_type, x, opset=13, axes=axes, **attrs)
    attrs |= d.some({"noop_with_empty_axes": d.int(0, 1)})
    inputs = [np.array(axes, "int64")] if d.maybe(0.8) else []
    return form(op_type, x, *inputs, opset=18, constants=(1,), **attrs)


def arg_reduction(d: Draw) -> Form:
    x = np.round(d.normal(d.shape(d.int(1, 3)))).astype(d.choose("float32", "int32"))
    attrs = {"axis": d.axis(x.ndim), "keepdims": d.int(0, 1), "select_last_index": d.int(0, 1)}
    return form(d.choose("ArgMax", "ArgMin"), x, **d.some(attrs, 0.7))


def top_k(d: Draw) -> Form:
    x = d.normal(d.shape(d.int(1, 3), 8))
    axis = d.axis(x.ndim)
    k = np.array([d.int(1, x.shape[axis])])
    return form(
        "TopK", x, k, constants=(1,), results=2, axis=axis,
        **d.some({"largest": d.int(0, 1), "sorted": 1}),
    )  # fmt: skip


def cumulative(d: Draw) -> Form:
    x = d.normal(d.shape(d.int(1, 3), 9))
    attrs = d.some({"exclusive": d.int(0, 1), "reverse": d.int(0, 1)}, 0.7)
    return form("CumSum", x, np.array(d.axis(x.ndim)), constants=(1,), **attrs)


def product(d: Draw) -> Form:
    kind = d.int(0, 2)
    if kind == 0:
        m, n, k = d.ints(1, 7, 3)
        ta, tb = d.int(0, 1), d.int(0, 1)
        c = d.choose((m, n), (n,), (1, n), (m, 1), (), (1,), None)
        third = [] if c is None else [d.normal(c)]
        attrs = d.some({"alpha": 0.5, "beta": d.choose(0.0, 0.7), "transA": ta, "transB": tb})
        a = d.normal((k, m) if attrs.get("transA") else (m, k))
        b = d.normal((n, k) if attrs.get("transB") else (k, n))
        return form("Gemm", a, b, *third, constants=(1, 2) if d.maybe() else (), **attrs)
    if kind == 1:
        m, n, k = d.ints(1, 7, 3)
        batch = d.shape(d.int(0, 2), 3)
        a = d.normal((*(1 if d.maybe(0.3) else e for e in batch), m, k) if d.maybe(0.8) else (k,))
        b = d.normal((*batch[d.int(0, len(batch)) :], k, n) if d.maybe(0.8) else (k,))
        return form("MatMul", a, b)
    equation, shapes = d.choose(
        ("ij,jk->ik", [(3, 4), (4, 2)]), ("bij,bjk->bik", [(2, 3, 4), (2, 4, 2)]),
        ("ii->i", [(4, 4)]), ("ij->ji", [(3, 4)]), ("i,j->ij", [(3,), (4,)]), ("ij->", [(3, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 2)]), ("bhid,bhjd->bhij", [(1, 2, 3, 4)] * 2),
        ("i,i", [(4,), (4,)]), ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("ij,ij->i", [(3, 4)] * 2),
        ("abc,cd->abd", [(2, 3, 4), (4, 5)]), ("b...i->...ib", [(2, 3, 4)]),
    )  # fmt: skip
    return form("Einsum", *(d.normal(s) for s in shapes), equation=equation)


def norm(d: Draw) -> Form:
    kind = d.int(0, 6)
    x = d.normal((d.int(1, 3), 2 * d.int(1, 3), *d.ints(1, 5, d.int(0, 3))))
    channels = x.shape[1]
    scale, bias = d.normal((channels,)), d.normal((channels,))
    epsilon = d.some({"epsilon": 1e-3})
    if kind == 0:
        mean, var = d.normal((channels,)), np.abs(d.normal((channels,))) + np.float32(0.1)
        constants = (1, 2, 3, 4) if d.maybe() else ()
        if d.maybe(0.3):
            return form(
                "BatchNormalization", x, scale, bias, mean, var, results=d.choose(1, 3),
                training_mode=1, opset=15, **epsilon, **d.some({"momentum": 0.7}),
            )  # fmt: skip
        return form("BatchNormalization", x, scale, bias, mean, var, constants=constants, **epsilon)
    if kind == 1:
        axis = d.axis(x.ndim)
        shape = x.shape[axis % x.ndim :]
        third = [d.normal(shape)] if d.maybe() else []
        return form(
            "LayerNormalization", x, d.normal(shape), *third, results=d.int(1, 3), axis=axis,
            opset=17, tolerance=1e-4, **epsilon,
        )  # fmt: skip
    if kind == 2:
        x = d.normal((*x.shape, 3))
        return form("InstanceNormalization", x, scale, bias, tolerance=1e-4, **epsilon)
    if kind == 3:
        x = d.normal((*x.shape, 3))
        groups = d.choose(1, 2, channels)
        return form(
            "GroupNormalization", x, scale, bias, num_groups=groups, tolerance=1e-4, **epsilon
        )
    if kind == 4:
        axis = d.axis(x.ndim)
        return form(
            "RMSNormalization",
            x,
            d.normal(x.shape[axis % x.ndim :]),
            axis=axis,
            opset=23,
            **epsilon,
        )
    if kind == 5:
        attrs = d.some({"axis": d.axis(x.ndim), "p": d.int(1, 2)})
        return form("LpNormalization", x, **attrs)
    x = d.normal((*x.shape[:2], 3, 4))
    return form("MeanVarianceNormalization", x, tolerance=1e-3, **d.some({"axes": [0, 2, 3]}))


def _scale(d: Draw, shape: tuple[int, ...]) -> np.ndarray:
    return (0.02 + np.abs(d.normal(shape)) / 20).astype("float32")


def quantize(d: Draw) -> Form:
    x = d.normal((d.int(1, 3), 2 * d.int(1, 3), 2 * d.int(1, 2)))
    dtype = d.choose("uint8", "int8")
    kind = d.int(0, 4)
    if kind == 4:
        return form("DynamicQuantizeLinear", x, results=3)
    axis, attrs = d.axis(3), {}
    shape: tuple[int, ...] = ()
    if d.maybe(0.6):
        shape, attrs = (x.shape[axis],), {"axis": axis}
        if d.maybe(0.4) and axis % 3:
            size = d.choose(1, 2)
            wide = list(x.shape)
            wide[axis] //= size
            shape, attrs = tuple(wide), {"axis": axis, "block_size": size}
    scale = _scale(d, shape)
    zero = d.rng.integers(0, 9, shape).astype(dtype)
    zeros = [np.asarray(zero)] if d.maybe(0.8) else []
    constants = (1, 2) if d.maybe() else ()
    if kind < 2:
        return form("QuantizeLinear", x, np.asarray(scale), *zeros, constants=constants, **attrs)
    q = d.rng.integers(0, 100, x.shape).astype(dtype if zeros or d.maybe() else "int32")
    return form("DequantizeLinear", q, np.asarray(scale), *zeros, constants=constants, **attrs)


def quantized_product(d: Draw) -> Form:
    dtype = d.choose("uint8", "int8")
    m, n, k = d.ints(1, 6, 3)
    kind = d.int(0, 3)

    def numbers(shape: tuple[int, ...]) -> np.ndarray:
        low = 0 if dtype == "uint8" else -50
        return np.asarray(d.rng.integers(low, 100, shape)).astype(dtype)

    def parameters(shape: tuple[int, ...] = ()) -> list[np.ndarray]:
        return [np.asarray(_scale(d, shape)), np.asarray(d.rng.integers(0, 5, shape)).astype(dtype)]

    if kind == 0:
        batch = (d.int(1, 2),) if d.maybe() else ()
        per = (n,) if d.maybe(0.3) and not batch else ()
        return form(
            "QLinearMatMul", numbers((*batch, m, k)), *parameters(),
            numbers((*batch, k, n)), *parameters(per), *parameters(),
        )  # fmt: skip
    if kind == 1:
        zeros = [parameters()[1], parameters()[1]][: d.int(0, 2)]
        return form("MatMulInteger", numbers((m, k)), numbers((k, n)), *zeros)
    groups = d.choose(1, 2)
    x = numbers((1, groups * d.int(1, 2), *d.ints(3, 6, 2)))
    outer = groups * d.int(1, 3)
    w = numbers((outer, x.shape[1] // groups, *d.ints(1, 3, 2)))
    attrs = {"group": groups, **d.some({"pads": d.ints(0, 2, 4), "strides": d.ints(1, 2, 2)})}
    if kind == 2:
        bias = [d.rng.integers(-500, 500, outer).astype("int32")] if d.maybe() else []
        per = (outer,) if d.maybe(0.3) else ()
        weights = parameters(per)
        if per:
            weights[1] = np.zeros(per, dtype)
        return form("QLinearConv", x, *parameters(), w, *weights, *parameters(), *bias, **attrs)
    zeros = [parameters()[1], parameters()[1]][: d.int(0, 2)]
    return form("ConvInteger", x, w, *zeros, **attrs)


def signal(d: Draw) -> Form:
    kind = d.int(0, 2)
    if kind == 0:
        real = d.maybe()
        x = d.normal((*d.shape(d.int(2, 3), 6), 1 if real else 2))
        axis = d.int(0, x.ndim - 2)
        length = [np.array(d.int(1, 9))] if d.maybe(0.4) else [None]
        attrs = d.some({"onesided": 1}, 0.6) if real else d.some({"inverse": 1})
        return form("DFT", x, *length, np.array(axis), constants=(1, 2), opset=20, **attrs)
    if kind == 1:
        x = d.normal((d.int(1, 2), d.int(12, 20), 1))
        length, step = d.int(4, 8), d.int(1, 4)
        window = d.normal((length,)) if d.maybe() else None
        inputs = [window, np.array(length)] if window is None or d.maybe() else [window]
        return form("STFT", x, np.array(step), *inputs, constants=(1, 2, 3), opset=17,
                    **d.some({"onesided": d.int(0, 1)}))  # fmt: skip
    op_type = d.choose("HannWindow", "HammingWindow", "BlackmanWindow")
    return form(
        op_type,
        np.array(d.int(2, 9)),
        constants=(0,),
        opset=17,
        **d.some({"periodic": d.int(0, 1)}),
    )


def recurrent(d: Draw) -> Form:
    kind, gates = d.choose(("RNN", 1), ("GRU", 3), ("LSTM", 4))
    direction = d.choose("forward", "reverse", "bidirectional")
    ways = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = d.ints(1, 4, 4)
    inputs: list[Any] = [
        d.normal((steps, batch, size)), d.normal((ways, gates * hidden, size)),
        d.normal((ways, gates * hidden, hidden)),
    ]  # fmt: skip
    if d.maybe():
        inputs.append(d.normal((ways, 2 * gates * hidden)))
        lengths = [None, np.array(d.ints(1, steps, batch), "int32")][d.int(0, 1)]
        if d.maybe():
            inputs += [lengths, d.normal((ways, batch, hidden))]
    attrs = {"hidden_size": hidden, "direction": direction}
    if kind == "GRU":
        attrs |= d.some({"linear_before_reset": 1})
    results = d.int(1, 3 if kind == "LSTM" else 2)
    return form(kind, *inputs, constants=(1, 2, 3), results=results, tolerance=1e-4, **attrs)


def loss(d: Draw) -> Form:
    shape = (d.int(1, 3), d.int(2, 5), *d.ints(1, 3, d.int(0, 2)))
    target = d.rng.integers(0, shape[1], (shape[0], *shape[2:]))
    weight = [np.abs(d.normal((shape[1],)))] if d.maybe() else []
    attrs = d.some({"reduction": d.choose("none", "sum", "mean"), "ignore_index": 1})
    op_type = d.choose("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    return form(op_type, d.normal(shape), target, *weight, opset=13, tolerance=1e-4, **attrs)


def range_(d: Draw) -> Form:
    dtype = d.choose("int64", "float32", "int32")
    start, delta = d.int(-4, 4), d.choose(-2, -1, 1, 3)
    limits = [np.array(v).astype(dtype) for v in (start, start + delta * d.int(0, 5) + 1, delta)]
    return form("Range", *limits, constants=(0, 1, 2))


NUMBERS = (
    unary, unary, activation, activation, activation, binary, binary, cast, reduction, reduction,
    arg_reduction, top_k, cumulative, product, product, norm, norm, quantize, quantize,
    quantized_product, signal, recurrent, loss, range_,
)  # fmt: skip
