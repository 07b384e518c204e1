"""ONNX operators that move elements to places that attributes or other tensors name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import ir, relax, te, tirx
from tvm.ir import GenericConst
from tvm.relax import op

from tvm_tile.frontend.onnx.model import dtype_name
from tvm_tile.frontend.onnx.node import Node, axis_of
from tvm_tile.frontend.ops.values import Value, along, constant, dtype_of, shape_of


def convert_shape(node: Node) -> Value:
    """Shape as a tensor, which TVM's leaves a shape: few operators take one, nor does a model
    return it. Of extents that the data decide it is known at run time only."""
    data = node.inputs[0]
    part = slice(node.attrs.get("start", 0), node.attrs.get("end"))
    shape = data.ty.shape
    if isinstance(shape, relax.ShapeExpr):
        extents = list(shape)[part]
        if all(isinstance(extent, tirx.IntImm) for extent in extents):
            return constant(np.array([int(extent) for extent in extents], np.int64), "int64")
        return op.shape_to_tensor(relax.ShapeExpr(extents))
    whole = node.emit(op.shape_to_tensor(node.emit(op.shape_of(data))))
    begin, end, _ = part.indices(int(data.ty.ndim))
    return op.strided_slice(whole, [0], [begin], [max(begin, end)])


def settle_shape(node: Node, index: int) -> Node:
    """A node whose input of that index is a shape again, if it is made of shapes of tensors."""
    extents = _extents(node.builder, node.inputs[index])
    if extents is None or node.constant(index) is not None:
        return node
    given = [*node.inputs]
    given[index] = node.builder.normalize(relax.ShapeExpr(extents))
    return replace(node, inputs=given)


def _extents(builder: relax.BlockBuilder, value: Value) -> list[Any] | None:
    """The elements of a vector of integers as numbers and variables; ``None`` where that is more
    than a shape, constants, or several of these one behind the other."""
    if isinstance(value, GenericConst):
        return [int(extent) for extent in value.value.numpy()]
    if isinstance(value, relax.Var):
        value = builder.lookup_binding(value)
    if not isinstance(value, relax.Call):
        return None
    if value.op == ir.Op.get("relax.shape_to_tensor"):
        shape = value.args[0]
        return list(shape) if isinstance(shape, relax.ShapeExpr) else None
    if value.op != ir.Op.get("relax.concat") or not isinstance(value.args[0], relax.Tuple):
        return None
    parts = [_extents(builder, part) for part in value.args[0].fields]
    known = [part for part in parts if part is not None]
    return [e for part in known for e in part] if len(known) == len(parts) else None


def in_one_row(node: Node) -> Node:
    """Unique without an axis, of one row: TVM's gives its inverse the extents of the input."""
    if "axis" in node.attrs or node.inputs[0].ty.ndim == 1:
        return node
    return replace(node, inputs=(node.emit(op.flatten(node.inputs[0])), *node.inputs[1:]))


