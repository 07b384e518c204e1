"""How an ONNX model keeps its tensors: in the files beside it, or without their zeros."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import uses_external_data

from tvm_tile.errors import ModelError
from tvm_tile.frontend.onnx.check import bodies
from tvm_tile.frontend.onnx.rewrite import graphs_of, walk_nodes

#: Bytes of one tensor: more than this no GPU of today's could hold beside its operands.
MAX_BYTES = 1 << 36


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


def write_out_zeros(model: onnx.ModelProto) -> None:
    """Give the sparse tensors of a valid model their zeros, in place.

    Raises:
        ModelError: one of them is larger than any tensor may be.
    """
    for body in bodies(model):
        if isinstance(body, onnx.GraphProto):
            body.initializer.extend(map(_written_out, body.sparse_initializer))
            del body.sparse_initializer[:]
        for node in body.node:
            for attribute in node.attribute:
                if attribute.HasField("sparse_tensor"):
                    value = _written_out(attribute.sparse_tensor)
                    attribute.CopyFrom(onnx.helper.make_attribute("value", value))


def _written_out(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """A sparse tensor, named as its values are; their places are numbers of elements, or of rows,
    columns and so on."""
    values, places = map(numpy_helper.to_array, (sparse.values, sparse.indices))
    shape = tuple(sparse.dims)
    size = math.prod(shape) * values.itemsize
    if size > MAX_BYTES:
        raise ModelError(
            f"every tensor of a model must be at most {MAX_BYTES >> 30} GiB, with its zeros",
            f"{sparse.values.name!r} of shape {shape} has {size / 2**30:.4g} GiB",
            "compute this tensor in parts",
        )
    whole = np.zeros(shape, values.dtype)
    if places.ndim == 1:
        whole.reshape(-1)[places] = values
    else:
        whole[tuple(places.T)] = values
    return numpy_helper.from_array(whole, sparse.values.name)
