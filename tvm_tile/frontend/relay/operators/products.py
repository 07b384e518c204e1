"""Products of matrices."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.layouts import relayout
from tvm_tile.frontend.relay.values import cast, dtype_of, is_float, permuted, shape_of

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
        return cast(call, a, wide), cast(call, b, wide), max(wide, out, key=_bits)
    wide = "int64" if max(_bits(name) for name in (*types, out)) > _bits("int32") else "int32"
    if types[0] == types[1] and types[0] in _BYTES and wide == "int32":
        return a, b, wide
    return cast(call, a, wide), cast(call, b, wide), wide


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
    return cast(call, call.emit(made), out)


def dense(call: OperatorCall, x: Value, weight: Value, out: str) -> Value:
    """``x`` times the transpose of a weight, which has a row for each unit."""
    if len(shape_of(weight)) != _MATRIX or len(shape_of(x)) < _MATRIX:
        raise ValueError(f"a layer of {list(shape_of(weight))} on {list(shape_of(x))}")
    return product(call, x, permuted(call, weight, [1, 0]), out)


def unpacked(call: OperatorCall, weight: Value) -> Value:
    """The matrix that a packed weight stands for; TVM 0.7 did not say how it had packed it."""
    layout = str(call.attributes.get("weight_layout") or "NC")
    shape = shape_of(weight)
    if layout == "NC" and len(shape) > _MATRIX:
        layout = f"NC{shape[-1]}n"
    return relayout(call, weight, layout, "NC")


def _dense(call: OperatorCall) -> Value:
    x, weight = call.arguments
    return dense(call, x, weight, result_dtype(call, x))


def _packed_dense(call: OperatorCall) -> Value:
    x, weight = call.arguments
    return dense(call, x, unpacked(call, weight), result_dtype(call, x))


def transposed(call: OperatorCall, value: Value, flag: bool) -> Value:
    """Matrices, transposed if a flag is set."""
    rank = len(shape_of(value))
    if rank < _MATRIX:
        raise ValueError(f"a matrix of {rank} dimensions")
    return permuted(call, value, [*range(rank - 2), rank - 1, rank - 2]) if flag else value


def _matmul(call: OperatorCall) -> Value:
    a, b = call.arguments
    left = transposed(call, a, bool(call.attributes.get("transpose_a", False)))
    right = transposed(call, b, bool(call.attributes.get("transpose_b", False)))
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


def _batch_matmul(call: OperatorCall) -> Value:
    a, b = call.arguments
    return product(call, *batch_operands(call, a, b), result_dtype(call, a))


def _einsum(call: OperatorCall) -> Value:
    (fields,) = call.arguments
    equation = str(call.attributes["equation"]).replace(" ", "")
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


CONVERTERS: dict[str, Converter] = {
    "einsum": _einsum,
    "nn.batch_matmul": _batch_matmul,
    "nn.contrib_dense_pack": _packed_dense,
    "nn.dense": _dense,
    "nn.matmul": _matmul,
}
