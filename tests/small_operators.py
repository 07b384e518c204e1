"""One small operator of each kind in the bench's suites, and what numpy makes of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import ModuleType

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bench.suites import attention, conv, gemm, norm, ops
from bench.suites.facts import sizes
from bench.workload import Case, Input, Workload

_IMAGE = {"N": 2, "C": 6, "H": 9, "W": 8, "KH": 3, "KW": 3, "stride": 2, "pad": 1}
_SEQUENCES = {"B": 2, "H": 3, "S": 16, "D": 8}
_ROWS = {"rows": 5, "length": 24}


def _small(suite: ModuleType, family: str, extents: dict[str, int | str]) -> Workload:
    name = suite.__name__.rpartition(".")[2]
    return Workload(name, "small", family, "float32", None, sizes(extents))


# kind -> its suite, and the workload in float32.
SMALL: dict[str, tuple[ModuleType, Workload]] = {
    "product": (ops, _small(ops, "matmul", {"M": 6, "N": 10, "K": 24})),
    "product_transposed": (gemm, _small(gemm, "small", {"B": 1, "M": 6, "N": 10, "K": 24})),
    "batched": (gemm, _small(gemm, "batched", {"B": 3, "M": 6, "N": 10, "K": 24})),
    "conv": (ops, _small(ops, "conv", _IMAGE | {"F": 4, "layout": "nchw"})),
    "conv_1x1_skipping": (
        conv,
        _small(conv, "nchw", _IMAGE | {"F": 4, "layout": "nchw", "KH": 1, "KW": 1, "pad": 0}),
    ),
    "conv_nhwc": (conv, _small(conv, "nhwc", _IMAGE | {"F": 4, "layout": "nhwc"})),
    "depthwise": (ops, _small(ops, "depthwise", _IMAGE)),
    "relu": (ops, _small(ops, "elementwise", {"N": 2, "C": 3, "H": 5, "W": 4})),
    "pooling": (ops, _small(ops, "pooling", _IMAGE)),
    "row_sum": (ops, _small(ops, "reduce", {"spatial": 7, "reduce": 33})),
    "attention": (attention, _small(attention, "short", _SEQUENCES)),
    "causal_attention": (attention, _small(attention, "causal", _SEQUENCES)),
    "softmax": (norm, _small(norm, "softmax", _ROWS)),
    "layer_norm": (norm, _small(norm, "layer_norm", _ROWS)),
    "rms_norm": (norm, _small(norm, "rms_norm", _ROWS)),
}


def small_case(kind: str, dtype: str) -> Case:
    """The case of one kind, its inputs in ``dtype``."""
    suite, workload = SMALL[kind]
    case: Case = suite.case(workload)
    return replace(case, inputs=tuple(Input(i.shape, dtype) for i in case.inputs))


def _windows(x: np.ndarray, window: int, stride: int, pad: int) -> np.ndarray:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return sliding_window_view(padded, (window, window), (2, 3))[:, :, ::stride, ::stride]


def _conv(x: np.ndarray, w: np.ndarray, pad: int = 1) -> np.ndarray:
    return np.einsum("ncyxij,fcij->nfyx", _windows(x, w.shape[-1], 2, pad), w)


def _conv_nhwc(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("ncyxij,fijc->nyxf", _windows(np.moveaxis(x, 3, 1), 3, 2, 1), w)


def _depthwise(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("ncyxij,cij->ncyx", _windows(x, 3, 2, 1), w[:, 0])


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    scores = np.einsum("bhid,bhjd->bhij", q, k) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[2], dtype=bool), scores, -np.inf)
    return np.einsum("bhij,bhjd->bhid", _softmax(scores), v)


def _layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias


def _rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight


# kind -> the same function of the same inputs.
KINDS: dict[str, Callable[..., np.ndarray]] = {
    "product": lambda x, w: x @ w,
    "product_transposed": lambda x, w: x @ w.T,
    "batched": lambda x, w: np.einsum("bmk,bnk->bmn", x, w),
    "conv": _conv,
    "conv_1x1_skipping": partial(_conv, pad=0),
    "conv_nhwc": _conv_nhwc,
    "depthwise": _depthwise,
    "relu": lambda x: np.where(x > 0, x, 0),
    "pooling": lambda x: _windows(x, 3, 2, 1).sum((-2, -1)) / 9,
    "row_sum": lambda x: x.sum(-1),
    "attention": _attention,
    "causal_attention": partial(_attention, causal=True),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
}
