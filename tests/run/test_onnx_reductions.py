"""ONNX's reductions of integers and truths: element types and values are ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_tile

runtime = pytest.importorskip("onnxruntime")

INTEGERS = ("Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
X = np.array([[-7, 2, 4, 0], [5, 6, -3, 1], [1, 2, 3, 4]])


@pytest.mark.parametrize(
    ("dtype", "names", "opset"),
    [("int32", INTEGERS, 13), ("int64", ("Mean", "L2"), 13), ("bool", ("Max", "Min"), 20)],
)
def test_reductions(dtype: str, names: tuple[str, ...], opset: int) -> None:
    x = X[2:] if dtype != "bool" else X.astype(bool)
    x = np.concatenate([X, x]).astype(dtype) if dtype == "int64" else x.astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    axes = {"axes": [1]} if opset < 18 else {}
    others = ["axes"] if opset >= 18 else []
    nodes = [
        helper.make_node(f"Reduce{name}", ["x", "axes"], [name], keepdims=0)
        if name == "Sum"
        else helper.make_node(f"Reduce{name}", ["x", *others], [name], keepdims=0, **axes)
        for name in names
    ]
    given = helper.make_tensor_value_info("x", kind, x.shape)
    outputs = [helper.make_tensor_value_info(name, kind, x.shape[:1]) for name in names]
    along = helper.make_tensor("axes", onnx.TensorProto.INT64, [1], [1])
    graph = helper.make_graph(nodes, "g", [given], outputs, [along])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = tvm_tile.compile(model, device="emulated")(x)
    for name, output, wanted in zip(names, found, session.run(None, {"x": x}), strict=True):
        assert output.dtype == wanted.dtype, name
        np.testing.assert_array_equal(output, wanted, name)
