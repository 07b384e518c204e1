"""What an ONNX file tells of extents that its inputs leave open.

Three places tell: the metadata that exporters write beside the model; weights of an operator that
reads an input, whose own extents it must have; and constants that an input is reshaped to.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import onnx

from tvm_tile.frontend.declared import Shapes
from tvm_tile.frontend.onnx.model import (
    ValidModel,
    declared_shape,
    extent_name,
    free_inputs,
    is_fixed,
    is_unranked,
)

_IMAGE_SIZE = "imgsz"
"""Ultralytics' key of an image's height and width."""
# Operators whose result has the extents of their first input, where these mean what they meant.
_KEEPS_SHAPE = frozenset(
    {
        *("Abs", "Cast", "Clip", "DequantizeLinear", "Dropout", "Erf", "Exp", "Gelu", "Identity"),
        *("LeakyRelu", "Log", "Neg", "QuantizeLinear", "Relu", "Sigmoid", "Sqrt", "Tanh"),
    }
)
_NUMBER = re.compile("[1-9][0-9]{0,8}", re.ASCII)
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "PRelu"})

Told = Mapping[int, tuple[int, str]]
"""Axis of an input -> its extent, and who tells."""


def declared(model: ValidModel) -> Shapes:
    """The shapes of a model's inputs, open extents with what the file tells of them.

    Extents of one named dimension are one, without bounds.
    """
    inputs = [value for value in free_inputs(model.proto.graph) if not is_unranked(value)]
    if all(is_fixed(dim) for value in inputs for dim in _dims(value)):
        return {value.name: declared_shape(value) for value in inputs}
    reading = _Reading.of(model.proto)
    return {value.name: declared_shape(value, reading.told_of(value)) for value in inputs}


def _dims(value: onnx.ValueInfoProto) -> Sequence[onnx.TensorShapeProto.Dimension]:
    dims: Sequence[onnx.TensorShapeProto.Dimension] = value.type.tensor_type.shape.dim
    return dims


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is read of a model's graph.

    Attributes:
        metadata: key -> text.
        readers: name of a tensor -> the nodes that read it.
        constants: name of a constant tensor -> its extents.
        shapes: name of a constant of one axis -> its whole numbers, of those that are shapes.
    """

    metadata: Mapping[str, str]
    readers: Mapping[str, Sequence[onnx.NodeProto]]
    constants: Mapping[str, tuple[int, ...]]
    shapes: Mapping[str, tuple[int, ...]]

    @classmethod
    def of(cls, model: onnx.ModelProto) -> _Reading:
        """Read a model."""
        readers: dict[str, list[onnx.NodeProto]] = {}
        tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            for name in dict.fromkeys(node.input):
                readers.setdefault(name, []).append(node)
            if (
                node.op_type == "Constant"
                and node.attribute[:1]
                and node.attribute[0].HasField("t")
            ):
                tensors[node.output[0]] = node.attribute[0].t
        constants = {name: tuple(tensor.dims) for name, tensor in tensors.items()}
        for node in model.graph.node:  # a weight that is decoded has its codes' extents
            if node.op_type in _KEEPS_SHAPE and node.input[:1] and node.input[0] in constants:
                constants.setdefault(node.output[0], constants[node.input[0]])
        shapes = {
            name: tuple(map(int, onnx.numpy_helper.to_array(tensor)))
            for name, tensor in tensors.items()
            if tensor.data_type == onnx.TensorProto.INT64
            and len(tensor.dims) == 1
            and tensor.dims[0] <= 8
            and not tensor.external_data
        }
        metadata = {pair.key: pair.value for pair in model.metadata_props}
        return cls(metadata, readers, constants, shapes)

    def told_of(self, value: onnx.ValueInfoProto) -> Told:
        """What is told of an input's open extents."""
        dims = _dims(value)
        if all(map(is_fixed, dims)):
            return {}
        told: dict[int, tuple[int, str]] = {}
        name, axes = value.name, tuple(range(len(dims)))
        while True:
            for node in self.readers.get(name, ()):
                for axis, extent in self._told_by(node, name, [dims[axis] for axis in axes]):
                    by = f"as node {node.name or node.output[0]!r} ({node.op_type}) needs"
                    if not is_fixed(dims[axes[axis]]):
                        told.setdefault(axes[axis], (extent, by))
            followed = self._followed(name, len(axes))
            if followed is None:
                break
            name, order = followed
            axes = tuple(axes[axis] for axis in order)
        return dict(self._told_by_metadata(dims)) | told

    def _followed(self, name: str, rank: int) -> tuple[str, tuple[int, ...]] | None:
        """The tensor that has the extents of one that a single node reads, and their order."""
        stay = tuple(range(rank))
        readers = self.readers.get(name, ())
        if len(readers) != 1 or not readers[0].input or readers[0].input[0] != name:
            return None
        node = readers[0]
        if node.op_type in _KEEPS_SHAPE:
            return node.output[0], stay
        if node.op_type in _ELEMENTWISE and len(self.constants.get(node.input[1], ())) <= rank:
            return (node.output[0], stay) if node.input[1] in self.constants else None
        order = _attribute(node, "perm") if node.op_type == "Transpose" else ()
        return (node.output[0], order) if stay and tuple(sorted(order)) == stay else None

    def _told_by_metadata(
        self, dims: Sequence[onnx.TensorShapeProto.Dimension]
    ) -> Iterator[tuple[int, tuple[int, str]]]:
        for axis, dim in enumerate(dims):
            text = self.metadata.get(extent_name(dim) or "", "")
            if not is_fixed(dim) and _NUMBER.fullmatch(text):
                yield axis, (int(text), f"as its metadata {extent_name(dim)!r} says")
        sizes = _image_size(self.metadata.get(_IMAGE_SIZE, ""))
        if sizes and len(dims) == 4:
            first = 1 if is_fixed(dims[3]) and not is_fixed(dims[1]) else 2  # NHWC, or NCHW
            for axis, size in enumerate(sizes, first):
                yield axis, (size, f"as its metadata {_IMAGE_SIZE!r} says")

    def _told_by(
        self, node: onnx.NodeProto, name: str, dims: Sequence[onnx.TensorShapeProto.Dimension]
    ) -> Iterator[tuple[int, int]]:
        """Axes of a tensor that a node reads, and their extents."""
        rank, place = len(dims), list(node.input).index(name)
        others = [self.constants.get(other, ()) for other in node.input]
        weights = others[1] if len(others) > 1 else ()
        is_first, matrix = place == 0, len(weights) == 2
        match node.op_type:
            case "Conv" | "ConvInteger" if is_first and len(weights) > 1 and rank > 1:
                yield 1, weights[1] * (_attribute(node, "group") or (1,))[0]
            case "QLinearConv" if is_first and len(others) > 3 and len(others[3]) > 1:
                yield 1, others[3][1] * (_attribute(node, "group") or (1,))[0]
            case "ConvTranspose" if is_first and weights and rank > 1:
                yield 1, weights[0]
            case "MatMul" | "MatMulInteger" if is_first and matrix:
                yield rank - 1, weights[0]
            case "Gemm" if is_first and matrix and rank == 2:
                turned = [_attribute(node, key) == (1,) for key in ("transA", "transB")]
                yield (0 if turned[0] else 1), weights[1 if turned[1] else 0]
            case "BatchNormalization" | "InstanceNormalization" if (
                is_first and weights and rank > 1
            ):
                yield 1, weights[0]
            case "LSTM" | "GRU" | "RNN" if is_first and len(weights) == 3 and rank == 3:
                yield 2, weights[2]
            case "Reshape" if is_first and len(node.input) > 1:
                yield from _told_by_reshape(dims, self.shapes.get(node.input[1], ()))
            case operator if operator in _ELEMENTWISE or operator == "LayerNormalization":
                for other in others:
                    yield from (
                        (rank - behind, extent)
                        for behind, extent in enumerate(reversed(other), 1)
                        if extent > 1 and behind <= rank
                    )


