"""Powers of integers, as PyTorch, NumPy and ONNX have them: what does not fit wraps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import ir, relax
from tvm.relax import op


def integer_power(
    emit: Callable[[relax.Expr], relax.Expr], base: relax.Expr, exponent: relax.Expr
) -> relax.Expr:
    """By squaring: the square of each power before is one more step.

    Of a type of n bits the powers of an odd number repeat after 2**(n - 2), and those of an even
    one are 0 from the nth on; so n - 2 bits of the exponent are looked at, or those that a number
    has which is an exponent for all.

    Args:
        emit: binds an expression to a variable, whose type is then known.
        base: of integers; the result has its type.
        exponent: of integers, perhaps of another type.
    """
    if isinstance(exponent, ir.Constant) and not exponent.ty.ndim:
        number = int(exponent.value.numpy())
        if number >= 0:
            return _fixed(emit, base, number)
    dtype, other = str(base.ty.dtype), str(exponent.ty.dtype)
    zero, one = (relax.const(value, dtype) for value in (0, 1))
    none, last = (relax.const(value, other) for value in (0, 1))
    bits = np.iinfo(dtype).bits
    result, square = one, base
    for place in range(min(bits - 2, int(np.iinfo(other).max).bit_length())):
        shifted = op.right_shift(exponent, relax.const(place, other))
        is_set = emit(op.equal(op.bitwise_and(shifted, last), last))
        result = emit(op.multiply(result, emit(op.where(is_set, square, one))))
        square = emit(op.multiply(square, square))
    is_even = emit(op.equal(op.floor_mod(base, relax.const(2, dtype)), zero))
    is_gone = op.logical_and(is_even, op.greater_equal(exponent, relax.const(bits, other)))
    result = emit(op.where(emit(is_gone), zero, result))
    # Of the inverses of integers, only those of 1 and -1 are integers; others are cut off to 0.
    is_unit = op.logical_or(op.equal(base, one), op.equal(op.add(base, one), zero))
    is_odd = op.equal(op.bitwise_and(exponent, last), last)
    inverse = emit(op.where(emit(is_unit), op.where(is_odd, base, one), zero))
    return op.where(emit(op.less(exponent, none)), inverse, result)


def _fixed(
    emit: Callable[[relax.Expr], relax.Expr], base: relax.Expr, exponent: int
) -> relax.Expr:
    """The power of a number that is the same for all, not negative."""
    result: relax.Expr | None = None
    square = base
    while exponent:
        if exponent % 2:
            result = square if result is None else emit(op.multiply(result, square))
        exponent //= 2
        if exponent:
            square = emit(op.multiply(square, square))
    return op.full_like(base, relax.const(1, str(base.ty.dtype))) if result is None else result
