"""Whether outputs are right: against float64, as far as rounding leaves them defined.

How exactly an output is defined is found by computing it several times: in float64, in float64
from inputs that are off by a few roundings, and in the graph's own type. Where these differ, as at
a jump or where sums cancel, so may a compiled graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_ROOM = 32.0  # times what the references differ by
# Relative to an output's own size: float32 within sums of a few hundred, and halves.
_RELATIVE = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 6e-2}


def difference(
    got: np.ndarray, wanted: np.ndarray, others: Sequence[np.ndarray], dtype: str
) -> str:
    """What is wrong with an output; empty where nothing is.

    Args:
        got: the output.
        wanted: it in float64, or exact.
        others: further references, which roundings have moved.
        dtype: the graph's floating-point type.
    """
    if got.shape != wanted.shape:
        return f"shape {got.shape} instead of {wanted.shape}"
    if not got.size:
        return ""
    if wanted.dtype.kind != "f":
        defined = np.logical_and.reduce([other == wanted for other in others])
        wrong = (got != wanted) & defined
        return _described(wrong, got, wanted)
    got = got.astype(np.float64)
    classes = [_class(other) for other in (wanted, *others)]
    defined = np.logical_and.reduce([each == classes[0] for each in classes])
    wrong = (_class(got) != classes[0]) & defined
    if wrong.any():
        return "NaN or infinite elsewhere: " + _described(wrong, got, wanted)
    finite = defined & (classes[0] == 0)
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.max([np.abs(other - wanted) for other in others], axis=0)
        spread, size = np.where(finite, spread, 0), np.where(finite, np.abs(wanted), 0)
        room = _RELATIVE[dtype] * (size + _middle(size[finite]))
        room += _ROOM * np.maximum(spread, _middle(spread[finite]))
        wrong = finite & ~(np.abs(got - wanted) <= room)
    return _described(wrong, got, wanted)


def _class(array: np.ndarray) -> np.ndarray:
    """0 for numbers, 1 for NaN, 2 and 3 for the infinities."""
    with np.errstate(invalid="ignore"):
        return np.isnan(array) + 2 * (array == np.inf) + 3 * (array == -np.inf)


def _middle(array: np.ndarray) -> float:
    return float(np.mean(np.minimum(array, 1e30))) if array.size else 0.0


def _described(wrong: np.ndarray, got: np.ndarray, wanted: np.ndarray) -> str:
    if not wrong.any():
        return ""
    first = tuple(int(i[0]) for i in np.nonzero(wrong))
    values = f"{got[first]!s} instead of {wanted[first]!s}"
    return f"{int(wrong.sum())} of {wrong.size} elements, at {list(first)} {values}"
