"""ONNX's Split and SplitToSequence: TVM's importer takes sizes that are not those of the tensor."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node, axis_of
from tvm_tile.frontend.ops.values import Value


def convert_split(node: Node) -> Value:
    """Split into parts of listed sizes, or into as many as the node has results.

    Raises:
        ValueError: the sizes are not those of as many parts of the tensor.
    """
    axis, extent = _axis(node)
    listed = node.attrs.get("split")
    if node.input(1) is not None:
        given = node.parameter(1, "sizes of the parts")
        listed = np.asarray(given).reshape(-1).tolist()
    sizes = _equal_parts(node, extent) if listed is None else [int(size) for size in listed]
    if len(sizes) != node.results:
        raise ValueError(f"{len(sizes)} parts for {node.results} outputs")
    parts = _parts(node, axis, extent, sizes)
    return parts if len(sizes) > 1 else node.inputs[0]


def convert_split_to_sequence(node: Node) -> Value:
    """SplitToSequence: parts of listed sizes, or all of one size but for a shorter last one.

    Raises:
        ValueError: the sizes are not those of the tensor's parts.
    """
    axis, extent = _axis(node)
    given = node.parameter(1, "sizes of the parts")
    if given is not None and given.ndim:
        return _parts(node, axis, extent, given.tolist())
    size = 1 if given is None else int(given)
    if size < 1:
        raise ValueError(f"parts of {size} elements")
    sizes = [min(size, extent - start) for start in range(0, extent, size)]
    parts = _parts(node, axis, extent, sizes)
    if given is not None or node.attrs.get("keepdims", 1):
        return parts
    found = node.emit(parts)
    fields = (node.emit(relax.TupleGetItem(found, number)) for number in range(len(sizes)))
    return relax.Tuple([op.squeeze(field, [axis]) for field in fields])


def _axis(node: Node) -> tuple[int, int]:
    """The axis that is split, and its extent."""
    shape = node.inputs[0].ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        raise NotImplementedError("a shape that is known only at run time")
    axis = axis_of(node, 0, len(shape))
    if not isinstance(shape[axis], tirx.IntImm):
        raise NotImplementedError("an extent that is known only at run time")
    return axis, int(shape[axis])


def _equal_parts(node: Node, extent: int) -> list[int]:
    """Sizes of equal parts, one a result; from opset 18 on the last one may be smaller."""
    count = int(node.attrs.get("num_outputs", node.results))
    size = -(-extent // max(1, count))
    if node.opset < 18 and size * count != extent:
        raise ValueError(f"{extent} elements in {count} equal parts")
    return [*[size] * (count - 1), extent - size * (count - 1)]


def _parts(node: Node, axis: int, extent: int, sizes: list[int]) -> Value:
    """A tuple of the parts."""
    if sum(sizes) != extent or any(size < 0 for size in sizes):
        raise ValueError(f"parts of {sizes} elements of {extent}")
    ends = list(accumulate(sizes))
    if len(sizes) > 1 and all(sizes):
        return op.split(node.inputs[0], ends[:-1], axis)
    # TVM's split wants each part to have an element.
    return relax.Tuple(
        [
            op.strided_slice(node.inputs[0], [axis], [end - size], [end])
            for size, end in zip(sizes, ends, strict=True)
        ]
    )
