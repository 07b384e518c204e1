"""Fold constants of an ONNX model. Knows ONNX, not TVM.

TVM's importer needs shapes, axes and scales as constants, where exporters leave arithmetic on
shapes. Shapes are ONNX's own inference's (see :mod:`tvm_tile.frontend.onnx.types`), values those of
ONNX's own reference evaluator. (The
simplifiers in use have shape inferences of their own, which err: onnxslim's on a ``Pad`` whose
axes are in no order, so that a shape that was read behind it was folded wrong.)
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from tvm_tile.frontend.onnx.codes import decoded_weights, with_whole_bytes
from tvm_tile.frontend.onnx.model import SHAPE_ELEMENTS
from tvm_tile.frontend.onnx.random import ALWAYS_RANDOM
from tvm_tile.frontend.onnx.rewrite import (
    STANDARD_DOMAINS,
    opset_version,
    read_names,
    replace_nodes,
)
from tvm_tile.frontend.onnx.sequences import sequence_length, sequence_tensors, tensor_at
from tvm_tile.frontend.onnx.types import POOLS, inferred_types, static_extents

_log = logging.getLogger(__name__)

# Larger results than this stay operators: a file may describe huge weights by few bytes.
_MAX_BYTES = 1 << 28
# Whose results have as many elements as the data decide, never more than the inputs' ranks times
# theirs.
_SHRINKING = frozenset({"NonZero", "Unique", "Compress"})
# The reference evaluator of ONNX 1.23 errs on forms of these.
_MISJUDGED = frozenset({"LRN", "Resize", "Upsample", *POOLS})
_NOT_FOLDED = _MISJUDGED | ALWAYS_RANDOM | {"Dropout"}


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold node by node, and drop what is unused then; weights that are codes stay codes.

    Args:
        model: stays as it is.

    Returns:
        A new model with the same inputs and outputs.
    """
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    constants = {t.name: t for t in folded.graph.initializer}
    arrays: dict[str, np.ndarray] = {}
    # Every constant shape that is found may let shape inference find more.
    while _fold_once(folded, constants, arrays):
        pass
    _drop_unused(folded.graph)
    return folded


def _fold_once(
    model: onnx.ModelProto,
    constants: dict[str, onnx.TensorProto],
    arrays: dict[str, np.ndarray],
) -> bool:
    graph = model.graph
    types = inferred_types(model)
    opset = opset_version(model)
    held = sequence_tensors(graph, constants)
    makers = {name: node for node in graph.node for name in node.output}
    decoded = decoded_weights(graph, constants)
    kept = []
    is_changed = False
    for node in graph.node:
        if not decoded.isdisjoint(node.output):
            kept.append(with_whole_bytes(node, graph, constants))
            continue
        tensor = tensor_at(node, held, constants)
        if tensor is not None:
            kept.append(onnx.helper.make_node("Identity", [tensor], node.output))
            is_changed = True
            continue
        results = _shape_result(node, types)
        length = sequence_length(node, held, makers, types, constants)
        if length is not None:
            results = [np.array(length, np.int64)]
        if results is None and _is_foldable(node, constants):
            for name in node.input:
                if name and name not in arrays:
                    arrays[name] = onnx.numpy_helper.to_array(constants[name])
            results = _results(node, arrays, opset)
        if results is None:
            kept.append(node)
            continue
        for name, result in zip(node.output, results, strict=False):
            if name:
                arrays[name] = result
                constants[name] = onnx.numpy_helper.from_array(result, name)
                graph.initializer.append(constants[name])
    is_changed |= len(kept) < len(graph.node)
    replace_nodes(graph, kept)
    return is_changed


def _shape_result(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto.Tensor]
) -> list[np.ndarray] | None:
    """The result of ``Shape`` or ``Size``, which needs the input's shape only."""
    if node.op_type not in ("Shape", "Size") or node.domain not in STANDARD_DOMAINS:
        return None
    known = static_extents(types.get(node.input[0]))
    if known is None:
        return None
    extents = np.array(known, np.int64)
    if node.op_type == "Size":
        return [np.array(extents.prod(), np.int64)]
    bounds = {a.name: a.i for a in node.attribute}
    return [extents[bounds.get("start", 0) : bounds.get("end", len(extents))]]


def computes_the_same(node: onnx.NodeProto) -> bool:
    """Whether a node always computes the same of its inputs, and ONNX's evaluator does that."""
    if node.domain not in STANDARD_DOMAINS or node.op_type in _NOT_FOLDED:
        return False
    return all(attribute.type != onnx.AttributeProto.GRAPH for attribute in node.attribute)


def _is_foldable(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> bool:
    """Whether a node's inputs are constants, and it always computes the same of them."""
    return computes_the_same(node) and all(not n or n in constants for n in node.input)


def _results(
    node: onnx.NodeProto, arrays: Mapping[str, np.ndarray], opset: int
) -> list[np.ndarray] | None:
    """What a node computes; ``None`` where that is too large, or unknown to the evaluator."""
    from onnx.reference import ReferenceEvaluator

    feeds = {name: arrays[name] for name in node.input if name}
    size = _result_bytes(node, feeds, opset)
    if size is None or size > max(_MAX_BYTES, sum(array.nbytes for array in feeds.values())):
        return None
    try:
        with np.errstate(all="ignore"):
            results: Sequence[object] = ReferenceEvaluator(node, opsets={"": opset}).run(
                None, feeds
            )
    except Exception as error:  # an operator may be missing there, or its inputs be wrong
        _log.info("%s not folded: %s", node.op_type, error)
        return None
    found = [
        np.asarray(result) for result in results if isinstance(result, np.ndarray | np.generic)
    ]
    return found if len(found) == len(results) else None


def _result_bytes(node: onnx.NodeProto, feeds: Mapping[str, np.ndarray], opset: int) -> int | None:
    """How large a node's results will be, before any is made; ``None`` where nobody knows."""
    if node.op_type in _SHRINKING:
        return sum(array.nbytes * max(array.ndim, 1) for array in feeds.values())
    alone = onnx.helper.make_model(
        onnx.helper.make_graph(
            [node],
            "alone",
            [
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in feeds.items()
                if array.size > SHAPE_ELEMENTS
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
            [
                onnx.numpy_helper.from_array(array, name)
                for name, array in feeds.items()
                if array.size <= SHAPE_ELEMENTS
            ],
        ),
        opset_imports=[onnx.helper.make_opsetid("", opset)],
    )
    types = inferred_types(alone)
    total = 0
    for name in node.output:
        if not name:
            continue
        extents = static_extents(types.get(name))
        if extents is None:
            return None
        total += 8 * math.prod(extents)  # no element is wider
    return total


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Drop the nodes and weights that no output depends on.

    Of a file as ONNX had them before IR version 4, each weight is an input as well, which a weight
    takes along: callers would have to give it otherwise.
    """
    used = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if used.isdisjoint(node.output):
            continue
        kept.append(node)
        used.update(read_names(node))
    replace_nodes(graph, list(reversed(kept)))
    unused = {tensor.name for tensor in graph.initializer} - used
    for tensors in (graph.initializer, graph.input):
        needed = [
            type(tensor).FromString(tensor.SerializeToString())
            for tensor in tensors
            if tensor.name not in unused
        ]
        del tensors[:]
        tensors.extend(needed)
