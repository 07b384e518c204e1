"""What converters of Relay's operators ask of values, and write them with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm.relax import op

from tvm_tile.frontend.ops.values import along, constant, counted_axis, dtype_of, shape_of
from tvm_tile.frontend.relay.call import OperatorCall, Value

__all__ = [
    "along",
    "cast",
    "clipped",
    "constant",
    "counted_axes",
    "counted_axis",
    "dtype_of",
    "filled",
    "is_float",
    "is_integer",
    "permuted",
    "reshaped",
    "shape_of",
    "sliced",
]


def is_float(dtype: str) -> bool:
    """Whether elements of a type are floating-point numbers."""
    return dtype.startswith(("float", "bfloat"))


def is_integer(dtype: str) -> bool:
    """Whether elements of a type are integers; truth values are none."""
    return dtype.startswith(("int", "uint"))


def counted_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """An attribute that is an axis, several, or ``None`` for all, counted from the first one.

    Raises:
        ValueError: there is no such axis, or one is named twice.
    """
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int) else axes
    found = tuple(counted_axis(int(axis), rank) for axis in given)
    if len(set(found)) < len(found):
        raise ValueError(f"an axis that is named twice in {list(found)}")
    return found


def filled(call: OperatorCall, shape: Sequence[int], value: float | bool, dtype: str) -> Value:
    """A tensor all of whose elements are ``value``."""
    if math.prod(shape) == 0:
        return call.emit(op.zeros(tuple(shape), dtype))
    return call.emit(op.full(tuple(shape), constant(value, dtype)))


def cast(call: OperatorCall, value: Value, dtype: str) -> Value:
    """The value in another element type; numbers are true where they are not zero."""
    found = dtype_of(value)
    if found == dtype:
        return value
    if dtype == "bool":  # TVM would cut 0.5 off to 0.
        return call.emit(op.not_equal(value, constant(0, found)))
    return call.emit(op.astype(value, dtype))


def clipped(call: OperatorCall, value: Value, low: float, high: float) -> Value:
    """The nearest numbers between two bounds of the value's type; NaN stays."""
    dtype = dtype_of(value)
    if low > -math.inf:
        value = call.emit(op.maximum(value, constant(low, dtype)))
    if high < math.inf:
        value = call.emit(op.minimum(value, constant(high, dtype)))
    return value


def reshaped(call: OperatorCall, value: Value, shape: Sequence[int]) -> Value:
    """The same elements in the same order.

    Raises:
        ValueError: another number of elements.
    """
    own, wanted = shape_of(value), tuple(int(extent) for extent in shape)
    if own == wanted:
        return value
    if math.prod(own) != math.prod(wanted) or min(wanted, default=0) < 0:
        raise ValueError(f"a tensor of {list(own)} as one of {list(wanted)}")
    if 0 in wanted:  # TVM reads 0 as "the extent that was there".
        return filled(call, wanted, 0, dtype_of(value))
    return call.emit(op.reshape(value, wanted))


def permuted(call: OperatorCall, value: Value, axes: Sequence[int]) -> Value:
    """The tensor with its axes in another order; they are counted from the first one."""
    if list(axes) == list(range(len(axes))):
        return value
    return call.emit(op.permute_dims(value, list(axes)))


def sliced(call: OperatorCall, value: Value, parts: Sequence[range]) -> Value:
    """The elements at the places of a range along each axis, all within the extents."""
    shape = shape_of(value)
    counts = tuple(len(part) for part in parts)
    if 0 in counts:
        return filled(call, counts, 0, dtype_of(value))
    changed = [i for i, part in enumerate(parts) if part != range(shape[i])]
    if not changed:
        return value
    begins = [parts[i].start for i in changed]
    # TVM reads -1 as the last element: what ends before the first one ends at -extent - 1.
    last = [parts[i][-1] + (1 if parts[i].step > 0 else -1) for i in changed]
    ends = [end if end >= 0 else -shape[i] - 1 for i, end in zip(changed, last, strict=True)]
    strides = [parts[i].step for i in changed]
    return call.emit(op.strided_slice(value, changed, begins, ends, strides))
