"""What converters of Relay's operators ask of types, and of axes."""

from __future__ import annotations

from typing import Any

from tvm_tile.frontend.ops.values import counted_axis, dtype_of


def is_float(dtype: str) -> bool:
    """Whether elements of a type are floating-point numbers."""
    return dtype.startswith(("float", "bfloat"))


def is_integer(dtype: str) -> bool:
    """Whether elements of a type are integers; truth values are none."""
    return dtype.startswith(("int", "uint"))


def wide_type(dtype: str) -> str:
    """The type that numbers of a type are computed in: of halves float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def require_floats(*values: Any) -> None:
    """Refuse tensors of other than floating-point numbers."""
    for dtype in map(dtype_of, values):
        if not is_float(dtype):
            raise NotImplementedError(f"elements of {dtype}")


def require_numbers(*values: Any) -> None:
    """Refuse tensors of truth values."""
    if "bool" in map(dtype_of, values):
        raise NotImplementedError("elements of bool")


def require_one_type(*values: Any) -> str:
    """The element type of all tensors.

    Raises:
        ValueError: they have several.
    """
    dtypes = [dtype_of(value) for value in values]
    if len(set(dtypes)) > 1:
        raise ValueError(f"operands of {' and '.join(dtypes)}")
    return dtypes[0]


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