def convert_slice(node: Node) -> Value | None:
    """Slice at constant places: TVM's refuses ends before their starts, which give no elements."""
    shape = node.inputs[0].ty.shape
    if node.opset < 10:
        starts, ends = np.array(node.attrs["starts"]), np.array(node.attrs["ends"])
        axes = np.array(node.attrs.get("axes", range(len(starts))))
        steps = np.ones(len(starts), int)
    else:
        given = [node.constant(i) for i in range(1, 5)]
        if any(node.input(i + 1) is not None and v is None for i, v in enumerate(given)):
            return None
        assert given[0] is not None
        assert given[1] is not None
        starts, ends = given[0], given[1]
        axes = np.arange(len(starts)) if given[2] is None else given[2]
        steps = np.ones(len(starts), int) if given[3] is None else given[3]
    if shape is None:
        return None
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        return None
    extents = [int(extent) for extent in shape]
    # No step leads out of an int64, and a step over everything takes the first element.
    parts = {
        int(axis) % len(extents): slice(int(start), int(end), int(step)).indices(
            extents[int(axis) % len(extents)]
        )
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    }
    if len(parts) < len(axes) or not all(-len(extents) <= axis < len(extents) for axis in axes):
        raise ValueError(f"axes {axes.tolist()} of a tensor of {len(extents)} dimensions")
    # What has no elements has none from its start on.
    parts = {a: part if len(range(*part)) else (0, 0, 1) for a, part in parts.items()}
    changed = [a for a, part in parts.items() if part != (0, extents[a], 1)]
    if not changed:
        return node.inputs[0]
    # Before the first element backwards is -extent - 1, for which -1 stands in Python.
    begins, stops, strides = zip(*(parts[a] for a in changed), strict=True)
    stops = tuple(
        stop if stride > 0 or stop >= 0 else -extents[a] - 1
        for a, stop, stride in zip(changed, stops, strides, strict=True)
    )
    return op.strided_slice(node.inputs[0], changed, begins, stops, strides)


def settle_axes(node: Node) -> Node:
    """Squeeze or Unsqueeze whose constant axes are a vector, as ONNX's own definitions forget."""
    axes = node.constant(1)
    if axes is None or axes.ndim:
        return node
    return replace(node, inputs=(node.inputs[0], constant(axes.reshape(1), "int64")))


def convert_one_hot(node: Node) -> Value:
    """OneHot: TVM's has float64 for any floating-point type, and finds indices out of range."""
    depth = node.parameter(1, "a depth")
    assert depth is not None
    count = int(depth.item())
    indices, values = node.inputs[0], node.inputs[2]
    if "int" not in dtype_of(indices):
        indices = op.astype(indices, "int64")
    dtype = dtype_of(indices)
    rank = len(indices.ty.shape)
    axis = axis_of(node, -1, rank + 1)
    wide = node.emit(op.expand_dims(indices, axis))
    wrapped = op.where(
        op.less(wide, constant(0, dtype)), op.add(wide, constant(count, dtype)), wide
    )
    numbers = along(constant(np.arange(count), dtype), axis, rank + 1)
    off, on = (op.strided_slice(values, [0], [i], [i + 1]) for i in (0, 1))
    return op.where(op.equal(wrapped, numbers), on, off)


def convert_eye_like(node: Node) -> Value:
    """EyeLike, as a constant."""
    code = node.attrs.get("dtype")
    dtype = dtype_of(node.inputs[0]) if code is None else dtype_name(int(code))
    rows, columns = shape_of(node.inputs[0])
    return constant(np.eye(rows, columns, int(node.attrs.get("k", 0))), dtype)


def convert_wrapping_pad(node: Node, stock: Callable[[Node], Value]) -> Value:
    """Pad, where what is cut off at one side must not come back at the other.

    TVM's wraps around the whole tensor, ONNX around what negative pads leave of it.

    Args:
        node: the node.
        stock: TVM's converter.
    """
    pads = node.constant(1)
    if node.text("mode", "constant") != "wrap" or pads is None or (pads >= 0).all():
        return stock(node)
    x = node.inputs[0]
    shape = shape_of(x)
    axes = node.parameter(3, "axes")
    listed = range(len(shape)) if axes is None else [int(a) % len(shape) for a in axes]
    before, behind = np.split(pads, 2)
    low = [max(0, -int(n)) for n in before]
    high = [shape[axis] - max(0, -int(n)) for axis, n in zip(listed, behind, strict=True)]
    cut = node.emit(op.strided_slice(x, list(listed), low, high))
    rest = constant(np.maximum(pads, 0), "int64")
    return stock(replace(node, inputs=(cut, rest, *node.inputs[2:])))


