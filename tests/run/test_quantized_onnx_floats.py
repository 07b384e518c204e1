"""ONNX models whose operands are rounded to 8-bit floats."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import tvm_tile
from tests.cpu_build import run
from tvm_tile import Options
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend import from_onnx, import_model

ROWS, COLUMNS, DEPTH = 64, 96, 128
E4M3 = ml_dtypes.float8_e4m3fn


def model(kind: int, zero: float = 0, times: int = 1, **attributes: Any) -> onnx.ModelProto:
    """Quantize x, decode it, and multiply it with a decoded weight, each ``times`` as large."""
    rng = np.random.default_rng(0)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    constants = {
        "scale": np.array(0.02, dtype),
        "zero": np.array(zero, E4M3),
        "w_codes": rng.standard_normal((times * DEPTH, times * COLUMNS)).astype(E4M3),
        "w_scale": rng.random(times * COLUMNS).astype(dtype),
    }
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"], **attributes),
        helper.make_node("DequantizeLinear", ["codes", "scale"], ["decoded"]),
        helper.make_node("DequantizeLinear", ["w_codes", "w_scale"], ["w"], axis=1),
        helper.make_node("MatMul", ["decoded", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "floats",
        [helper.make_tensor_value_info("x", kind, (times * ROWS, times * DEPTH))],
        [helper.make_tensor_value_info("y", kind, (times * ROWS, times * COLUMNS))],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_products_are_right_beyond_the_largest_number_too() -> None:
    proto = model(TensorProto.FLOAT)
    x = 6 * np.random.default_rng(1).standard_normal((ROWS, DEPTH))
    x[0, :3] = 1e4, -np.inf, 0.02 * 464
    x = x.astype(np.float32)
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
    (found,) = run(import_model(proto), x)
    # (TVM's CPU build reads the least codes wrongly, few of which are here.)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3 * float(np.abs(expected).max()))


def test_others_builds_are_not_given_them() -> None:
    with pytest.raises(UnsupportedOperatorError, match="8-bit floats"):
        from_onnx(model(TensorProto.FLOAT))


def test_those_of_half_precision_are_those_of_warpgroups() -> None:
    compiled = tvm_tile.compile(
        model(TensorProto.FLOAT16, times=8), "nvidia/h100", options=Options(cache=False)
    )
    assert "wgmma" in {kernel.rule for kernel in compiled.report.kernels}


@pytest.mark.parametrize(("zero", "attributes"), [(1, {}), (0, {"saturate": 0})])
def test_refused(zero: float, attributes: dict[str, int]) -> None:
    with pytest.raises(UnsupportedOperatorError, match="quantization to float8_e4m3fn"):
        import_model(model(TensorProto.FLOAT, zero, **attributes))
