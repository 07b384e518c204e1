"""Graphs of PyTorch as ONNX models, by the exporter that needs no package of its own."""

from __future__ import annotations

import io
import warnings
from typing import Any

import onnx
import torch

from bench.fuzz import torch_door
from bench.fuzz.graph import Graph

_OPSET = 18


def exported(graph: Graph, tensors: torch_door.Tensors) -> onnx.ModelProto:
    """The graph as an ONNX model.

    Raises:
        RuntimeError: the exporter does not take it, or ONNX has other corners: those that a resize
            aligns are told by its scale, also where PyTorch's size is that cut off to an integer.
    """
    if any("align_corners=True" in c.text and "scale_factor" in c.text for c in graph.calls):
        raise RuntimeError("corners by a scale")
    if any(0 in tensor.shape for tensor in graph.tensors) and any(
        word in call.text for call in graph.calls for word in ("reshape(", "flatten(")
    ):
        # Its shape inference divides by zero, and the process dies.
        raise RuntimeError("a view of no elements")
    module = torch_door.module(graph, tensors, getattr(torch, graph.dtype))
    file = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            torch_door.inputs_of(graph, tensors),
            file,
            dynamo=False,
            opset_version=_OPSET,
            input_names=[tensor.name for tensor in graph.inputs],
        )
    model = onnx.load_from_string(file.getvalue())
    onnx.checker.check_model(model)
    return model


def dtypes(model: onnx.ModelProto) -> list[str]:
    """The types that a model says its outputs have."""
    kinds = (value.type.tensor_type.elem_type for value in model.graph.output)
    names = (onnx.TensorProto.DataType.Name(kind).lower() for kind in kinds)
    return [{"float": "float32", "double": "float64"}.get(name, name) for name in names]


def run(model: onnx.ModelProto, tensors: torch_door.Tensors) -> list[torch.Tensor]:
    """The outputs that ONNX Runtime computes."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {i.name: tensors[i.name].contiguous().numpy() for i in session.get_inputs()}
    outputs: list[Any] = session.run(None, given)
    return [torch.as_tensor(output) for output in outputs]