def convert_reverse_sequence(node: Node) -> Value:
    """ReverseSequence: of each sample the first so many steps, backwards."""
    x, lengths = node.inputs
    batch = int(node.attrs.get("batch_axis", 1))
    time = int(node.attrs.get("time_axis", 0))
    if {batch, time} != {0, 1}:
        raise ValueError(f"batch_axis {batch} and time_axis {time}")

    def reversed_part(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def element(*places: Any) -> Any:
            length = lengths[places[batch]]
            step = tirx.Cast("int64", places[time])
            source = tirx.if_then_else(step < length, length - 1 - step, step)
            source = tirx.max(tirx.min(source, x.shape[time] - 1), 0)
            return x(*(source if i == time else place for i, place in enumerate(places)))

        return te.compute(x.shape, element, name="reverse_sequence")

    return node.compute(reversed_part, x, op.astype(lengths, "int64"), name="reverse_sequence")


def convert_tensor_scatter(node: Node) -> Value:
    """TensorScatter: a cache in which some steps are replaced, from a place on."""
    cache, update = node.inputs[0], node.inputs[1]
    axis = axis_of(node, -2, len(cache.ty.shape))
    if axis == 0:
        raise ValueError("axis 0, which is the batch")
    circular = node.text("mode", "linear") == "circular"
    steps, most = shape_of(update)[axis], shape_of(cache)[axis]
    starts = node.input(2)
    if starts is None:
        starts = constant(np.zeros(shape_of(cache)[0]), "int64")

    def replaced(cache: te.Tensor, update: te.Tensor, starts: te.Tensor) -> te.Tensor:
        def element(*places: Any) -> Any:
            step = tirx.Cast("int64", places[axis]) - starts[places[0]]
            if circular:
                step = tirx.floormod(step, tirx.const(most, "int64"))
            # Read at a place that exists, whatever the starts are.
            source = tirx.max(tirx.min(step, steps - 1), 0)
            new = update(*(source if i == axis else place for i, place in enumerate(places)))
            return tirx.if_then_else(tirx.all(step >= 0, step < steps), new, cache(*places))

        return te.compute(cache.shape, element, name="tensor_scatter")

    return node.compute(replaced, cache, update, op.astype(starts, "int64"), name="tensor_scatter")


def convert_scatter(node: Node) -> Value:
    """Scatter, as ScatterElements; TVM's makes a list of single elements of it."""
    return op.scatter_elements(*node.inputs, axis=int(node.attrs.get("axis", 0)))


def convert_array_feature_extractor(node: Node) -> Value:
    """ArrayFeatureExtractor of ai.onnx.ml: some columns."""
    x, columns = node.inputs
    taken = op.take(x, op.reshape(columns, [-1]), axis=len(x.ty.shape) - 1)
    return taken if len(x.ty.shape) > 1 else op.expand_dims(taken, 0)


def require_indices_within(node: Node) -> None:
    """Refuse indices that name no element, as far as they are known.

    Raises:
        ValueError: a constant index is out of bounds, or there are more lines of indices than of
            elements.
    """
    if node.op_type in ("GatherElements", "Scatter", "ScatterElements"):
        whole, part = shape_of(node.inputs[0]), shape_of(node.inputs[1])
        along = axis_of(node, 0, len(whole))
        pairs = list(zip(whole, part, strict=True))
        if any(few > many for i, (many, few) in enumerate(pairs) if i != along):
            raise ValueError(f"indices of {list(part)} for a tensor of {list(whole)}")
    position = 2 if node.op_type == "Compress" else 1
    indices = node.constant(position)
    if indices is None or not indices.size:
        return
    shape = shape_of(node.inputs[0])
    if node.op_type in ("GatherND", "ScatterND"):
        first = int(node.attrs.get("batch_dims", 0))
        bounds = np.array(shape[first : first + indices.shape[-1]])
    else:
        bounds = np.array(shape[axis_of(node, 0, len(shape))])
    if (indices < -bounds).any() or (indices >= bounds).any():
        raise ValueError(
            f"index {int(indices.min())} or {int(indices.max())} outside of {bounds.tolist()}"
        )
