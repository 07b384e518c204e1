"""Forms of ONNX Runtime's own operators that are not drawn: each optional part, alone or not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bench.onnx_forms import Form, form
from bench.onnx_forms.microsoft_form import DOMAIN

_RNG = np.random.default_rng(7)
Array = np.ndarray | None


def case(op_type: str, *inputs: Any, **kept: Any) -> Form:
    """A form; numbers are given as arrays or lists, and those of half precision are looser."""
    arrays = [None if each is None else np.asarray(each) for each in inputs]
    is_half = any(a is not None and a.dtype == np.float16 for a in arrays)
    if is_half:
        kept = {"tolerance": 4e-3, "dtypes": ("float16",) * 3, **kept}
    return form(op_type, *arrays, domain=DOMAIN, **{"opset": 17, **kept})


def real(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.asarray(_RNG.normal(size=shape)).astype(dtype)


def half(*shape: int) -> np.ndarray:
    return real(*shape, dtype="float16")


def ints(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, "int32")


def byte(*shape: int, dtype: str = "uint8") -> np.ndarray:
    bounds = np.iinfo(dtype)
    return _RNG.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def code(scale: float, zero: int, dtype: str = "uint8") -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(scale, "float32"), np.asarray(zero, dtype)


def _angles(count: int, pairs: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    turns = np.arange(count)[:, None] * 0.7 ** np.arange(pairs)
    return np.cos(turns).astype(dtype), np.sin(turns).astype(dtype)


_X, _W, _B = real(2, 4, 6), real(6, 48), real(48)
_Q, _K, _V = real(2, 4, 16), real(2, 5, 16), real(2, 5, 12)
_PAST = real(2, 2, 2, 3, 8)
ATTENTION = (
    case("Attention", _X, _W, num_heads=2),
    case("Attention", _X, _W, _B, ints([[1, 1, 1, 0], [1, 0, 0, 0]]), num_heads=2),
    case("Attention", _X, _W, _B, ints(4, 2), num_heads=2, unidirectional=1),
    case("Attention", _X, _W, _B, ints(4, 2, 1, 0), num_heads=2, scale=0.2),
    case("Attention", _X, _W, _B, ints(1, 2, 3, 4, 5, 6, 7, 8), num_heads=2),
    case("Attention", _X, _W, _B, None, _PAST, results=2, num_heads=2, unidirectional=1),
    case("Attention", _X, _W, _B, ints(6, 3, 2, 1), _PAST, results=2, num_heads=2),
    case("MultiHeadAttention", _Q, _K, _V, num_heads=2),
    case("MultiHeadAttention", _Q, _K, _V, real(44), ints(5, 3), real(1, 2, 4, 5), num_heads=2),
    case("MultiHeadAttention", _Q, _Q, _Q, num_heads=4, unidirectional=1, opset=23),
    case("MultiHeadAttention", _Q, real(2, 2, 3, 8), real(2, 2, 3, 8), num_heads=2, results=3),
    case("MultiHeadAttention", _Q, _Q, _Q, None, None, None, *_PAST, num_heads=2, results=3),
    case("RotaryEmbedding", real(2, 3, 16), [[0, 1, 2], [4, 2, 0]], *_angles(5, 4)),
    case("RotaryEmbedding", real(2, 3, 16), [1], *_angles(5, 4), interleaved=1),
    case("RotaryEmbedding", real(2, 3, 4, 8), [1], *_angles(6, 4)),
    case("RotaryEmbedding", half(2, 3, 4, 8), [0], *_angles(4, 4, "float16")),
    case(
        "RotaryEmbedding", real(1, 3, 24), [0], *_angles(4, 2), num_heads=3, rotary_embedding_dim=4
    ),
    case(
        "QAttention", byte(2, 4, 6), byte(6, 48, dtype="int8"), _B, *code(0.02, 0)[:1],
        code(0.01, 0)[0], None, np.uint8(120), np.int8(0), num_heads=2,
    ),
    case(
        "QAttention", byte(2, 4, 6), byte(6, 48), _B, code(0.02, 0)[0],
        np.full(48, 0.01, "float32"), ints(4, 2), np.uint8(120), np.full(48, 9, "uint8"), _PAST,
        num_heads=2, unidirectional=1, results=2, constants=(1, 7),
    ),
)  # fmt: skip


def _group(
    batch: int, queries: int, old: int, room: int = 0, dtype: str = "float32", **kept: Any
) -> Form:
    """GroupQueryAttention of four heads over two, all lengths equal."""
    parts = [real(batch, queries, heads * 16, dtype=dtype) for heads in (4, 2, 2)]
    past: list[Array] = [None, None]
    if old or room:
        past = [real(batch, 2, old + room, 16, dtype=dtype) for _ in range(2)]
        for each in past:
            each[:, :, old:] = 0  # type: ignore[index]
    total = old + queries
    extra = kept.pop("extra", ())
    attrs = {"num_heads": 4, "kv_num_heads": 2, "results": 3, "constants": (6,), **kept}
    return case(
        "GroupQueryAttention", *parts, *past, np.full(batch, total - 1, "int32"), ints(total),
        *extra, **attrs,
    )  # fmt: skip


GROUPED = (
    _group(2, 5, 0),
    _group(2, 5, 0, local_window_size=2, softcap=3.0),
    _group(1, 5, 0, do_rotary=1, extra=_angles(8, 8)),
    _group(1, 5, 0, do_rotary=1, rotary_interleaved=1, extra=(*_angles(8, 8), [[2, 3, 4, 5, 6]])),
    _group(2, 1, 4, do_rotary=1, extra=_angles(8, 8)),
    _group(2, 1, 4, 3, do_rotary=1, extra=_angles(8, 8)),
    _group(1, 3, 4, do_rotary=1, extra=_angles(8, 8)),
    _group(1, 3, 4, 6),
    _group(1, 3, 0, 5),
    _group(2, 1, 4, 3, extra=(None, None, None, real(1, 4, 1, 5))),
    _group(1, 4, 0, causal=0, extra=(None, None, None, None, real(4))),
    _group(1, 4, 0, smooth_softmax=1, scale=0.5),
    _group(1, 4, 0, dtype="float16"),
    _group(2, 1, 3, dtype="float16"),
)

_GAMMA, _BETA = real(6), real(6)
NORMS = (
    case("SkipLayerNormalization", _X, _X + 1, _GAMMA),
    case("SkipLayerNormalization", _X, real(4, 6), _GAMMA, _BETA, opset=13),
    case("SkipLayerNormalization", _X, _X * 2, _GAMMA, None, _BETA, epsilon=0.1),
    case("SkipLayerNormalization", half(2, 6), half(2, 6), half(6), half(6), half(6)),
    case("SkipSimplifiedLayerNormalization", _X, _X + 1, _GAMMA),
    case("SkipSimplifiedLayerNormalization", _X[0], _X[1], _GAMMA, _BETA, epsilon=0.1),
    case("SkipSimplifiedLayerNormalization", half(2, 6), half(2, 6), half(6), opset=21),
    case("EmbedLayerNormalization", ints([[1, 2]]), None, real(9, 6), real(5, 6), None, _GAMMA,
         _BETA, results=2, dtypes=("float32", "int32")),
    case(
        "EmbedLayerNormalization", ints([[1, 2], [3, 0]]), ints([[0, 1], [1, 1]]), real(9, 6),
        real(5, 6), real(2, 6), _GAMMA, _BETA, ints([[1, 0], [1, 1]]), ints([[4, 0]]),
        results=2, dtypes=("float32", "int32"), opset=11,
    ),
    case("Gelu", real(3, 5), opset=20),
    case("FastGelu", real(3, 5), real(5), opset=20),
    case("BiasGelu", real(3, 5), real(5), opset=11),
    case("QuickGelu", real(3, 5), alpha=1.0),
)  # fmt: skip

_ROWS, _COLUMNS = real(3, 5), real(5, 4)
PRODUCTS = (
    case("FusedMatMul", real(5, 3), _COLUMNS, transA=1, alpha=0.5),
    case("FusedMatMul", real(2, 3, 5), real(4, 5), transB=1),
    case("FusedMatMul", real(3, 2, 5), real(2, 5, 4), transBatchA=1),
    case("FusedMatMul", real(2, 3, 5), real(4, 2, 5), transBatchB=1, transB=1),
    case("FusedGemm", _ROWS, _COLUMNS, activation="Relu"),
    case("FusedGemm", _ROWS, _COLUMNS.T.copy(), real(4), transB=1, activation="LeakyRelu",
         activation_alpha=0.3, beta=0.5),
    case("FusedConv", real(1, 4, 5, 5), real(6, 4, 3, 3), real(6), activation="Relu"),
    case("FusedConv", real(1, 4, 5, 5), real(6, 4, 3, 3), None, real(1, 6, 3, 3),
         activation="Relu"),
    case("FusedConv", real(1, 4, 6), real(6, 2, 3), group=2, strides=[2], pads=[1, 1],
         activation="Clip", activation_params=[0.0, 0.5]),
    case("FusedConv", real(1, 2, 6), real(3, 2, 3), auto_pad="SAME_UPPER", activation="HardSigmoid",
         activation_params=[0.2, 0.5]),
    case("MatMulInteger16", byte(2, 3).astype("int16") - 99, byte(3, 4).astype("int16"),
         dtypes=("int32",)),
    case("MatMulNBits", half(3, 32), byte(5, 1, 16), half(5), K=32, N=5, block_size=32,
         constants=(1, 2)),
    case("MatMulNBits", real(2, 3, 40), byte(5, 3, 16), real(15), None, None, real(5), K=40, N=5,
         block_size=16, bits=8, constants=(1, 2, 5), tolerance=1e-3),
)  # fmt: skip

_C, _D = code(0.03, 128), code(0.05, 100)
_CODED: dict[str, Any] = {"dtypes": ("uint8",)}
_WEIGHT = byte(5, 4, dtype="int8")


def _lstm(directions: int, dtype: str, direction: str, *others: Any) -> Form:
    """DynamicQuantizeLSTM of 5 steps of 4 numbers, state of 3; two directions' scales are many."""
    weights = [byte(directions, size, 12, dtype=dtype) for size in (4, 3)]
    columns = (12,) if directions > 1 else ()
    scale = np.full((directions, *columns), 0.02, "float32")
    zero = np.full((directions, *columns), 0 if dtype == "int8" else 120, dtype)
    parameters = (scale, zero) * 2
    return case(
        "DynamicQuantizeLSTM", real(5, 1, 4), *weights, *(*others, *(None,) * 5)[:5], *parameters,
        direction=direction, hidden_size=3, results=3, tolerance=2e-2,
        constants=(1, 2, *range(8, 12)),
    )  # fmt: skip


