"""ONNX's Fourier transforms as products with constant matrices of cosines and sines."""

from __future__ import annotations

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.onnx.node import Node
from tvm_tile.frontend.ops.values import Value, constant, dtype_of, shape_of

# A product costs the length a element; beyond this a fast transform would be wanted.
_MAX_LENGTH = 4096


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
    if not 0 < count <= _MAX_LENGTH:
        raise NotImplementedError(f"a transform of length {count}")
    # Lines along the axis become the last dimension but one.
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    lines = op.permute_dims(x, order) if order != list(range(rank)) else x
    made = _transformed(node, node.emit(lines), count, inverse, onesided)
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
    if not 0 < count <= min(_MAX_LENGTH, shape[1]) or int(step.item()) < 1:
        raise NotImplementedError(f"frames of {count}, every {int(step.item())} of {shape[1]}")
    starts = np.arange(0, shape[1] - count + 1, int(step.item()))
    places = starts[:, None] + np.arange(count)
    frames = op.take(x, constant(places, "int64"), axis=1)  # batch, frames, count, parts
    if window is not None:
        frames = op.multiply(frames, op.reshape(window, (1, 1, count, 1)))
    return _transformed(node, node.emit(frames), count, False, bool(node.attrs.get("onesided", 1)))


def _transformed(node: Node, x: Value, count: int, inverse: bool, onesided: bool) -> Value:
    """The transform of (..., points, parts) to (..., frequencies, 2), or real points, 1."""
    *outer, points, parts = shape_of(x)
    if inverse and onesided:
        matrix = _real_inverse(min(points, count // 2 + 1), count, parts)
    else:
        matrix = _complex(min(points, count), count, parts, inverse)
        if onesided:
            matrix = matrix[:, :, : count // 2 + 1]
    read, _, written, made = matrix.shape
    if read < points:
        x = node.emit(op.strided_slice(x, [len(outer)], [0], [read]))
    rows = op.reshape(x, (*outer, read * parts))
    product = op.matmul(rows, constant(matrix.reshape(read * parts, written * made), dtype_of(x)))
    return op.reshape(node.emit(product), (*outer, written, made))


def _complex(read: int, count: int, parts: int, inverse: bool) -> np.ndarray:
    """(points, parts, frequencies, 2): what a part of a point adds to a part of a frequency."""
    angle = 2 * np.pi * np.outer(np.arange(read), np.arange(count)) / count
    cos, sin = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    real = np.stack([cos, sin], axis=-1)
    imaginary = np.stack([-sin, cos], axis=-1)
    matrix = np.stack([real, imaginary][:parts], axis=1)
    return matrix / count if inverse else matrix


def _real_inverse(read: int, count: int, parts: int) -> np.ndarray:
    """(frequencies, parts, points, 1): half a spectrum, the other half its conjugate."""
    numbers = np.arange(read)
    angle = 2 * np.pi * np.outer(numbers, np.arange(count)) / count
    alone = (numbers == 0) | (2 * numbers == count)
    twice = np.where(alone, 1.0, 2.0)[:, None] / count
    # The imaginary part of what is its own conjugate is taken for zero.
    sines = np.where(alone[:, None], 0.0, -twice * np.sin(angle))
    matrix: np.ndarray = np.stack([twice * np.cos(angle), sines][:parts], axis=1)[..., None]
    return matrix
