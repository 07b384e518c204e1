"""What ONNX's own checker lets through in a model, and its libraries then fall over.

Each of these ended in an exception of protobuf's, NumPy's or TVM's, or ended the process.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
from onnx.external_data_helper import uses_external_data

from tvm_tile.frontend.onnx.rewrite import graphs_of

_VARIOUS_SIZES = frozenset({onnx.TensorProto.STRING, onnx.TensorProto.UNDEFINED})


def problems(model: onnx.ModelProto) -> Iterator[str]:
    """A sentence for each thing that is wrong."""
    versions = {opset.domain: int(opset.version) for opset in model.opset_import}
    for body in bodies(model):
        if isinstance(body, onnx.GraphProto):
            parts = (part for one in body.sparse_initializer for part in (one.values, one.indices))
            yield from (p for tensor in body.initializer for p in _tensor_problems(tensor))
            yield from (p for tensor in parts for p in _sparse_problems(tensor))
        for node in body.node:
            yield from _node_problems(node, versions)


def texts(model: onnx.ModelProto) -> Iterator[str | bytes]:
    """Every name in a model; protobuf gives bytes for what is no valid text."""
    for opset in model.opset_import:
        yield opset.domain
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output)
    for body in bodies(model):
        for node in body.node:
            yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)
        if isinstance(body, onnx.GraphProto):
            yield from (tensor.name for tensor in body.initializer)
            yield from (tensor.values.name for tensor in body.sparse_initializer)
            for value in (*body.input, *body.output):
                yield value.name
                yield from (dim.dim_param for dim in value.type.tensor_type.shape.dim)


def bodies(model: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """The graph, the functions, and every graph inside a node."""
    waiting: list[onnx.GraphProto | onnx.FunctionProto] = [model.graph, *model.functions]
    while waiting:
        body = waiting.pop()
        yield body
        for node in body.node:
            for attribute in node.attribute:
                waiting.extend(graphs_of(attribute))


def _tensor_problems(tensor: onnx.TensorProto) -> Iterator[str]:
    """A tensor whose bytes are not as many as its shape says."""
    if not tensor.HasField("raw_data") or tensor.data_type in _VARIOUS_SIZES:
        return
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        yield f"tensor {tensor.name!r} is of element type {tensor.data_type}"
        return
    count = math.prod(tensor.dims)
    packed = {"int4": 2, "uint4": 2, "float4_e2m1fn": 2, "int2": 4, "uint2": 4}.get(dtype.name)
    size = -(-count // packed) if packed else count * dtype.itemsize
    if min(tensor.dims, default=0) < 0 or len(tensor.raw_data) != size:
        yield (
            f"tensor {tensor.name!r} of {dtype.name}{list(tensor.dims)} has "
            f"{len(tensor.raw_data):,} bytes, not {size:,}"
        )


def _sparse_problems(tensor: onnx.TensorProto) -> Iterator[str]:
    """Values or indices of a sparse tensor that ``onnx.load`` does not read."""
    if uses_external_data(tensor):
        yield f"a part {tensor.name!r} of a sparse tensor lies in another file"
    yield from _tensor_problems(tensor)


def _node_problems(node: onnx.NodeProto, versions: dict[str, int]) -> Iterator[str]:
    """Inputs that are left out but needed, and numbers that ONNX's inference indexes with."""
    where = f"{node.op_type} node {node.name or (node.output[0] if node.output else '')!r}"
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            yield from _tensor_problems(attribute.t)
        if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
            yield from _sparse_problems(attribute.sparse_tensor.values)
            yield from _sparse_problems(attribute.sparse_tensor.indices)
        if attribute.name == "batch_dims" and not 0 <= attribute.i < 64:
            yield f"{where}: batch_dims {attribute.i}"
    version = versions.get(node.domain, 1)
    if not onnx.defs.has(node.op_type, max_inclusive_version=version, domain=node.domain):
        return
    formal = onnx.defs.get_schema(node.op_type, version, node.domain).inputs
    for i, name in enumerate(node.input):
        parameter = formal[min(i, len(formal) - 1)] if formal else None
        if not name and parameter and parameter.option != _OPTIONAL:
            yield f"{where}: input {i} ({parameter.name}) is left out"


_OPTIONAL = onnx.defs.OpSchema.FormalParameterOption.Optional
