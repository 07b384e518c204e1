"""Codes of a few bits in ONNX models, which must reach Relax as codes. Knows ONNX, not TVM."""

from __future__ import annotations

import math
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx

from tvm_tile.frontend.onnx.rewrite import walk_nodes

# Of smaller tensors values are as good as codes.
_LEAST_CODES = 1 << 12
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv"})
_BYTES = frozenset(
    getattr(onnx.TensorProto, name) for name in ("INT8", "UINT8", "FLOAT8E4M3FN", "FLOAT8E5M2")
)
_WIDE = frozenset(getattr(onnx.TensorProto, name) for name in ("INT16", "UINT16", "INT32"))
_BETWEEN = frozenset({"Cast", "Gather", "Identity", "Mul", "Reshape", "Transpose"})
# What TVM has no constants of, and the least type of whole bytes that has all these numbers. The
# older onnx is, the fewer of them it knows.
_NARROW = {
    **{"INT2": np.int8, "UINT2": np.uint8, "INT4": np.int8, "UINT4": np.uint8},
    "FLOAT4E2M1": ml_dtypes.float8_e4m3fn,
}
_WHOLE = {
    getattr(onnx.TensorProto, name): np.dtype(dtype)
    for name, dtype in _NARROW.items()
    if hasattr(onnx.TensorProto, name)
}


def decoded_weights(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto]
) -> frozenset[str]:
    """What nodes make of the codes of constants, for products and nothing else.

    That is of all codes of 8 bits or less of large constants, as weights may stay codes, and of
    bytes whose scales are no blocks', as products may be of these.

    Args:
        graph: of a model.
        constants: those of the graph, by name.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in walk_nodes(graph):
        for name in node.input:
            readers.setdefault(name, []).append(node)
    returned = {value.name for value in graph.output}

    def is_multiplied(name: str) -> bool:
        return name not in returned and all(
            node.op_type in _PRODUCTS
            or (node.op_type in _BETWEEN and all(map(is_multiplied, node.output)))
            for node in readers.get(name, ())
        )

    return frozenset(
        node.output[0]
        for node in graph.node
        if node.op_type == "DequantizeLinear"
        and node.input[0] in constants
        and (_is_of_bytes(node, constants) or _is_large(node, constants))
        and is_multiplied(node.output[0])
    )


def _is_of_bytes(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    is_blocked = any(a.name == "block_size" and a.i for a in node.attribute)
    return constants[node.input[0]].data_type in _BYTES and not is_blocked


def _is_large(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    codes = constants[node.input[0]]
    return codes.data_type not in _WIDE and math.prod(codes.dims) >= _LEAST_CODES


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