_SOFTMAX = case("QLinearSoftmax", byte(2, 3, 4), *_C, *code(1 / 256, 0), axis=1, **_CODED)
CODES = (
    replace(_SOFTMAX, attrs={"axis": 1, "opset": 17}),
    replace(_SOFTMAX, attrs={"axis": 1, "opset": 11}),
    case("QLinearAdd", byte(2, 3), *_C, byte(3), *_D, *_C, **_CODED),
    case("QLinearAdd", byte(2, 3, dtype="int8"), *code(0.1, 3, "int8"), byte(2, 3, dtype="int8"),
         *code(0.1, -3, "int8"), *code(0.2, 0, "int8"), dtypes=("int8",)),
    case("QLinearMul", byte(2, 3), *_C, byte(2, 1), *_D, *_C, **_CODED),
    case("QLinearMul", byte(2, 3), *_C, byte(), *_D, *_C, **_CODED),
    case("QLinearSigmoid", byte(2, 3), *_C, *code(1 / 256, 0), constants=(1, 2, 3, 4), **_CODED),
    case("QLinearLeakyRelu", byte(2, 3), *_C, *_D, alpha=0.2, constants=(1, 2, 3, 4), **_CODED),
    case("QLinearConcat", *_C, byte(2, 3), *_D, byte(2, 1), *_C, axis=1, **_CODED),
    case("QLinearConcat", *_C, byte(2, 3), *_D, axis=-1, constants=(0, 1, 2, 3, 4), **_CODED),
    case("QLinearWhere", [[True, False, True]], byte(2, 3), *_C, byte(2, 3), *_D, *_D, **_CODED),
    case("QLinearAveragePool", byte(1, 2, 5, 5), *_C, *_D, kernel_shape=[2, 2], ceil_mode=1,
         strides=[2, 2], **_CODED),
    case("QLinearAveragePool", byte(1, 5, 5, 2), *_C, *_D, kernel_shape=[3, 3], channels_last=1,
         pads=[1, 1, 1, 1], **_CODED),
    case("QLinearGlobalAveragePool", byte(2, 3, 4, 5), *_C, *_D, channels_last=0, **_CODED),
    case("QLinearGlobalAveragePool", byte(2, 4, 5, 3), *_C, *_D, channels_last=1, **_CODED),
    case("QGemm", byte(3, 5), *_C, _WEIGHT, *code(0.02, 0, "int8"), ints(1, 200, -300, 4), *_D,
         constants=(3, 6), **_CODED),
    case("QGemm", byte(3, 5), *_C, _WEIGHT.T.copy(), *code(0.02, 0, "int8"), transB=1),
    case("MatMulIntegerToFloat", byte(2, 3, 5), _WEIGHT, _C[0], np.full(4, 0.02, "float32"), _C[1],
         None, real(4)),
    case("MatMulIntegerToFloat", byte(3, 5), byte(5, 4), _C[0], _D[0], *(_C[1], _D[1])),
    case("DynamicQuantizeMatMul", _ROWS, _WEIGHT, _D[0], tolerance=2e-2),
    case("DynamicQuantizeMatMul", _ROWS, byte(5, 4), np.full(4, 0.02, "float32"),
         np.full(4, 99, "uint8"), real(4), constants=(1, 3), tolerance=2e-2),
    _lstm(1, "int8", "forward", None, None, None, None),
    _lstm(1, "uint8", "reverse", real(1, 24), None, real(1, 1, 3), real(1, 1, 3)),
    _lstm(2, "int8", "bidirectional", real(2, 24), None, real(2, 1, 3), real(2, 1, 3), real(2, 9)),
    case("QuantizeLinear", _ROWS * 3, *code(0.01, 300, "uint16"), dtypes=("uint16",)),
    case("QuantizeLinear", _ROWS, np.full(3, 0.02, "float32"), np.zeros(3, "int16"), axis=0,
         dtypes=("int16",), opset=21),
    case("DequantizeLinear", byte(3, 5, dtype="int16"), *code(0.01, -9, "int16")),
    case("DequantizeLinear", byte(3, 5), np.full(5, 0.02, "float32"), axis=1, opset=13),
)  # fmt: skip