def _told_by_reshape(
    dims: Sequence[onnx.TensorShapeProto.Dimension], target: tuple[int, ...]
) -> Iterator[tuple[int, int]]:
    """Extents that a constant shape needs: the last one that is open, or two that are equal.

    A first extent that the shape leaves out is the batch, if that is open, of which one is taken;
    unless all other extents are there without it, for then it may be several.
    """
    copied = {axis for axis, extent in enumerate(target) if extent == 0}
    is_batched = bool(dims) and not is_fixed(dims[0])
    open_axes = [
        axis
        for axis, dim in enumerate(dims)
        if not is_fixed(dim) and axis not in copied and not (axis == 0 and is_batched)
    ]
    has_batch = is_batched and target[:1] == (-1,) and target.count(-1) == 1
    if not target or (-1 in target and not has_batch) or not open_axes:
        return
    total = math.prod(extent for extent in target if extent > 0)
    known = math.prod(
        int(dim.dim_value) for axis, dim in enumerate(dims) if is_fixed(dim) and axis not in copied
    )
    quotient, rest = divmod(total, known) if known else (0, 1)
    root = quotient if len(open_axes) == 1 else math.isqrt(quotient)
    is_told = 0 < root ** len(open_axes) == quotient and (root > 1 or not has_batch)
    if rest or not is_told or len(open_axes) > 2:
        return
    yield from ((axis, root) for axis in open_axes)


def _image_size(text: str) -> tuple[int, ...]:
    """Height and width in ``[320, 320]`` or ``320``; none in another text."""
    try:
        sizes = json.loads(text)
    except ValueError:
        return ()
    sizes = [sizes, sizes] if isinstance(sizes, int) else sizes
    is_pair = isinstance(sizes, list) and len(sizes) == 2
    return tuple(sizes) if is_pair and all(type(s) is int and s > 0 for s in sizes) else ()


def _attribute(node: onnx.NodeProto, name: str) -> tuple[int, ...]:
    """The whole numbers of an attribute, none where it is not there."""
    for attribute in node.attribute:
        if attribute.name == name:
            return tuple(attribute.ints) or (int(attribute.i),)
    return ()
