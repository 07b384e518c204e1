"""Operators of Relay that create tensors, or overwrite parts that the places alone decide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.ops.values import constant, dtype_of, shape_of
from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.shapes import broadcast, known_shape


def _full(call: OperatorCall, value: Value, *_: Value, dtype: str = "") -> Value:
    return _spread(call, value, known_shape(call, 1), dtype or dtype_of(value))


def _full_like(call: OperatorCall, like: Value, value: Value) -> Value:
    return _spread(call, value, shape_of(like), dtype_of(like))


def _spread(call: OperatorCall, value: Value, shape: tuple[int, ...], dtype: str) -> Value:
    """A number, which may be known at run time only, in each place."""
    return broadcast(call, call.cast(call.reshaped(value, ()), dtype), shape)


def _equal_elements(value: int) -> Converter:
    """The converter of ``zeros`` or ``ones`` of a shape."""

    def convert(call: OperatorCall, *_: Value, dtype: str = "") -> Value:
        return call.filled(known_shape(call, 0), value, dtype or "float32")

    return convert


def _arange(call: OperatorCall, *_: Value, dtype: str) -> Value:
    """Numbers from a start on, below a stop."""
    start, stop, step = (call.parameter(i, "a bound of a range").reshape(()) for i in range(3))
    if not np.isfinite([float(start), float(stop), float(step)]).all() or not step:
        raise ValueError(f"a range from {start} to {stop} by steps of {step}")
    if all(bound.dtype.kind in "iu" for bound in (start, stop, step)):
        count = len(range(int(start), int(stop), int(step)))
    else:
        count = max(0, math.ceil((float(stop) - float(start)) / float(step)))
    values = np.arange(count).astype(dtype) * step.astype(dtype) + start.astype(dtype)
    return constant(values, dtype) if count else call.filled((0,), 0, dtype)


def _trilu(call: OperatorCall, x: Value, _: Value, *, upper: bool) -> Value:
    """A matrix's part above or below one of its diagonals."""
    diagonal, shape = int(call.parameter(1, "a diagonal").item()), shape_of(x)
    if len(shape) < 2:
        raise ValueError(f"a triangle of a tensor of {list(shape)}")
    if 0 in shape:
        return x
    kept = (np.triu if upper else np.tril)(np.ones(shape[-2:], bool), diagonal)
    return call.emit(op.where(constant(kept, "bool"), x, constant(0, dtype_of(x))))


def _matrix_set_diagonals(
    call: OperatorCall, x: Value, diagonals: Value, *, k1: int, k2: int
) -> Value:
    """Matrices, some diagonals of which are replaced: from ``k1``, the lowest one, to ``k2``.

    Each diagonal is a row of the second operand, the highest one first; shorter ones stand at the
    left or at the right of their rows.
    """
    *outer, rows, columns = shape_of(x)
    if not -rows < k1 <= k2 < columns:
        raise ValueError(f"diagonals {k1} to {k2} of matrices of {rows} by {columns}")
    lengths = {k: min(columns - max(k, 0), rows + min(k, 0)) for k in range(k1, k2 + 1)}
    longest = max(lengths.values())
    flat = call.reshaped(diagonals, (*outer, (k2 - k1 + 1) * longest))
    # Where a matrix's element is in the second operand; -1 where it stays.
    numbers = np.full((rows, columns), -1)
    for k, length in lengths.items():
        is_right = call.attributes[f"{'super' if k >= 0 else 'sub'}_diag_right_align"]
        places = np.arange(length)
        own = (k2 - k) * longest + (longest - length if is_right else 0) + places
        numbers[places + max(-k, 0), places + max(k, 0)] = own
    table = constant(numbers, "int32")

    def loops(old: te.Tensor, new: te.Tensor, table: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            number = tirx.Cast("int64", table(*at[-2:]))
            source = tirx.max(number, tirx.const(0, "int64"))
            return tirx.if_then_else(number >= 0, new(*at[:-2], source), old(*at))

        return te.compute(old.shape, element, name="matrix_set_diagonals")

    return call.compute(loops, x, flat, table, name="matrix_set_diagonals")


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("full", "dyn.full"), _full),
    "full_like": _full_like,
    **dict.fromkeys(("zeros", "dyn.zeros"), _equal_elements(0)),
    **dict.fromkeys(("ones", "dyn.ones"), _equal_elements(1)),
    "zeros_like": lambda call, like: call.filled(shape_of(like), 0, dtype_of(like)),
    "ones_like": lambda call, like: call.filled(shape_of(like), 1, dtype_of(like)),
    "arange": _arange,
    "trilu": _trilu,
    "matrix_set_diag": _matrix_set_diagonals,
}
