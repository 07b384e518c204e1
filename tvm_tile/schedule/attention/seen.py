"""Take the condition under which a key is seen out of what becomes of a score."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx

from tvm_tile.graph.expression import Expression, loads_of, number_in
from tvm_tile.graph.possible import Possible
from tvm_tile.schedule.attention.weights import Weights, without_casts
from tvm_tile.tile.attention.band import Band
from tvm_tile.tile.attention.chain import Chain
from tvm_tile.tile.attention.key_tiles import GRANULE, Granules

_STRIP = 4  # granules of rows that are looked at together
_MOST_BATCHES = 64  # whose masks differ


@dataclass(frozen=True, slots=True)
class Seen:
    """What a mask says of keys.

    Attributes:
        condition: whether a row sees a key, in the band or not; bool.
        weights: the weights of keys that are seen.
    """

    condition: Expression
    weights: Weights


def find_seen(weights: Weights) -> Seen | None:
    """The condition under which minus infinity does not take a score's place; ``None`` without one.

    before: ``Select(document[i] == document[j], score * 0.125, -inf)``
    after:  ``score * 0.125``, where ``document[i] == document[j]``
    """
    element, (scores,) = weights.element, weights.element.given
    found = _split(element.value, weights.highest_fill)
    if found is None:
        return None
    conditions, value = found
    if any(loads_of(condition, scores) for condition in conditions):
        return None
    condition = replace(element, value=functools.reduce(tirx.And, conditions), given=())
    return Seen(condition, replace(weights, element=replace(element, value=value)))


def _split(value: Any, highest: float) -> tuple[list[Any], Any] | None:
    """Conditions without all of which a value is at most ``highest``, and the value with them."""
    bare = without_casts(value)
    if isinstance(bare, tirx.Select):
        for hidden, left, condition in (
            (bare.false_value, bare.true_value, bare.condition),
            (bare.true_value, bare.false_value, tirx.Not(bare.condition)),
        ):
            number = number_in(without_casts(hidden))
            if number is not None and number <= highest:
                inner = _split(left, highest)
                return ([condition], left) if inner is None else ([condition, *inner[0]], inner[1])
        return None
    if isinstance(bare, tirx.Add):
        for own, other in ((bare.a, bare.b), (bare.b, bare.a)):
            inner = _split(own, highest)
            if inner is not None:
                return inner[0], inner[1] + other
    if isinstance(bare, tirx.Mul) and (factor := number_in(bare.b)) is not None and factor > 0:
        inner = _split(bare.a, highest)
        return None if inner is None else (inner[0], inner[1] * bare.b)
    return None


def granules_of(
    chain: Chain, condition: Expression, tensors: Mapping[str, np.ndarray]
) -> Granules | None:
    """What of a mask is known by granules, of all batches together; ``None`` for too many masks.

    Args:
        chain: the products, in whose band keys are seen, too.
        condition: whether a row sees a key.
        tensors: the tensors that are known, by name.
    """
    (rows,), keys = chain.first.left.free, chain.keys
    names = condition.names
    batch = [axis for axis in chain.first.batch if axis.name in names]
    places = list(itertools.islice(_places(batch), _MOST_BATCHES + 1))
    if len(places) > _MOST_BATCHES:
        return None
    seen, whole = [], []
    for first in range(0, rows.extent, _STRIP * GRANULE):
        row = np.arange(first, min(first + _STRIP * GRANULE, rows.extent))[:, None]
        values = {rows.name: row, keys.name: np.arange(keys.extent)[None]}
        shape, banded = (len(row), keys.extent), _in_band(chain.band, values[keys.name] - row)
        may, must = np.zeros(shape, bool), np.ones(shape, bool)
        for place in places:
            may_be, may_not_be = _known(condition, {**values, **place}, tensors)
            may |= may_be & banded
            must &= ~may_not_be & banded
        seen.append(_blocks(may, np.any))
        whole.append(_blocks(must, np.all))
    return Granules(np.concatenate(seen), np.concatenate(whole))


def _places(axes: Sequence[Any]) -> Iterator[dict[str, np.ndarray]]:
    """The values of some axes, one combination after the other."""
    for own in itertools.product(*(range(axis.extent) for axis in axes)):
        yield {axis.name: np.array(value) for axis, value in zip(axes, own, strict=True)}


def _known(
    condition: Expression, values: Mapping[str, np.ndarray], tensors: Mapping[str, np.ndarray]
) -> Any:
    """Whether a condition may hold, and may not, at values of axes."""
    variables = {}
    for var, index in condition.axes.items():
        if all(name in values for name, _ in index.terms):
            terms = [values[name] * factor for name, factor in index.terms]
            variables[var] = functools.reduce(np.add, terms, np.array(index.offset))
    return Possible(variables, tensors).flags(condition.value)


def _in_band(band: Band, diagonal: np.ndarray) -> np.ndarray:
    kept = [np.asarray(own) for own in band.holds(diagonal)]
    return functools.reduce(np.logical_and, kept, np.ones(diagonal.shape, bool))


def _blocks(flags: np.ndarray, of: Any) -> np.ndarray:
    """What holds of any, or all, of each granule; of none that goes beyond the end."""
    sizes = [-extent % GRANULE for extent in flags.shape]
    padded = np.pad(flags, [(0, size) for size in sizes], constant_values=False)
    down, across = (extent // GRANULE for extent in padded.shape)
    found: np.ndarray = of(padded.reshape(down, GRANULE, across, GRANULE), axis=(1, 3))
    return found
