"""ONNX's own node tests of quantized operators, as they are and with constant codes."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from bench.cpu_build import run_on_cpu
from bench.node_cases import compare
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import import_model
from tvm_tile.frontend.onnx.model import bind_constants, free_inputs

_FACTORS = ("2D", "3D")
_SCALES = ("float16", "float32")
PRODUCTS = [
    f"qlinearmatmul_{rank}_{code}_{scale}"
    for rank in _FACTORS
    for code in ("int8", "uint8")
    for scale in _SCALES
]
DEQUANTIZED = [
    f"dequantizelinear{form}"
    for form in (
        *("", "_axis", "_blocked", "_int16", "_uint16", "_int4", "_uint4", "_int2", "_uint2"),
        *("_e4m3fn", "_e4m3fn_float16", "_e4m3fn_zero_point", "_e5m2", "_float4e2m1"),
    )
]
# Whose codes TVM has no inputs of.
_CONSTANT_ONLY = ("int4", "uint4", "int2", "uint2", "e4m3", "e5m2", "e2m1")


@functools.cache
def node_tests() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests are computed on loading, infinities included
        return {test.name: test for test in load_model_tests(kind="node")}


def array_of(value: Any) -> np.ndarray:
    is_proto = isinstance(value, onnx.TensorProto)
    return numpy_helper.to_array(value) if is_proto else np.asarray(value)


def check(name: str, constants: slice) -> None:
    """That the node computes what its test says, these of its inputs being constants."""
    test = node_tests()[f"test_{name}"]
    inputs, outputs = (list(map(array_of, arrays)) for arrays in test.data_sets[0])
    model = onnx.ModelProto.FromString(test.model.SerializeToString())
    given = dict(zip((value.name for value in free_inputs(model.graph)), inputs, strict=True))
    bound = dict(list(given.items())[constants])
    bind_constants(model, bound)
    imported = import_model(model)
    left = tuple(array for key, array in given.items() if key not in bound)
    verdict = compare(run_on_cpu(imported.mod, left), outputs, test.rtol)
    assert verdict.status == "passed", verdict.detail


@pytest.mark.parametrize("name", PRODUCTS)
def test_quantized_products(name: str) -> None:
    check(name, slice(0, 0))
    check(name, slice(1, None))


@pytest.mark.parametrize("name", DEQUANTIZED)
def test_dequantized_tensors(name: str) -> None:
    check(name, slice(0, None))
    if not any(code in name for code in _CONSTANT_ONLY):
        check(name, slice(0, 0))
        check(name, slice(1, None))
    elif "e4m3fn" not in name:  # of which TVM's CPU build reads zeros and NaN wrongly
        with pytest.raises(UnsupportedOperatorError, match="quantization to"):
            check(name, slice(0, 0))
