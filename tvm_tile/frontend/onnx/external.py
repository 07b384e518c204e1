"""The files that an ONNX model is kept in: one, or one and those beside it that hold weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx.external_data_helper import uses_external_data

from tvm_tile.frontend.onnx.rewrite import graphs_of, walk_nodes


def files_of(path: Path) -> list[Path]:
    """The file itself, and those in its folder that its tensors name, in order."""
    graph = onnx.load(path, load_external_data=False).graph
    named = {
        entry.value
        for tensor in _tensors(graph)
        if uses_external_data(tensor)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [path, *(path.parent / name for name in sorted(named))]


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """All tensors in a graph and in the graphs inside it."""
    yield from graph.initializer
    for node in walk_nodes(graph):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for inner in graphs_of(attribute):
                yield from inner.initializer
