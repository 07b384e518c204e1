"""Comparison of numbers, as far as rounding leaves them defined."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_tile.report.verification import Difference

Array = np.ndarray[Any, Any]
Argument = Array | int
"""Of a function: a tensor, or the value of an open extent."""

# The distance from 1 to the next number.
_EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "tf32": 2.0**-10,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e5m2": 2.0**-2,
}
_ROUNDINGS = 16.0  # of an element behind its sum; functions such as exp take some each
_SPREADS = 32.0  # how much farther than the references from each other


def tolerance(dtype: str, depth: int, sums: str = "float32") -> float:
    """Difference that rounding may make in a result of about 1.

    Args:
        dtype: type of the result.
        depth: products or numbers that are added up for one element.
        sums: the type that they are added in; ``"tf32"`` where float32 operands of products lose
            mantissa.
    """
    own = _EPSILON.get(dtype, _EPSILON["float32"])
    added = max(_EPSILON.get(sums, own), _EPSILON["float32"] if dtype != "float64" else own)
    return _ROUNDINGS * own + 8 * added * math.sqrt(max(1, depth))


def compare(got: Array, wanted: Array, allowed: float, others: Sequence[Array] = ()) -> Difference:
    """Compare an output with a reference, element by element.

    Args:
        got: the output.
        wanted: the reference, of the same shape.
        allowed: the largest relative error that counts as right; see :func:`tolerance`.
        others: further references, computed from inputs that differ by rounding. Where they differ
            from ``wanted``, as at a jump or where sums cancel, so may ``got``.

    Returns:
        The largest error, where it is, and whether all elements are within what is allowed.
    """
    if not is_float(wanted.dtype):
        wrong = got != wanted
        for other in others:
            wrong &= other == wanted
        return _comparison(wrong, 0.0 if not wrong.any() else math.inf, got, wanted)
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    others = [other.astype(np.float64) for other in others]
    kind = _kind(wanted)
    defined = np.ones(wanted.shape, bool)
    for other in others:
        defined &= _kind(other) == kind
    misplaced = (_kind(got) != kind) & defined
    finite = defined & (kind == 0) & ~misplaced
    size = np.abs(np.where(finite, wanted, 0.0))
    size += _mean(size, finite)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.where(finite, np.abs(got - wanted), 0.0)
        room = allowed * size
        for other in others:
            spread = np.where(finite, np.abs(other - wanted), 0.0)
            room = np.maximum(room, _SPREADS * np.maximum(spread, _mean(spread, finite)))
        wrong = misplaced | (off > room)
        relative = off / np.where(size > 0, size, 1.0)
    error = math.inf if misplaced.any() else float(relative.max(initial=0.0))
    return _comparison(wrong, error, got, wanted)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether a type is of floating-point numbers, those of ml_dtypes included."""
    return dtype.kind == "f" or "float" in dtype.name


def _kind(array: Array) -> Array:
    """0 for numbers, 1 for NaN, 2 and 3 for the infinities."""
    kind: Array = np.isnan(array) + 2 * (array == np.inf) + 3 * (array == -np.inf)
    return kind


def _mean(array: Array, where: Array) -> float:
    """Mean of the chosen elements, 0 of none."""
    count = int(where.sum())
    return float(np.minimum(array, 1e30)[where].sum() / count) if count else 0.0


def _comparison(wrong: Array, error: float, got: Array, wanted: Array) -> Difference:
    """The difference of two arrays, with the first wrong element as an example."""
    if not wrong.any():
        return Difference(error, 0, wrong.size)
    at = tuple(int(index) for index in np.argwhere(wrong)[0])
    example = f"at {list(at)} {got[at]!s} instead of {wanted[at]!s}"
    return Difference(error, int(wrong.sum()), wrong.size, example)
