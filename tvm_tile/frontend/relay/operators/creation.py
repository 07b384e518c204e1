"""Operators of Relay that create tensors, or overwrite parts that the places alone decide."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.relax import op

from tvm_tile.frontend.relay.call import Converter, OperatorCall, Value
from tvm_tile.frontend.relay.operators.shapes import broadcast, known_shape
from tvm_tile.frontend.relay.values import (
    cast,
    constant,
    dtype_of,
    filled,
    reshaped,
    shape_of,
)


def _full(call: OperatorCall) -> Value:
    value = call.arguments[0]
    dtype = str(call.attributes.get("dtype") or dtype_of(value))
    return _spread(call, value, known_shape(call, 1), dtype)


def _full_like(call: OperatorCall) -> Value:
    like, value = call.arguments
    return _spread(call, value, shape_of(like), dtype_of(like))


def _spread(call: OperatorCall, value: Value, shape: tuple[int, ...], dtype: str) -> Value:
    """A number, which may be known at run time only, in each place."""
    return broadcast(call, cast(call, reshaped(call, value, ()), dtype), shape)


def _equal_elements(call: OperatorCall) -> Value:
    """``zeros`` or ``ones`` of a shape."""
    value = 1 if call.name.endswith("ones") else 0
    dtype = str(call.attributes.get("dtype") or "float32")
    return filled(call, known_shape(call, 0), value, dtype)


def _equal_elements_like(call: OperatorCall) -> Value:
    (like,) = call.arguments
    return filled(call, shape_of(like), 1 if call.name == "ones_like" else 0, dtype_of(like))


def arange_values(start: np.ndarray, stop: np.ndarray, step: np.ndarray, dtype: str) -> np.ndarray:
    """Numbers from ``start`` on, below ``stop``.

    Raises:
        ValueError: the step is 0, or a bound is no number.
    """
    if not np.isfinite([float(start), float(stop), float(step)]).all() or not step:
        raise ValueError(f"a range from {start} to {stop} by steps of {step}")
    if all(bound.dtype.kind in "iu" for bound in (start, stop, step)):
        count = len(range(int(start), int(stop), int(step)))
    else:
        count = max(0, math.ceil((float(stop) - float(start)) / float(step)))
    numbers = np.arange(count).astype(dtype)
    result: np.ndarray = numbers * step.astype(dtype) + start.astype(dtype)
    return result


def _arange(call: OperatorCall) -> Value:
    start, stop, step = (call.parameter(i, "a bound of a range").reshape(()) for i in range(3))
    dtype = str(call.attributes["dtype"])
    values = arange_values(start, stop, step, dtype)
    return constant(values, dtype) if values.size else filled(call, (0,), 0, dtype)


def _trilu(call: OperatorCall) -> Value:
    """A matrix's part above or below one of its diagonals."""
    x = call.arguments[0]
    diagonal = int(call.parameter(1, "a diagonal").item())
    shape, dtype = shape_of(x), dtype_of(x)
    if len(shape) < 2:
        raise ValueError(f"a triangle of a tensor of {list(shape)}")
    if 0 in shape:
        return x
    ones = np.ones(shape[-2:], bool)
    kept = np.triu(ones, diagonal) if call.attributes["upper"] else np.tril(ones, diagonal)
    return call.emit(op.where(constant(kept, "bool"), x, constant(0, dtype)))


def _matrix_set_diagonals(call: OperatorCall) -> Value:
    """Matrices, some diagonals of which are replaced: from ``k1``, the lowest one, to ``k2``.

    Each diagonal is a row of the second operand, the highest one first; shorter ones stand at the
    left or at the right of their rows.
    """
    x, diagonals = call.arguments
    attributes = call.attributes
    low, high = int(attributes["k1"]), int(attributes["k2"])
    *outer, rows, columns = shape_of(x)
    if not -rows < low <= high < columns:
        raise ValueError(f"diagonals {low} to {high} of matrices of {rows} by {columns}")
    lengths = {k: min(columns - max(k, 0), rows + min(k, 0)) for k in range(low, high + 1)}
    longest = max(lengths.values())
    wide = (*outer, high - low + 1, longest)
    diagonals = reshaped(call, diagonals, wide)
    is_right = {
        k: bool(attributes["super_diag_right_align" if k >= 0 else "sub_diag_right_align"])
        for k in lengths
    }
    # Where a matrix's element is in the second operand; -1 where it stays.
    numbers = np.full((rows, columns), -1)
    for k, length in lengths.items():
        first = longest - length if is_right[k] else 0
        places = np.arange(length)
        own = (high - k) * longest + first + places
        numbers[places + max(-k, 0), places + max(k, 0)] = own
    table = constant(numbers, "int32")

    def loops(old: te.Tensor, new: te.Tensor, table: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            number = tirx.Cast("int64", table(*at[-2:]))
            source = tirx.max(number, tirx.const(0, "int64"))
            return tirx.if_then_else(number >= 0, new(*at[:-2], source), old(*at))

        return te.compute(old.shape, element, name="matrix_set_diagonals")

    flat = reshaped(call, diagonals, (*outer, (high - low + 1) * longest))
    return call.compute(loops, x, flat, table, name="matrix_set_diagonals")


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("full", "dyn.full"), _full),
    "full_like": _full_like,
    **dict.fromkeys(("zeros", "ones", "dyn.zeros", "dyn.ones"), _equal_elements),
    **dict.fromkeys(("zeros_like", "ones_like"), _equal_elements_like),
    "arange": _arange,
    "trilu": _trilu,
    "matrix_set_diag": _matrix_set_diagonals,
}
