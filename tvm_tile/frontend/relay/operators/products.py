"""Products of matrices, and Fourier transforms, which are such."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.ops.fourier import framed, transformed
from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout
from tvm_tile.frontend.relay.values import is_float

_BYTES = ("int8", "uint8")
_MATRIX = 2  # dimensions


def operands(call: OperatorCall, a: Value, b: Value, out: str) -> tuple[Value, Value, str]:
    """The factors of a sum of products, and the type to add them in.

    Relay adds in the type of the result. Integers wrap around, so that a narrow result is the low
    bits of a wide one; pairs of bytes of one type stay as they are, for units that multiply them.

    Raises:
        NotImplementedError: truth values, or integers and real numbers.
    """
    types = dtype_of(a), dtype_of(b)
    if "bool" in (*types, out) or len({is_float(name) for name in (*types, out)}) > 1:
        raise NotImplementedError(f"products of {types[0]} and {types[1]} in {out}")
    if is_float(out):
        wide = types[0] if types[0] == types[1] else max(*types, key=_bits)
        return call.cast(a, wide), call.cast(b, wide), max(wide, out, key=_bits)
    wide = "int64" if max(_bits(name) for name in (*types, out)) > _bits("int32") else "int32"
    if types[0] == types[1] and types[0] in _BYTES and wide == "int32":
        return a, b, wide
    return call.cast(a, wide), call.cast(b, wide), wide


def _bits(dtype: str) -> int:
    return int("".join(filter(str.isdigit, dtype)))


def result_dtype(call: OperatorCall, x: Value) -> str:
    """The type of a product: the attribute's, which may be left empty for the operand's."""
    return str(call.attributes.get("out_dtype") or dtype_of(x))


def product(call: OperatorCall, a: Value, b: Value, out: str) -> Value:
    """The product of matrices with elements of a type; extents of batches broadcast."""
    if shape_of(a)[-1] != shape_of(b)[-2]:
        raise ValueError(f"a product of {list(shape_of(a))} and {list(shape_of(b))}")
    a, b, wide = operands(call, a, b, out)
    made = op.matmul(a, b) if wide == dtype_of(a) else op.matmul(a, b, out_dtype=wide)
    return call.cast(call.emit(made), out)


def dense(call: OperatorCall, x: Value, weight: Value, out: str) -> Value:
    """``x`` times the transpose of a weight, which has a row for each unit."""
    if len(shape_of(weight)) != _MATRIX or len(shape_of(x)) < _MATRIX:
        raise ValueError(f"a layer of {list(shape_of(weight))} on {list(shape_of(x))}")
    return product(call, x, call.permuted(weight, [1, 0]), out)


def unpacked(call: OperatorCall, weight: Value) -> Value:
    """The matrix that a packed weight stands for; TVM 0.7 did not say how it had packed it."""
    layout = str(call.attributes.get("weight_layout") or "NC")
    shape = shape_of(weight)
    if layout == "NC" and len(shape) > _MATRIX:
        layout = f"NC{shape[-1]}n"
    return relayout(call, weight, layout, "NC")


def _dense(call: OperatorCall, x: Value, weight: Value) -> Value:
    return dense(call, x, weight, result_dtype(call, x))


def _packed_dense(call: OperatorCall, x: Value, weight: Value) -> Value:
    return dense(call, x, unpacked(call, weight), result_dtype(call, x))


def transposed(call: OperatorCall, value: Value, flag: bool) -> Value:
    """Matrices, transposed if a flag is set."""
    rank = len(shape_of(value))
    if rank < _MATRIX:
        raise ValueError(f"a matrix of {rank} dimensions")
    return call.permuted(value, [*range(rank - 2), rank - 1, rank - 2]) if flag else value


def _matmul(
    call: OperatorCall, a: Value, b: Value, *, transpose_a: bool = False, transpose_b: bool = False
) -> Value:
    left, right = transposed(call, a, transpose_a), transposed(call, b, transpose_b)
    return product(call, left, right, result_dtype(call, a))


def batch_operands(call: OperatorCall, a: Value, b: Value) -> tuple[Value, Value]:
    """The factors of ``batch_matmul``, turned to rows by columns.

    Up to TVM 0.7 the second one had no flag and was always transposed: it is, too, where only
    that makes a product.
    """
    left = transposed(call, a, bool(call.attributes.get("transpose_a", False)))
    flag = bool(call.attributes.get("transpose_b", True))
    rows, columns = shape_of(b)[-2:]
    inner = shape_of(left)[-1]
    flag = flag or (rows != inner and columns == inner)
    batches = [shape_of(value)[:-2] for value in (a, b)]
    np.broadcast_shapes(*batches)  # raises ValueError
    return left, transposed(call, b, flag)


def _batch_matmul(call: OperatorCall, a: Value, b: Value) -> Value:
    return product(call, *batch_operands(call, a, b), result_dtype(call, a))


def _einsum(call: OperatorCall, fields: Sequence[Value], *, equation: str) -> Value:
    equation = equation.replace(" ", "")
    if "." in equation:
        raise NotImplementedError(f"an equation {equation}")
    terms, arrow, result = equation.partition("->")
    if not arrow:  # each index that occurs once, in alphabetical order
        letters = terms.replace(",", "")
        result = "".join(sorted(letter for letter in letters if letters.count(letter) == 1))
    equation = f"{terms}->{result}"
    if any(len(set(term)) < len(term) for term in (*terms.split(","), result)):
        raise NotImplementedError(f"an index twice in a term of {equation}")
    if len({dtype_of(value) for value in fields}) > 1:
        raise NotImplementedError("factors of several types")
    return call.emit(op.einsum(relax.Tuple([call.emit(value) for value in fields]), equation))


def require_exact(call: OperatorCall, *values: Value) -> None:
    """Refuse tensors that are neither of float32 nor of float64."""
    for dtype in map(dtype_of, values):
        if dtype not in ("float32", "float64"):
            raise NotImplementedError(f"{call.name} of {dtype}")


def _dft(call: OperatorCall, real: Value, imaginary: Value, *, inverse: bool) -> Value:
    require_exact(call, real)
    shape = shape_of(real)
    both = call.emit(op.stack([real, imaginary], axis=-1))
    flags = {"inverse": bool(inverse), "onesided": False}
    scale = 1 / shape[-1] if inverse else 1.0
    made = transformed(call.builder, both, shape[-1], **flags, scale=scale)
    parts = (call.emit(op.strided_slice(made, [-1], [i], [i + 1])) for i in (0, 1))
    return tuple(call.reshaped(part, shape) for part in parts)


def _stft(call: OperatorCall, x: Value, window: Value, *, n_fft: int, hop_length: int) -> Value:
    """Transforms of overlapping frames, each times a window: [batch, frequency, frame, part]."""
    require_exact(call, x)
    shape, attributes = shape_of(x), call.attributes
    if attributes["win_length"] != n_fft or shape_of(window) != (n_fft,):
        raise NotImplementedError(f"windows of {list(shape_of(window))} for frames of {n_fft}")
    if len(shape) != _MATRIX:
        raise NotImplementedError(f"frames of {list(shape)}")
    frames = framed(call.builder, call.reshaped(x, (*shape, 1)), window, n_fft, hop_length)
    both = transformed(
        call.builder, frames, n_fft, inverse=False, onesided=bool(attributes["onesided"])
    )
    if attributes["normalized"]:
        both = call.emit(op.multiply(both, constant(n_fft**-0.5, dtype_of(x))))
    return call.permuted(both, [0, 2, 1, 3])


CONVERTERS: dict[str, Converter] = {
    "dft": _dft,
    "einsum": _einsum,
    "nn.batch_matmul": _batch_matmul,
    "nn.contrib_dense_pack": _packed_dense,
    "nn.dense": _dense,
    "nn.matmul": _matmul,
    "stft": _stft,
}
