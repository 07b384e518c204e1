"""Keys that a mask lets a row see, as a condition of their place alone."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tvm import ir, tirx

from tvm_tile.graph.expression import Expression, number_in
from tvm_tile.graph.extract import loads_in
from tvm_tile.schedule.attention.weights import Weights, without_casts

Condition = Any
"""An expression of TensorIR, or a bool where it is always that."""


def visible_keys(weights: Weights) -> Expression | None:
    """Condition under which a score is more than minus infinity, whatever the product is.

    ``Select(mask[k], score * 0.125, -inf)`` can be seen where ``mask[k]`` holds, and ``score +
    bias[k]`` where the bias is not minus infinity. Finite numbers that hide keys hide none of a row
    that has nothing else: those keys are seen, unless a sink always weighs so much more.

    Returns:
        ``None`` where every key is seen.
    """
    element = weights.element
    condition = _visible(element.value, element.given[0], weights.highest_fill)
    return None if isinstance(condition, bool) else replace(element, value=condition)


def _visible(value: Any, scores: Any, hidden: float) -> Condition:
    """Condition under which a value is more than what is hidden, whatever the scores are."""
    value = without_casts(value)
    number = number_in(value)
    if number is not None:
        return not number <= hidden  # as is no number
    if isinstance(value, tirx.Select):
        sides = (_visible(own, scores, hidden) for own in (value.true_value, value.false_value))
        return _either(value.condition, *sides)
    if isinstance(value, tirx.Add):
        return _both(*(_visible(own, scores, hidden) for own in (value.a, value.b)))
    if isinstance(value, ir.TensorLoad) and not value.source.same_as(scores):
        return value != tirx.const(-math.inf, str(value.ty.dtype))
    return True


def _either(condition: Any, first: Condition, second: Condition) -> Condition:
    """``first`` where the condition holds, else ``second``."""
    if any(True for load in loads_in(condition) if "float" in str(load.ty.dtype)):
        return True  # it may be of scores
    if isinstance(first, bool) and isinstance(second, bool):
        if first == second:
            return first
        return condition if first else tirx.Not(condition)
    known = [tirx.const(own, "bool") if isinstance(own, bool) else own for own in (first, second)]
    return tirx.Or(tirx.And(condition, known[0]), tirx.And(tirx.Not(condition), known[1]))


def _both(first: Condition, second: Condition) -> Condition:
    """Both conditions, either of which may be known."""
    if isinstance(first, bool):
        return second if first else False
    if isinstance(second, bool):
        return first if second else False
    return tirx.And(first, second)
