"""How many iterations a loop has whose condition compares a count with a limit.

``while i < 64 and ...: i = i + 1, ...`` has 64 at most, if ``i`` begins with zero, and just so many
where nothing else ends it: then nobody has to compute the condition, nor to wait for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.ir import GenericConst

_BOTH = ("relax.logical_and", "relax.bitwise_and")
_BELOW = {"relax.less": False, "relax.less_equal": True}
_ABOVE = {"relax.greater": False, "relax.greater_equal": True}

Lookup = Callable[[Any], Any]
"""The value that a variable is bound to; ``None`` for one that is not."""


@dataclass(frozen=True, slots=True)
class Trips:
    """Iterations of a loop.

    Attributes:
        most: it has no more.
        is_exact: whether it has just so many.
    """

    most: int
    is_exact: bool


def known_trips(body: relax.Function, state: Sequence[Any], lookup: Lookup) -> Trips | None:
    """The iterations of a loop, as far as they are known.

    Args:
        body: of an iteration: from what is carried, and more, whether the loop goes on, and new
            values of what is carried.
        state: first values of what is carried.
        lookup: of the function that has the loop.
    """
    bindings = {b.var: b.value for block in body.body.blocks for b in block.bindings}
    inner: Lookup = bindings.get
    result = _resolved(body.body.body, inner)
    goes_on, *new = result.fields
    counts = {}
    for number, value in enumerate(new):
        step = _step(_resolved(value, inner), body.params[number], inner)
        first = _integer(state[number], lookup)
        if step and first is not None:
            counts[number] = first, step
    conditions = list(_conditions(_resolved(goes_on, inner), inner))
    known = [
        trips
        for condition in conditions
        for number, (first, step) in counts.items()
        if (trips := _trips(condition, _resolved(new[number], inner), first, step, inner))
        is not None
    ]
    return Trips(min(known), len(conditions) == 1) if known else None


def _resolved(value: Any, lookup: Lookup) -> Any:
    """What a value is, behind names and other shapes of one element."""
    while True:
        bound = lookup(value) if isinstance(value, relax.Var) else None
        if bound is not None:
            value = bound
        elif _is_call(value, "relax.reshape"):
            value = value.args[0]
        else:
            return value


def _is_call(value: Any, name: str) -> bool:
    return isinstance(value, relax.Call) and value.op == ir.Op.get(name)


def _conditions(value: Any, lookup: Lookup) -> Iterator[Any]:
    """All that must hold."""
    if any(_is_call(value, name) for name in _BOTH):
        for argument in value.args:
            yield from _conditions(_resolved(argument, lookup), lookup)
    else:
        yield value


def _step(value: Any, parameter: Any, lookup: Lookup) -> int | None:
    """What is added to a parameter, if a value is that."""
    if not _is_call(value, "relax.add"):
        return None
    one, other = (_resolved(argument, lookup) for argument in value.args)
    if other.same_as(parameter):
        one, other = other, one
    return _integer(other, lookup) if one.same_as(parameter) else None


def _integer(value: Any, lookup: Lookup) -> int | None:
    """The one element of a constant of integers."""
    value = _resolved(value, lookup)
    if isinstance(value, GenericConst):
        array = value.value.numpy()
        is_integer = array.size == 1 and np.issubdtype(array.dtype, np.integer)
        return int(array.item()) if is_integer else None
    if not isinstance(value, relax.Call) or not _is_one_integer(value.ty):
        return None
    if _is_call(value, "relax.full"):
        return _integer(value.args[1], lookup)
    return 0 if _is_call(value, "relax.zeros") else None


def _is_one_integer(kind: Any) -> bool:
    """Whether a type is that of a tensor with one integer."""
    shape = getattr(kind, "shape", None)
    if shape is None or not str(kind.dtype).startswith(("int", "uint")):
        return False
    return all(getattr(extent, "value", None) == 1 for extent in shape)


def _trips(condition: Any, count: Any, first: int, step: int, lookup: Lookup) -> int | None:
    """How often a count is within a limit, from its first value on."""
    if not isinstance(condition, relax.Call) or len(condition.args) != 2:
        return None
    name = str(getattr(condition.op, "name", ""))
    one, other = (_resolved(argument, lookup) for argument in condition.args)
    if name not in _BELOW | _ABOVE or not (one.same_as(count) or other.same_as(count)):
        return None
    limit = _integer(other if one.same_as(count) else one, lookup)
    is_rising = (name in _BELOW) == one.same_as(count)
    if limit is None or is_rising != (step > 0):
        return None
    distance = (limit - first) * (1 if is_rising else -1) + int((_BELOW | _ABOVE)[name])
    trips = max(0, -(-distance // abs(step)))
    # A count that leaves its type comes back from the other end.
    largest = np.iinfo(str(count.ty.dtype))
    return trips if largest.min <= first + trips * step <= largest.max else None
