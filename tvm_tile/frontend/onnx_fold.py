"""Fold constants of an ONNX model. Knows ONNX, not TVM.

TVM's importer needs shapes, axes and scales as constants, where exporters leave arithmetic on
shapes. Two ways, of which the importer's caller tries the second when the first does not lead to
a module: onnxslim, which also simplifies, and ONNX's own reference evaluator, which knows every
operator of every version.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Sequence

import numpy as np
import onnx

from tvm_tile.frontend.onnx_model import free_inputs
from tvm_tile.frontend.onnx_rewrite import STANDARD_DOMAINS, opset_version, walk_nodes

_log = logging.getLogger(__name__)

# Larger results than this stay operators: a file may describe huge weights by few bytes.
_MAX_BYTES = 1 << 30
_RANDOM = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Multinomial", "Bernoulli", "Dropout"),
    }
)


def fold_with_onnxslim(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold and simplify; ``model`` itself, unchanged, where onnxslim does not accept it.

    Inputs and outputs keep their names and order.
    """
    import onnxslim

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            slim: onnx.ModelProto = onnxslim.slim(copy)
    except Exception as error:  # whatever comes up
        _log.info("onnxslim failed: %s", error)
        return model
    if [value.name for value in slim.graph.output] != [v.name for v in model.graph.output]:
        return model
    # It drops inputs that nothing reads; callers still pass them.
    del slim.graph.input[:]
    slim.graph.input.extend(free_inputs(model.graph))
    return slim


def fold_with_reference(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold node by node with ONNX's reference evaluator, and drop what is unused then.

    Returns:
        A new model with the same inputs and outputs.
    """
    folded = onnx.ModelProto()
    folded.CopyFrom(model)
    # Every constant shape that is found may let shape inference find more.
    while _fold_once(folded):
        pass
    _drop_unused(folded.graph)
    return folded


def _fold_once(model: onnx.ModelProto) -> bool:
    graph = model.graph
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {
        value.name: value.type.tensor_type.shape
        for value in (*inferred.input, *inferred.value_info, *inferred.output)
        if value.type.tensor_type.HasField("shape")
    }
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    opset = opset_version(model)
    kept = []
    for node in graph.node:
        results = _shape_result(node, shapes)
        if results is None:
            results = _results(node, constants, opset)
        if results is None:
            kept.append(node)
            continue
        for name, result in zip(node.output, results, strict=False):
            if name:
                constants[name] = result
                graph.initializer.append(onnx.numpy_helper.from_array(result, name))
    changed = len(kept) < len(graph.node)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del graph.node[:]
    graph.node.extend(nodes)
    return changed


def _shape_result(
    node: onnx.NodeProto, shapes: dict[str, onnx.TensorShapeProto]
) -> list[np.ndarray] | None:
    """The result of ``Shape`` or ``Size``, which needs the input's shape only."""
    if node.op_type not in ("Shape", "Size") or node.input[0] not in shapes:
        return None
    dims = shapes[node.input[0]].dim
    if not all(dim.HasField("dim_value") for dim in dims):
        return None
    extents = np.array([dim.dim_value for dim in dims], np.int64)
    if node.op_type == "Size":
        return [np.array(extents.prod(), np.int64)]
    bounds = {a.name: a.i for a in node.attribute}
    return [extents[bounds.get("start", 0) : bounds.get("end", len(extents))]]


def _results(
    node: onnx.NodeProto, constants: dict[str, np.ndarray], opset: int
) -> list[np.ndarray] | None:
    """What a node computes, where its inputs are constants and it always computes the same."""
    if node.domain not in STANDARD_DOMAINS or node.op_type in _RANDOM or _has_graphs(node):
        return None
    if any(name and name not in constants for name in node.input):
        return None
    from onnx.reference import ReferenceEvaluator

    feeds = {name: constants[name] for name in node.input if name}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            results: Sequence[object] = ReferenceEvaluator(node, opsets={"": opset}).run(
                None, feeds
            )
    except Exception as error:  # an operator may be missing there, or its inputs be wrong
        _log.info("%s not folded: %s", node.op_type, error)
        return None
    arrays = [
        np.asarray(result) for result in results if isinstance(result, np.ndarray | np.generic)
    ]
    if len(arrays) != len(results) or sum(array.nbytes for array in arrays) > _MAX_BYTES:
        return None
    return arrays


def _has_graphs(node: onnx.NodeProto) -> bool:
    return any(attribute.type == onnx.AttributeProto.GRAPH for attribute in node.attribute)


def _drop_unused(graph: onnx.GraphProto) -> None:
    used = {name for node in walk_nodes(graph) for name in node.input}
    used |= {value.name for value in graph.output}
    for node in walk_nodes(graph):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                used |= {value.name for value in attribute.g.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
    del graph.initializer[:]
    graph.initializer.extend(copies)
