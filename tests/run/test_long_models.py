"""Chains of hundreds of element-wise functions, which become kernels that compilers can take."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from scheduled import relax_module
from tvm import relax, tirx
from tvm.relax import op

import tvm_tile
from tvm_tile.device import find_device
from tvm_tile.stages.fusing import fuse

pytestmark = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
X = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
W = np.eye(8, dtype="float32")


def chain(value: Any, length: int) -> Any:
    """``length`` functions one behind the other."""
    builder = relax.BlockBuilder.current()
    for number in range(length):
        step = op.sin(value) if number % 2 else op.add(value, relax.const(0.75, "float32"))
        value = builder.emit(step)
    return value


def chained(array: np.ndarray, length: int) -> np.ndarray:
    for number in range(length):
        array = np.sin(array) if number % 2 else array + np.float32(0.75)
    return array


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_chains_before_between_and_behind_sums() -> None:
    def body(x: Any, w: Any) -> Any:
        normal = op.nn.softmax(chain(x, 260))
        return chain(op.matmul(chain(normal, 130), w), 130)

    model = tvm_tile.compile(relax_module(body, ((4, 8), (8, 8))), "emulated")
    expected = chained(chained(softmax(chained(X, 260)), 130) @ W, 130)
    np.testing.assert_allclose(model(X, W), expected, rtol=1e-4, atol=1e-5)
    assert not [kernel.name for kernel in model.report.kernels if kernel.fallback]


def test_values_used_twice_again_and_again() -> None:
    def body(x: Any) -> Any:
        builder = relax.BlockBuilder.current()
        for _ in range(40):
            x = builder.emit(op.multiply(x, op.sigmoid(x)))
        return x

    model = tvm_tile.compile(relax_module(body, ((4, 8),)), "emulated")
    expected = X
    for _ in range(40):
        expected = expected / (1 + np.exp(-expected))
    np.testing.assert_allclose(model(X), expected, rtol=1e-4, atol=1e-7)


def test_functions_grow_no_further_than_compilers_take() -> None:
    device = find_device("nvidia/h200")
    fused = fuse(relax_module(lambda x: chain(x, 1000), ((4, 8),)), device).mod
    sizes = [
        str(func).count("T.sblock(") - 1
        for func in fused.functions.values()
        if isinstance(func, tirx.PrimFunc)
    ]
    assert max(sizes) <= 110
    main = str(fused["main"])
    assert main.count("R.call_tir(") <= 25
