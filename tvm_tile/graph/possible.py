"""Which truth values conditions may have, where some of the tensors that they read are known."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, tirx

Flags = tuple[np.ndarray, np.ndarray]
"""Whether a condition may hold, and whether it may not: both where that is not known."""

_UNKNOWN: Flags = (np.array(True), np.array(True))
_COMPARISONS: dict[Any, Callable[[Any, Any], Any]] = {
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
}
_ARITHMETIC: dict[Any, Callable[[Any, Any], Any]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
}
_DIVISIONS: dict[Any, Callable[[Any, Any], Any]] = {
    tirx.FloorDiv: operator.floordiv,
    tirx.FloorMod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Possible:
    """What is known of the variables and the tensors of expressions.

    Attributes:
        variables: variable -> its values, arrays that broadcast with one another.
        tensors: name of a tensor -> its elements.
    """

    variables: Mapping[Any, np.ndarray]
    tensors: Mapping[str, np.ndarray]

    def flags(self, condition: Any) -> Flags:
        """The truth values that a condition may have, for each combination of variables."""
        if isinstance(condition, tirx.Not):
            may, may_not = self.flags(condition.a)
            return may_not, may
        if isinstance(condition, tirx.And | tirx.Or):
            (a, not_a), (b, not_b) = self.flags(condition.a), self.flags(condition.b)
            both = isinstance(condition, tirx.And)
            return (a & b, not_a | not_b) if both else (a | b, not_a & not_b)
        if type(condition) in _COMPARISONS:
            one, other = self.number(condition.a), self.number(condition.b)
            if one is None or other is None:
                return _UNKNOWN
            return _certain(_COMPARISONS[type(condition)](one, other))
        value = self.number(condition)
        return _UNKNOWN if value is None else _certain(value != 0)

    def number(self, value: Any) -> np.ndarray | None:
        """The values of an expression; ``None`` where they are not known."""
        if isinstance(value, tirx.IntImm | tirx.FloatImm):
            return np.array(value.value)
        if isinstance(value, tirx.Var):
            return self.variables.get(value)
        if isinstance(value, ir.TensorLoad):
            return self._element(value)
        if isinstance(value, tirx.Cast):
            inner = self.number(value.value)
            is_integer = inner is not None and "int" in str(value.ty.dtype)
            return inner.astype(str(value.ty.dtype)) if inner is not None and is_integer else None
        kind = type(value)
        if kind not in _ARITHMETIC and kind not in _DIVISIONS:
            return None
        a, b = self.number(value.a), self.number(value.b)
        if a is None or b is None or (kind in _DIVISIONS and not np.all(b)):
            return None
        found: np.ndarray = (_ARITHMETIC | _DIVISIONS)[kind](a, b)
        return found

    def _element(self, load: Any) -> np.ndarray | None:
        tensor = self.tensors.get(str(load.source.name))
        if tensor is None:
            return None
        indices = [self.number(index) for index in load.indices]
        places = [own for own in indices if own is not None]
        sizes = zip(places, tensor.shape, strict=False)
        if len(places) < len(indices) or not all(
            np.all((own >= 0) & (own < extent)) for own, extent in sizes
        ):
            return None
        found: np.ndarray = tensor[tuple(places)]
        return found


def _certain(holds: np.ndarray) -> Flags:
    return holds, ~holds
