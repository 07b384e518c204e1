"""Types of an ONNX model's tensors. Knows ONNX, not TVM."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import onnx

from tvm_tile.frontend.onnx.model import outline
from tvm_tile.frontend.onnx.rewrite import free_names
from tvm_tile.frontend.onnx.unrolling import iterations

_log = logging.getLogger(__name__)

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_MAX_PROPAGATED = 1 << 16


def inferred_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto.Tensor]:
    """Element types and shapes of the main graph's tensors, as far as ONNX infers them.

    Where a pool rounds its result's extents up, ONNX's own inference (of 1.23) counts windows that
    begin behind the tensor, and what is computed from its shape is wrong.
    """
    outlined = outline(model)
    for node in outlined.graph.node:
        # ONNX's inference forgets the default.
        if node.op_type == "STFT" and all(a.name != "onesided" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("onesided", 1))
    types = _inferred(outlined, data_prop=False)
    for node in outlined.graph.node:
        if node.op_type in POOLS and _rounds_up(node, static_extents(types.get(node.input[0]))):
            types = _inferred(outlined, data_prop=False)
    told: dict[str, onnx.ValueInfoProto] = {}
    while more := {name: v for name, v in _of_loops(outlined, types).items() if name not in told}:
        told |= more
        outlined.graph.value_info.extend(more.values())
        types = _inferred(outlined, data_prop=False)
    # ONNX propagates the values of vectors of integers one by one, however long they are.
    longest = max((_vector_length(tensor) for tensor in types.values()), default=0)
    return types if longest > _MAX_PROPAGATED else _inferred(outlined, data_prop=True)


def inferred_graph(model: onnx.ModelProto, *, data_prop: bool = False) -> onnx.GraphProto:
    """The graph of a model, and those inside its nodes, with types as far as ONNX infers them."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=data_prop).graph
    except Exception as error:  # a node that contradicts itself is found at its conversion
        _log.info("no shapes inferred: %s", error)
        return model.graph


def _inferred(model: onnx.ModelProto, *, data_prop: bool) -> dict[str, onnx.TypeProto.Tensor]:
    found = inferred_graph(model, data_prop=data_prop)
    return {
        value.name: value.type.tensor_type
        for value in (*found.input, *found.value_info, *found.output)
        if value.type.HasField("tensor_type")
    }


def _of_loops(
    model: onnx.ModelProto, types: Mapping[str, onnx.TypeProto.Tensor]
) -> dict[str, onnx.ValueInfoProto]:
    """Types of the results of loops whose iterations keep those of what they carry.

    ONNX's own inference says nothing of their extents, nor of how many rows there are.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    known = {name: tensor for name, tensor in types.items() if static_extents(tensor) is not None}
    found: dict[str, onnx.ValueInfoProto] = {}
    for node in model.graph.node:
        carried = list(node.input[2:])
        if node.op_type != "Loop" or not known.keys() | constants.keys() >= {*carried}:
            continue
        graph = onnx.GraphProto()
        graph.CopyFrom(next(a.g for a in node.attribute if a.name == "body"))
        given = [_type_of(name, known, constants) for name in carried]
        for value, tensor in zip(graph.input[2:], given, strict=False):
            value.type.tensor_type.CopyFrom(tensor)
        outer = free_names(graph)
        graph.initializer.extend(constants[name] for name in outer if name in constants)
        graph.input.extend(_typed(name, types[name]) for name in outer if name in types)
        results = [value.name for value in graph.output][1:]
        for value in graph.output:
            value.ClearField("type")
        body = onnx.ModelProto(
            ir_version=model.ir_version, opset_import=model.opset_import, graph=graph
        )
        inner = _inferred(body, data_prop=False)
        made = [inner.get(name, onnx.TypeProto.Tensor()) for name in results]
        if any(static_extents(a) != static_extents(b) for a, b in zip(made, given, strict=False)):
            continue
        count = iterations(node, constants)
        for place, (name, tensor) in enumerate(zip(node.output, made, strict=False)):
            if place >= len(carried) and count is not None:
                whole = onnx.TypeProto.Tensor(elem_type=tensor.elem_type)
                whole.shape.dim.add().dim_value = count
                whole.shape.dim.extend(tensor.shape.dim)
                tensor = whole
            if name and static_extents(tensor) is not None and (place < len(carried) or count):
                found[name] = _typed(name, tensor)
    return found


def _type_of(
    name: str,
    types: Mapping[str, onnx.TypeProto.Tensor],
    constants: Mapping[str, onnx.TensorProto],
) -> onnx.TypeProto.Tensor:
    """The type of a tensor that is known by its type or its value."""
    if name in types:
        return types[name]
    tensor = constants[name]
    made = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return made.tensor_type


def _typed(name: str, tensor: onnx.TypeProto.Tensor) -> onnx.ValueInfoProto:
    return onnx.ValueInfoProto(name=name, type=onnx.TypeProto(tensor_type=tensor))


def _vector_length(tensor: onnx.TypeProto.Tensor) -> int:
    """Length of a vector of integers, as far as it is known; 0 for any other tensor."""
    extents = static_extents(tensor)
    is_integer = tensor.elem_type in (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
    return extents[0] if extents is not None and len(extents) == 1 and is_integer else 0


def static_extents(tensor: onnx.TypeProto.Tensor | None) -> tuple[int, ...] | None:
    """The extents of a tensor, where all are known."""
    if tensor is None or not tensor.HasField("shape"):
        return None
    if not all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in tensor.shape.dim):
        return None
    return tuple(int(dim.dim_value) for dim in tensor.shape.dim)


def _rounds_up(node: onnx.NodeProto, extents: tuple[int, ...] | None) -> bool:
    """Whether a pool of a tensor rounds its result's extents up.

    In place it becomes one that rounds them down, and whose result has as many elements.
    """
    attributes: dict[str, Any] = {
        attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
    }
    if not attributes.get("ceil_mode") or extents is None or len(extents) < 3:
        return False
    kernel = attributes.get("kernel_shape", ())
    padding = attributes.get("auto_pad", b"NOTSET")
    if padding not in (b"NOTSET", b"VALID") or len(kernel) != len(extents) - 2:
        return False
    ones, zeros = [1] * len(kernel), [0] * len(kernel)
    pads = list(attributes.get("pads") or zeros * 2)
    strides, dilations = (attributes.get(name) or ones for name in ("strides", "dilations"))
    if len(pads) != 2 * len(kernel) or not len(kernel) == len(strides) == len(dilations):
        return False
    if min(strides) < 1:
        return False
    for axis, (extent, step) in enumerate(zip(extents[2:], strides, strict=True)):
        before, after = pads[axis], pads[axis + len(kernel)]
        span = (kernel[axis] - 1) * dilations[axis] + 1
        last = -(-(extent + before + after - span) // step) * step
        # A window that would begin in the padding behind the tensor is none.
        if last < extent + before:
            pads[axis + len(kernel)] += step - 1
    for attribute in [a for a in node.attribute if a.name in ("auto_pad", "ceil_mode", "pads")]:
        node.attribute.remove(attribute)
    node.attribute.append(onnx.helper.make_attribute("pads", pads))
    return True
