"""ONNX's Fourier transforms."""

from __future__ import annotations

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.fourier import framed, transformed
from tvm_tile.frontend.ops.values import Value, shape_of


def convert_dft(node: Node) -> Value:
    """DFT along one axis; the last axis holds real (and imaginary) parts."""
    x = node.inputs[0]
    shape = shape_of(x)
    rank = len(shape)
    length = node.parameter(1, "a length")
    if node.opset < 20:
        axis = int(node.attrs.get("axis", 1))
    else:
        given = node.parameter(2, "an axis")
        axis = -2 if given is None else int(given.item())
    if not -rank <= axis < rank or axis % rank == rank - 1:
        raise ValueError(f"axis {axis} of a signal of {rank} dimensions, the last of them parts")
    axis %= rank
    inverse, onesided = (bool(node.attrs.get(name, 0)) for name in ("inverse", "onesided"))
    count = shape[axis] if length is None else int(length.item())
    if length is None and inverse and onesided:
        count = 2 * (shape[axis] - 1)
    # Lines along the axis become the last dimension but one.
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    lines = op.permute_dims(x, order) if order != list(range(rank)) else x
    x = node.emit(lines)
    scale = 1 / count if inverse else 1.0
    made = transformed(node.builder, x, count, inverse=inverse, onesided=onesided, scale=scale)
    back = np.argsort(order).tolist()
    return op.permute_dims(made, back) if order != list(range(rank)) else made


def convert_stft(node: Node) -> Value:
    """STFT: the transform of overlapping frames, each times a window."""
    x, window = node.inputs[0], node.input(2)
    step, length = node.parameter(1, "a frame's step"), node.parameter(3, "a frame's length")
    assert step is not None
    shape = shape_of(x)
    if window is not None:
        count = shape_of(window)[0]
    else:
        count = shape[1] if length is None else int(length.item())
    if length is not None and int(length.item()) != count:
        raise ValueError(f"frames of {int(length.item())} with a window of {count}")
    frames = framed(node.builder, x, window, count, int(step.item()))
    onesided = bool(node.attrs.get("onesided", 1))
    return transformed(node.builder, frames, count, inverse=False, onesided=onesided)
