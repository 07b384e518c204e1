"""What the sequences of an ONNX model hold. Knows ONNX, not TVM."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import numpy_helper

from tvm_tile.frontend.onnx.types import static_extents


def sequence_tensors(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto]
) -> dict[str, tuple[str, ...]]:
    """The names of the tensors in each sequence of a graph, as far as they are known.

    Args:
        graph: its nodes are in topological order.
        constants: its constants, by their names.
    """
    held: dict[str, tuple[str, ...]] = {}
    for node in graph.node:
        tensors: tuple[str, ...] | None = None
        if node.op_type == "SequenceConstruct":
            tensors = tuple(node.input)
        elif node.op_type == "SequenceEmpty":
            tensors = ()
        elif node.op_type == "Identity":
            tensors = held.get(node.input[0])
        elif node.op_type in ("SequenceInsert", "SequenceErase") and node.input[0] in held:
            tensors = _changed(node, held[node.input[0]], constants)
        if tensors is not None:
            held[node.output[0]] = tensors
    return held


def tensor_at(
    node: onnx.NodeProto,
    held: Mapping[str, tuple[str, ...]],
    constants: Mapping[str, onnx.TensorProto],
) -> str | None:
    """The tensor that a ``SequenceAt`` takes, where that is known."""
    if node.op_type != "SequenceAt" or node.input[0] not in held:
        return None
    tensors, place = held[node.input[0]], _number(node.input[1], constants)
    return tensors[place] if place is not None and -len(tensors) <= place < len(tensors) else None


def sequence_length(
    node: onnx.NodeProto,
    held: Mapping[str, tuple[str, ...]],
    makers: Mapping[str, onnx.NodeProto],
    types: Mapping[str, onnx.TypeProto.Tensor],
    constants: Mapping[str, onnx.TensorProto],
) -> int | None:
    """What a ``SequenceLength`` finds, where that is known.

    Args:
        node: of any operator.
        held: from :func:`sequence_tensors`.
        makers: name -> the node that makes it.
        types: of the graph's tensors.
        constants: its constants, by their names.
    """
    if node.op_type != "SequenceLength":
        return None
    name = node.input[0]
    if name in held:
        return len(held[name])
    maker = makers.get(name)
    if maker is None or maker.op_type != "SplitToSequence":
        return None
    return _parts(maker, types, constants)


def _changed(
    node: onnx.NodeProto, tensors: tuple[str, ...], constants: Mapping[str, onnx.TensorProto]
) -> tuple[str, ...] | None:
    """The tensors behind a change at a known place."""
    inserted = [node.input[1]] if node.op_type == "SequenceInsert" else []
    end = len(tensors) if inserted else len(tensors) - 1
    given = node.input[1 + len(inserted) :]
    place = _number(given[0], constants) if given and given[0] else end
    if place is None or not -len(tensors) <= place <= end:
        return None
    if place < 0:
        place += len(tensors)
    return (*tensors[:place], *inserted, *tensors[place + (not inserted) :])


def _number(name: str, constants: Mapping[str, onnx.TensorProto]) -> int | None:
    if name not in constants:
        return None
    value = numpy_helper.to_array(constants[name])
    return int(value.reshape(-1)[0]) if value.size == 1 else None


def _parts(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto.Tensor],
    constants: Mapping[str, onnx.TensorProto],
) -> int | None:
    """How many parts a tensor is split into."""
    extents = static_extents(types.get(node.input[0]))
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    if extents is None or not -len(extents) <= axis < len(extents):
        return None
    if len(node.input) < 2 or not node.input[1]:
        return extents[axis]
    if node.input[1] not in constants:
        return None
    sizes = numpy_helper.to_array(constants[node.input[1]])
    if sizes.ndim:
        return len(sizes)
    return -(-extents[axis] // int(sizes)) if int(sizes) > 0 else None
