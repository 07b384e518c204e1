"""Powers of integers, as PyTorch, NumPy and ONNX have them: exact where they fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax
from tvm.relax import op

_BITS = 8  # of exponents: the square of each power before is one more step


def integer_power(
    emit: Callable[[relax.Expr], relax.Expr], base: relax.Expr, exponent: relax.Expr
) -> relax.Expr:
    """By squaring; what does not fit wraps around.

    Exponents from 256 on count as 254 or 255, at which only powers of 0, 1 and -1 fit.

    Args:
        emit: binds an expression to a variable, whose type is then known.
        base: of integers; the result has its type.
        exponent: of integers, perhaps of another type.
    """
    dtype, other = str(base.ty.dtype), str(exponent.ty.dtype)
    zero, one = (relax.const(value, dtype) for value in (0, 1))
    none, two = (relax.const(value, other) for value in (0, 2))
    most = relax.const(min(2**_BITS - 2, np.iinfo(other).max - 1), other)
    is_odd = emit(op.not_equal(op.floor_mod(exponent, two), none))
    clipped = op.add(most, op.astype(is_odd, other))
    left = emit(op.where(op.greater(exponent, most), clipped, exponent))
    result, square = one, base
    for _ in range(_BITS):
        is_set = emit(op.not_equal(op.floor_mod(left, two), none))
        result = emit(op.where(is_set, op.multiply(result, square), result))
        square = emit(op.multiply(square, square))
        left = emit(op.floor_divide(left, two))
    # Of the inverses of integers, only those of 1 and -1 are integers; others are cut off to 0.
    is_unit = op.equal(op.multiply(base, base), one)
    sign = op.where(is_odd, base, one)
    inverse = emit(op.where(emit(is_unit), emit(sign), zero))
    return op.where(emit(op.less(exponent, none)), inverse, result)
