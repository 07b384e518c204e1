"""Fourier transforms, as products with matrices of cosines and sines."""

from __future__ import annotations

import numpy as np
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import constant, dtype_of, is_float, shape_of

# A product costs the length an element; beyond this a fast transform would be wanted.
_MAX_LENGTH = 4096


def _matrices(length: int, count: int, dtype: str) -> tuple[Value, Value]:
    """Cosines and sines of the angle between each of ``length`` elements and frequencies."""
    turns = np.outer(np.arange(length), np.arange(count)) % length / length
    return constant(np.cos(2 * np.pi * turns), dtype), constant(np.sin(2 * np.pi * turns), dtype)


def _require_length(length: int, dtype: str) -> None:
    if not 0 < length <= _MAX_LENGTH or dtype not in ("float32", "float64"):
        raise NotImplementedError(f"a transform of {length} elements of {dtype}")


def _dft(call: OperatorCall) -> tuple[Value, Value]:
    real, imaginary = call.arguments
    length, dtype = shape_of(real)[-1], dtype_of(real)
    _require_length(length, dtype)
    inverse = bool(call.attributes["inverse"])
    cosines, sines = _matrices(length, length, dtype)
    parts = [[call.emit(op.matmul(x, m)) for m in (cosines, sines)] for x in (real, imaginary)]
    (rc, rs), (ic, is_) = parts
    if not inverse:
        return call.emit(op.add(rc, is_)), call.emit(op.subtract(ic, rs))
    share = constant(1 / length, dtype)
    made = op.subtract(rc, is_), op.add(ic, rs)
    return call.emit(op.multiply(made[0], share)), call.emit(op.multiply(made[1], share))


def _stft(call: OperatorCall) -> Value:
    """Transforms of overlapping frames, each times a window: [batch, frequency, frame, part]."""
    x, window = call.arguments
    attributes = call.attributes
    count, step = int(attributes["n_fft"]), int(attributes["hop_length"])
    shape, dtype = shape_of(x), dtype_of(x)
    _require_length(count, dtype)
    if int(attributes["win_length"]) != count or shape_of(window) != (count,):
        raise NotImplementedError(f"windows of {list(shape_of(window))} for frames of {count}")
    if len(shape) != 2 or step < 1 or shape[1] < count or not is_float(dtype):
        raise NotImplementedError(f"frames of {count}, every {step} of {list(shape)}")
    places = np.arange(0, shape[1] - count + 1, step)[:, None] + np.arange(count)
    frames = call.emit(op.take(x, constant(places, "int64"), axis=1))
    framed = call.emit(op.multiply(frames, op.reshape(window, (1, 1, count))))
    cosines, sines = _matrices(count, count // 2 + 1 if attributes["onesided"] else count, dtype)
    parts = [op.matmul(framed, cosines), op.negative(op.matmul(framed, sines))]
    both = call.emit(op.stack([call.emit(part) for part in parts], axis=-1))
    if attributes["normalized"]:
        both = call.emit(op.multiply(both, constant(count**-0.5, dtype)))
    return call.emit(op.permute_dims(both, [0, 2, 1, 3]))


CONVERTERS: dict[str, Converter] = {"dft": _dft, "stft": _stft}
