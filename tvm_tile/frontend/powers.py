"""Powers of integers, as PyTorch, NumPy and ONNX have them: what does not fit wraps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import ir, relax
from tvm.relax import op


def integer_power(
    emit: Callable[[relax.Expr], relax.Expr], base: relax.Expr, exponent: relax.Expr
) -> relax.Expr:
    """A power, by products where the exponent is one number, else by loops over its bits.

    Args:
        emit: binds an expression to a variable, whose type is then known.
        base: of integers; the result has its type.
        exponent: of integers, perhaps of another type.
    """
    if isinstance(exponent, ir.Constant) and not exponent.ty.ndim:
        number = int(exponent.value.numpy())
        if number >= 0:
            return _fixed(emit, base, number)
    dtypes = [str(value.ty.dtype) for value in (base, exponent)]
    # What wraps in a wider type is right when it is cut to the narrower one.
    wide = str(np.promote_types(*dtypes))
    wide = wide if "int" in wide else "int64"
    sides = [
        value if dtype == wide else emit(op.astype(value, wide))
        for value, dtype in zip((base, exponent), dtypes, strict=True)
    ]
    power = op.power(*sides)
    return power if dtypes[0] == wide else op.astype(emit(power), dtypes[0])


def _fixed(emit: Callable[[relax.Expr], relax.Expr], base: relax.Expr, exponent: int) -> relax.Expr:
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
