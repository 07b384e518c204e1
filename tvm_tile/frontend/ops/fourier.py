"""Fourier transforms as products with constant matrices of cosines and sines."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.ops.values import Value, constant, dtype_of, shape_of

# Of a transform as one product, whose matrix has four numbers for each pair of points.
_MAX_LENGTH = 4096
# What another product costs besides itself, in multiplications a point: its operand and its result
# go through memory, in another order. So the times predicted for an H200 have it, of 100 to 20,000
# transforms of 128 to 1,024 points each.
_PASSES = 128


def factors_of(count: int) -> tuple[int, int]:
    """The lengths of two shorter transforms that one of ``count`` points is made of by least cost.

    A product costs as many multiplications a point as there are points. Where another pass costs
    more than the factors save, and of a prime number of points, the first factor is 1.

    Raises:
        NotImplementedError: one product would be too large.
    """
    left = max(n for n in range(1, math.isqrt(count) + 1) if count % n == 0)
    if left + count // left + _PASSES >= count:
        left = 1
    if count // left > _MAX_LENGTH and left == 1:
        raise NotImplementedError(f"a transform of {count} points, which is no product of two")
    return left, count // left


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
    builder: relax.BlockBuilder,
    x: Value,
    count: int,
    *,
    inverse: bool,
    onesided: bool,
    scale: float = 1.0,
) -> Value:
    """The transform of points along a dimension: a product, or of many points several.

    Args:
        builder: where operators go.
        x: [..., points, parts], the last one real parts or both; points beyond ``count`` are left
            out, and such as are wanting are zero.
        count: points of the transform.
        inverse: whether the exponents are positive.
        onesided: whether half a spectrum is made of a real signal, or with ``inverse`` a real
            signal of half a spectrum.
        scale: a factor of the result.

    Returns:
        [..., frequencies, 2], or of a real signal [..., count, 1].

    Raises:
        NotImplementedError: ``count`` is a large prime, has one for a factor, or is no length.
    """
    if count < 1:
        raise NotImplementedError(f"a transform of {count} points")
    points = shape_of(x)[-2]
    half = count // 2 + 1
    used = min(points, half if inverse and onesided else count)
    if used < points:
        x = builder.emit(op.strided_slice(x, [x.ty.ndim - 2], [0], [used]))
    weights = np.full((used, 1), scale)
    if inverse and onesided:  # the other half are the conjugates
        numbers = np.arange(used)
        weights[(numbers > 0) & (2 * numbers != count)] *= 2
        return _stage(builder, x, weights, _Line(count, 1, count, 1))
    wanted = half if onesided else count
    return _stage(builder, x, weights, _Line(count, 1 if inverse else -1, wanted, 2))


@dataclass(frozen=True, slots=True)
class _Line:
    """What is wanted of a transform.

    Attributes:
        count: points of the transform.
        sign: of the exponents.
        wanted: how many of its results, the first.
        parts: of these: 2, or 1 for the real ones alone.
    """

    count: int
    sign: int
    wanted: int
    parts: int


def _stage(builder: relax.BlockBuilder, x: Value, weights: np.ndarray, line: _Line) -> Value:
    """A transform of points that are each first multiplied by a weight.

    With a point's number ``n = m * i + j`` and a frequency's ``k = p + l * q``, where ``l * m`` are
    the points, the sums over ``i`` are transforms of ``l`` points, those over ``j`` of ``m``::

        X[p + l*q] = sum_j w(m)^(j*q) * (w(l*m)^(j*p) * sum_i w(l)^(i*p) * x[m*i + j])
    """
    left, right = factors_of(line.count)
    if left == 1:
        return _product(builder, x, weights, line)
    *outer, points, parts = shape_of(x)
    rows = -(-points // right)
    scale = weights[0, 0]
    if (weights != scale).any():
        scale = 1.0
        x = builder.emit(op.multiply(x, constant(weights, dtype_of(x))))
    if rows * right > points:
        widths = [0, 0] * len(outer) + [0, rows * right - points, 0, 0]
        x = builder.emit(op.nn.pad(x, widths))
    x = builder.emit(op.reshape(x, (*outer, rows, right, parts)))
    x = _exchanged(builder, x)
    x = _stage(builder, x, np.ones((rows, 1)), _Line(left, line.sign, left, 2))
    angles = _angles(right, left, line.count)
    x = _turned(builder, x, scale * np.cos(angles), scale * np.sin(angles) * line.sign)
    # The results' numbers are those of the columns, then those of the rows.
    columns = _Line(right, line.sign, -(-line.wanted // left), line.parts)
    x = _stage(builder, _exchanged(builder, x), np.ones((right, 1)), columns)
    x = op.reshape(_exchanged(builder, x), (*outer, left * columns.wanted, line.parts))
    if left * columns.wanted > line.wanted:
        x = op.strided_slice(x, [len(outer)], [0], [line.wanted])
    return builder.emit(x)


def _product(builder: relax.BlockBuilder, x: Value, weights: np.ndarray, line: _Line) -> Value:
    """A transform as one product with a matrix (points, parts, results, parts of results)."""
    *outer, points, parts = shape_of(x)
    angles = _angles(points, line.wanted, line.count)
    cos, sin = weights * np.cos(angles), weights * np.sin(angles) * line.sign
    real, imaginary = np.stack([cos, sin], axis=-1), np.stack([-sin, cos], axis=-1)
    matrix = np.stack([real, imaginary][:parts], axis=1)[..., : line.parts]
    table = constant(matrix.reshape(points * parts, -1), dtype_of(x))
    product = op.matmul(op.reshape(x, (*outer, points * parts)), table)
    return builder.emit(op.reshape(product, (*outer, line.wanted, line.parts)))


def _turned(builder: relax.BlockBuilder, x: Value, cos: np.ndarray, sin: np.ndarray) -> Value:
    """Complex numbers [..., rows, columns, 2] times constant ones [rows, columns]."""
    re, im = (op.strided_slice(x, [x.ty.ndim - 1], [part], [part + 1]) for part in (0, 1))
    c, s = (constant(one[..., None], dtype_of(x)) for one in (cos, sin))
    turned = (re * c - im * s, re * s + im * c)
    return builder.emit(op.concat(turned, axis=-1))


def _exchanged(builder: relax.BlockBuilder, x: Value) -> Value:
    """Rows and columns of [..., rows, columns, parts] exchanged."""
    rank = x.ty.ndim
    return builder.emit(op.permute_dims(x, [*range(rank - 3), rank - 2, rank - 3, rank - 1]))


def _angles(rows: int, columns: int, count: int) -> np.ndarray:
    """The angles of the products of rows' and columns' numbers, in which ``count`` is a turn."""
    products = np.outer(np.arange(rows), np.arange(columns))
    angles: np.ndarray = 2 * np.pi * (products % count) / count
    return angles
