"""Questions to Relax values, and constants, that converters of every format share."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, tirx
from tvm.relax import op

Value = Any
"""A Relax expression with a known type."""


def shape_of(value: Value) -> tuple[int, ...]:
    """The extents of a value.

    Raises:
        NotImplementedError: one of them is known only at run time.
    """
    shape = value.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        raise NotImplementedError("a shape that is known only at run time")
    if not all(isinstance(extent, tirx.IntImm) for extent in shape):
        raise NotImplementedError("an extent that is known only at run time")
    return tuple(int(extent) for extent in shape)


def dtype_of(value: Value) -> str:
    """The element type of a value."""
    return str(value.ty.dtype)


def counted_axis(axis: int, rank: int, name: str = "axis") -> int:
    """An axis, which may be counted from the last one, counted from the first one.

    Raises:
        ValueError: there is no such axis.
    """
    if not -rank <= axis < rank:
        raise ValueError(f"{name} {axis} of a tensor of {rank} dimensions")
    return axis % rank


def constant(array: Any, dtype: str) -> Value:
    """A constant of a type."""
    return relax.const(np.ascontiguousarray(array).reshape(np.shape(array)), dtype)


def along(value: Value, axis: int, rank: int) -> Value:
    """A vector as a tensor of ``rank`` dimensions that lies along ``axis``."""
    return op.reshape(value, [-1 if i == axis else 1 for i in range(rank)])
