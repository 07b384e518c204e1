"""Fourier transforms."""

from __future__ import annotations

from tvm.relax import op

from tvm_tile.frontend.ops.fourier import framed, transformed
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.values import constant, dtype_of, permuted, reshaped, shape_of


def _require_exact(dtype: str) -> None:
    if dtype not in ("float32", "float64"):
        raise NotImplementedError(f"a transform of {dtype}")


def _dft(call: OperatorCall) -> tuple[Value, Value]:
    real = call.arguments[0]
    shape = shape_of(real)
    _require_exact(dtype_of(real))
    both = call.emit(op.stack(list(call.arguments), axis=-1))
    inverse = bool(call.attributes["inverse"])
    made = transformed(call.builder, both, shape[-1], inverse=inverse, onesided=False)
    first, second = (call.emit(op.strided_slice(made, [-1], [i], [i + 1])) for i in (0, 1))
    return reshaped(call, first, shape), reshaped(call, second, shape)


def _stft(call: OperatorCall) -> Value:
    """Transforms of overlapping frames, each times a window: [batch, frequency, frame, part]."""
    x, window = call.arguments
    attributes = call.attributes
    count, shape = int(attributes["n_fft"]), shape_of(x)
    _require_exact(dtype_of(x))
    if int(attributes["win_length"]) != count or shape_of(window) != (count,):
        raise NotImplementedError(f"windows of {list(shape_of(window))} for frames of {count}")
    if len(shape) != 2:
        raise NotImplementedError(f"frames of {list(shape)}")
    signals = reshaped(call, x, (*shape, 1))
    frames = framed(call.builder, signals, window, count, int(attributes["hop_length"]))
    onesided = bool(attributes["onesided"])
    both = transformed(call.builder, frames, count, inverse=False, onesided=onesided)
    if attributes["normalized"]:
        both = call.emit(op.multiply(both, constant(count**-0.5, dtype_of(x))))
    return permuted(call, both, [0, 2, 1, 3])


CONVERTERS: dict[str, Converter] = {"dft": _dft, "stft": _stft}
