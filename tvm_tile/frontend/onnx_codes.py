"""Codes of a few bits in ONNX models, which must reach Relax as codes. Knows ONNX, not TVM."""

from __future__ import annotations

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx

# Of smaller tensors values are as good as codes.
_LEAST_CODES = 1 << 12
# What TVM has no constants of -> the least type of whole bytes that has all these numbers.
_WHOLE = {
    onnx.TensorProto.INT4: np.dtype(np.int8),
    onnx.TensorProto.UINT4: np.dtype(np.uint8),
    onnx.TensorProto.FLOAT4E2M1: np.dtype(ml_dtypes.float8_e4m3fn),
    **({onnx.TensorProto.INT2: np.dtype(np.int8)} if hasattr(onnx.TensorProto, "INT2") else {}),
    **({onnx.TensorProto.UINT2: np.dtype(np.uint8)} if hasattr(onnx.TensorProto, "UINT2") else {}),
}


def decodes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a node makes numbers of the codes of a large constant."""
    if node.op_type != "DequantizeLinear" or node.input[0] not in constants:
        return False
    return math.prod(constants[node.input[0]].dims) >= _LEAST_CODES


def with_whole_bytes(
    node: onnx.NodeProto, graph: onnx.GraphProto, constants: dict[str, onnx.TensorProto]
) -> onnx.NodeProto:
    """The node, with codes and zero points of less than a byte in a byte each.

    Args:
        node: reads codes.
        graph: is given the wider constants.
        constants: those of the graph, by name; is given them, too.
    """
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    for place, name in enumerate(node.input):
        if name not in constants or constants[name].data_type not in _WHOLE:
            continue
        dtype = _WHOLE[constants[name].data_type]
        wide = f"{name}.{dtype.name}"
        if wide not in constants:
            array = onnx.numpy_helper.to_array(constants[name]).astype(dtype)
            constants[wide] = onnx.numpy_helper.from_array(array, wide)
            graph.initializer.append(constants[wide])
        changed.input[place] = wide
    return changed
