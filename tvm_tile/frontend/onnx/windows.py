"""ONNX operators that read windows of a tensor, or spread elements over windows."""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax import op

from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.pooling import largest_with_places, reduced
from tvm_tile.frontend.ops.sampling import SampledAxis, weighted_neighbours
from tvm_tile.frontend.ops.values import Value, constant, dtype_of, shape_of
from tvm_tile.frontend.ops.windows import Windows


def convert_col2im(node: Node) -> Value:
    """Col2Im: each element of the image is the sum of the columns' elements that lie there."""
    x = node.inputs[0]
    image, block = (node.parameter(i, name) for i, name in ((1, "an image's shape"), (2, "blocks")))
    assert image is not None
    assert block is not None
    extents, kernel = image.tolist(), block.tolist()
    rank = len(extents)
    strides, dilations = (node.numbers(n, rank, 1) for n in ("strides", "dilations"))
    pads = node.numbers("pads", 2 * rank, 0)
    steps = [
        (e + pads[i] + pads[i + rank] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
        for i, e in enumerate(extents)
    ]
    batch, rows, columns = shape_of(x)
    if math.prod(steps) != columns or rows % math.prod(kernel):
        raise ValueError(f"{rows} x {columns} columns for blocks {kernel} at {steps} places")
    channels = rows // math.prod(kernel)
    wide = op.reshape(x, (batch, channels, *kernel, *steps))

    def summed(x: te.Tensor) -> te.Tensor:
        taps = [te.reduce_axis((0, k), name=f"k{i}") for i, k in enumerate(kernel)]

        def element(*places: Any) -> Any:
            there, sources = [], []
            for i, (place, tap) in enumerate(zip(places[2:], taps, strict=True)):
                offset = place + pads[i] - tap * dilations[i]
                source = tirx.floordiv(offset, strides[i])
                there += [
                    offset >= 0, source < steps[i], tirx.floormod(offset, strides[i]) == 0
                ]  # fmt: skip
                sources.append(source)
            zero = tirx.const(0, x.dtype)
            return te.sum(
                tirx.if_then_else(tirx.all(*there), x(*places[:2], *taps, *sources), zero), taps
            )

        return te.compute((batch, channels, *extents), element, name="col2im")

    return node.compute(summed, wide, name="col2im")


def settle_conv_transpose(node: Node) -> Node:
    """ConvTranspose with ``pads`` and ``output_padding`` in the place of what leads to them.

    Raises:
        ValueError: the attributes contradict each other.
    """
    shape, weights = shape_of(node.inputs[0]), shape_of(node.inputs[1])
    rank = len(shape) - 2
    attrs = dict(node.attrs)
    kernel = node.numbers("kernel_shape", rank, 0) if "kernel_shape" in attrs else weights[2:]
    strides, dilations = (node.numbers(name, rank, 1) for name in ("strides", "dilations"))
    extra = node.numbers("output_padding", rank, 0)
    pads = node.numbers("pads", 2 * rank, 0)
    full = [
        (e - 1) * s + (k - 1) * d + 1
        for e, s, k, d in zip(shape[2:], strides, kernel, dilations, strict=True)
    ]
    auto = node.text("auto_pad", "NOTSET")
    wanted = attrs.pop("output_shape", None)
    attrs.pop("auto_pad", None)
    if wanted is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [extent * stride for extent, stride in zip(shape[2:], strides, strict=True)]
    if wanted is not None:
        wanted = [int(extent) for extent in wanted][-rank:]
        for i, extent in enumerate(wanted):
            total = full[i] + extra[i] - extent
            low, high = total // 2, total - total // 2
            if auto != "SAME_UPPER":
                low, high = high, low
            if total < 0:  # what is missing is added behind
                low, high, extra[i] = 0, 0, extra[i] - total
            pads[i], pads[i + rank] = low, high
    elif auto == "VALID":
        pads = [0] * 2 * rank
    # Negative paddings, and more than a stride behind the end, are beyond TVM's operator.
    if min(pads) < 0 or any(
        e >= max(s, d) for e, s, d in zip(extra, strides, dilations, strict=True)
    ):
        raise NotImplementedError(f"pads {pads} with output_padding {extra}")
    attrs |= {"pads": pads, "output_padding": extra, "kernel_shape": list(kernel)}
    return replace(node, attrs=attrs)


def convert_max_pool_with_indices(node: Node, like: Value) -> Value:
    """MaxPool's results, and the place of each, the first one where several are equal.

    Args:
        node: the MaxPool.
        like: what TVM makes of it, whose shape is right; nothing computes it.
    """
    x = node.inputs[0]
    shape, windows = shape_of(x), _windows(node, like)
    order = list(range(len(shape)))
    if node.attrs.get("storage_order", 0):  # places are counted with the first dimension inmost
        order = [0, 1, *order[:1:-1]]
        windows.reverse()
    pair = largest_with_places(node.builder, node.emit(op.permute_dims(x, order)), windows)
    planes = np.arange(math.prod(shape[:2])).reshape(*shape[:2], *(1 for _ in windows))
    starts = constant(planes * math.prod(shape[2:]), "int64")
    results = (pair[0], node.emit(op.add(pair[1], starts)))
    return relax.Tuple([node.emit(op.permute_dims(result, order)) for result in results])


def convert_lp_pool(node: Node, like: Value) -> Value:
    """LpPool as sums of powers; TVM's takes means of the elements within the tensor for sums.

    Args:
        node: the LpPool.
        like: what TVM makes of it, whose shape is right; nothing computes it.
    """
    x, p = node.inputs[0], float(node.attrs.get("p", 2))
    size = node.emit(op.abs(x))
    powers = size if p == 1 else op.multiply(x, x) if p == 2 else op.power(size, _of(x, p))
    sums = reduced(node.builder, node.emit(powers), _windows(node, like), te.sum, 0)
    return sums if p == 1 else op.sqrt(sums) if p == 2 else op.power(sums, _of(x, 1 / p))


def _windows(node: Node, like: Value) -> list[Windows]:
    """The windows of a pool, as many along each dimension as a result has elements."""
    extents, counts = shape_of(node.inputs[0])[2:], shape_of(node.builder.normalize(like))[2:]
    rank = len(extents)
    kernel = node.numbers("kernel_shape", rank, 0)
    strides, dilations = (node.numbers(name, rank, 1) for name in ("strides", "dilations"))
    pads = node.pads(extents, kernel, strides, dilations)
    each = (extents, kernel, strides, pads[:rank], pads[rank:], dilations, counts)
    return [Windows(*of) for of in zip(*each, strict=True)]


def _of(x: Value, number: float) -> Value:
    return constant(number, dtype_of(x))


def convert_max_unpool(node: Node) -> Value:
    """MaxUnpool: elements go back where their maximum was, all others are zero."""
    x, indices = node.inputs[0], node.inputs[1]
    shape = shape_of(x)
    rank = len(shape) - 2
    kernel = node.numbers("kernel_shape", rank, 0)
    strides, pads = (
        node.numbers("strides", rank, 1), node.numbers("pads", 2 * rank, 0)
    )  # fmt: skip
    natural = [
        (shape[i + 2] - 1) * strides[i] - pads[i] - pads[i + rank] + kernel[i] for i in range(rank)
    ]
    size = (*shape[:2], *natural)
    wanted = node.parameter(2, "an output shape")
    zeros = op.zeros((math.prod(size),), dtype_of(x))
    spread = op.scatter_elements(
        node.emit(zeros), node.emit(op.reshape(indices, [-1])), node.emit(op.reshape(x, [-1])), 0
    )
    result = node.emit(op.reshape(spread, size))
    if wanted is None or tuple(wanted.tolist()) == size:
        return result
    larger = [int(w) - s for w, s in zip(wanted, size, strict=True)]
    if min(larger) < 0:
        raise ValueError(f"an output shape {wanted.tolist()} below {list(size)}")
    return op.nn.pad(result, [n for extra in larger for n in (0, extra)])


def convert_lrn(node: Node) -> Value:
    """LRN: each element by a power of the squares' sum over the channels around it."""
    x = node.inputs[0]
    rank, channels = len(x.ty.shape), shape_of(x)[1]
    size = int(node.attrs["size"])
    alpha, beta = float(node.attrs.get("alpha", 1e-4)), float(node.attrs.get("beta", 0.75))
    bias, dtype = float(node.attrs.get("bias", 1.0)), dtype_of(x)
    before, behind = (size - 1) // 2, size - 1 - (size - 1) // 2
    pads = [(before, behind) if i == 1 else (0, 0) for i in range(rank)]
    squares = node.emit(op.nn.pad(op.multiply(x, x), [n for pair in pads for n in pair]))
    parts = (op.strided_slice(squares, [1], [i], [i + channels]) for i in range(size))
    scaled = functools.reduce(op.add, parts) * constant(alpha / size, dtype) + constant(bias, dtype)
    return x / op.power(scaled, constant(beta, dtype))


def convert_affine_grid(node: Node) -> Value:
    """AffineGrid: a constant grid of points, moved by each sample's matrix."""
    theta = node.inputs[0]
    size = node.parameter(1, "a size")
    assert size is not None
    extents = [int(extent) for extent in size[2:]]
    corners = bool(node.attrs.get("align_corners", 0))
    if corners and 1 in extents:
        raise UnsupportedOperatorError(
            "AffineGrid with align_corners needs two elements along each axis",
            f"extents {extents}",
            "export without align_corners, for which implementations differ here",
        )
    lines = [
        np.linspace(-1, 1, extent) if corners else (2 * np.arange(extent) + 1) / extent - 1
        for extent in extents
    ]
    grid = np.meshgrid(*lines, indexing="ij")
    # ONNX counts x first, which is the last axis.
    points = np.stack([*reversed(grid), np.ones(extents)], axis=-1).reshape(-1, len(extents) + 1)
    moved = op.matmul(constant(points, dtype_of(theta)), op.permute_dims(theta, [0, 2, 1]))
    return op.reshape(moved, (int(size[0]), *extents, len(extents)))


def convert_deform_conv(node: Node) -> Value:
    """DeformConv in two dimensions: columns sampled where the offsets say, then a product."""
    x, w, offset, bias, mask = (node.input(i) for i in range(5))
    if len(x.ty.shape) != 4:
        raise NotImplementedError("a deformable convolution of other than two dimensions")
    batch, channels, height, width = shape_of(x)
    outer, inner, *kernel = shape_of(w)
    groups, sets = (int(node.attrs.get(name, 1)) for name in ("group", "offset_group"))
    strides, dilations = (node.numbers(n, 2, 1) for n in ("strides", "dilations"))
    pads = node.numbers("pads", 4, 0)
    taps, (rows, columns) = math.prod(kernel), shape_of(offset)[2:]
    if shape_of(offset)[1] != 2 * sets * taps or inner * groups != channels or channels % sets:
        raise ValueError("offsets, channels or groups that contradict each other")
    moved = op.reshape(offset, (batch, sets, taps, 2, rows, columns))
    weight = (
        op.reshape(mask, (batch, sets, taps, rows, columns))
        if mask is not None
        else constant(np.ones((1, 1, 1, 1, 1)), dtype_of(x))
    )
    one, axes = mask is None, [SampledAxis(height), SampledAxis(width)]

    def sampled(x: te.Tensor, moved: te.Tensor, weight: te.Tensor) -> te.Tensor:
        def element(n: Any, c: Any, t: Any, i: Any, j: Any) -> Any:
            part = tirx.floordiv(c, channels // sets)
            starts = (
                i * strides[0] - pads[0] + tirx.floordiv(t, kernel[1]) * dilations[0],
                j * strides[1] - pads[1] + tirx.floormod(t, kernel[1]) * dilations[1],
            )
            y, z = (
                tirx.Cast(x.dtype, start) + moved[n, part, t, axis, i, j]
                for axis, start in enumerate(starts)
            )
            factor = weight[0, 0, 0, 0, 0] if one else weight[n, part, t, i, j]
            return factor * functools.reduce(
                operator.add, weighted_neighbours(x, (n, c), (y, z), axes)
            )

        return te.compute((batch, channels, taps, rows, columns), element, name="deformed_columns")

    lines = node.compute(sampled, x, node.emit(moved), node.emit(weight), name="deformed_columns")
    wide = op.reshape(lines, (batch, groups, inner * taps, rows * columns))
    product = op.matmul(op.reshape(w, (1, groups, outer // groups, inner * taps)), wide)
    result = op.reshape(product, (batch, outer, rows, columns))
    return result if bias is None else op.add(result, op.reshape(bias, (1, -1, 1, 1)))
