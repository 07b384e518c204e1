"""Fourier transforms as products with constant matrices of cosines and sines."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.ops.values import Value, constant, dtype_of, shape_of

# A product costs the length a element; beyond this a fast transform would be wanted.
_MAX_LENGTH = 4096


def framed(builder: relax.BlockBuilder, x: Value, window: Value, count: int, step: int) -> Value:
    """Overlapping frames of signals, each times a window.

    Args:
        builder: where operators go.
        x: [batch, points, parts].
        window: [count], or ``None``.
        count: points of a frame.
        step: from the start of a frame to the next one's.

    Returns:
        [batch, frames, count, parts].

    Raises:
        NotImplementedError: the signals are shorter than a frame, or frames do not move.
    """
    length = shape_of(x)[1]
    if not 0 < count <= length or step < 1:
        raise NotImplementedError(f"frames of {count}, every {step} of {length}")
    places = np.arange(0, length - count + 1, step)[:, None] + np.arange(count)
    frames = builder.emit(op.take(x, constant(places, "int64"), axis=1))
    if window is None:
        return frames
    return builder.emit(op.multiply(frames, op.reshape(window, (1, 1, count, 1))))


def transformed(
    builder: relax.BlockBuilder, x: Value, count: int, *, inverse: bool, onesided: bool
) -> Value:
    """The transform of (..., points, parts) to (..., frequencies, 2), or real points, 1.

    Raises:
        NotImplementedError: it is too long.
    """
    *outer, points, parts = shape_of(x)
    if not 0 < count <= _MAX_LENGTH:
        raise NotImplementedError(f"a transform of length {count}")
    if inverse and onesided:
        matrix = _real_inverse(min(points, count // 2 + 1), count, parts)
    else:
        matrix = _complex(min(points, count), count, parts, inverse)
        if onesided:
            matrix = matrix[:, :, : count // 2 + 1]
    read, _, written, made = matrix.shape
    if read < points:
        x = builder.emit(op.strided_slice(x, [len(outer)], [0], [read]))
    rows = op.reshape(x, (*outer, read * parts))
    table = constant(matrix.reshape(read * parts, written * made), dtype_of(x))
    product = builder.emit(op.matmul(rows, table))
    return builder.emit(op.reshape(product, (*outer, written, made)))


def _angles(read: int, count: int) -> np.ndarray:
    return 2 * np.pi * (np.outer(np.arange(read), np.arange(count)) % count) / count


def _complex(read: int, count: int, parts: int, inverse: bool) -> np.ndarray:
    """(points, parts, frequencies, 2): what a part of a point adds to a part of a frequency."""
    angle = _angles(read, count)
    cos, sin = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    real = np.stack([cos, sin], axis=-1)
    imaginary = np.stack([-sin, cos], axis=-1)
    matrix = np.stack([real, imaginary][:parts], axis=1)
    return matrix / count if inverse else matrix


def _real_inverse(read: int, count: int, parts: int) -> np.ndarray:
    """(frequencies, parts, points, 1): half a spectrum, the other half its conjugate."""
    numbers, angle = np.arange(read), _angles(read, count)
    alone = (numbers == 0) | (2 * numbers == count)
    twice = np.where(alone, 1.0, 2.0)[:, None] / count
    # The imaginary part of what is its own conjugate is taken for zero.
    sines = np.where(alone[:, None], 0.0, -twice * np.sin(angle))
    matrix: np.ndarray = np.stack([twice * np.cos(angle), sines][:parts], axis=1)[..., None]
    return matrix
