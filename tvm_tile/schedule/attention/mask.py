"""Find what a mask leaves of the scores: a band, and what becomes of a score within it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import tvm_ffi
from tvm import sym, tirx

from tvm_tile.graph.expression import is_load_of, number_in
from tvm_tile.graph.extract import Names, affine_index, loads_in
from tvm_tile.schedule.attention.weights import Weights, without_casts
from tvm_tile.tile.attention.band import Band, find_runs
from tvm_tile.tile.attention.chain import Chain

COMPARISONS: dict[type, Callable[[int, int], bool]] = {
    tirx.LT: operator.lt,
    tirx.LE: operator.le,
    tirx.GT: operator.gt,
    tirx.GE: operator.ge,
    tirx.EQ: operator.eq,
    tirx.NE: operator.ne,
}
# Models that mask with a number take exp(number - a row's maximum) to be 0, which in float32 it is
# from 104 below the maximum on. Float16's lowest number is the highest that is in use.
_HIGHEST_FILL = -(2.0**15)


def find_mask(chain: Chain, weights: Weights) -> tuple[Band, Any] | None:
    """The band outside of which all weights are 0, and the value of an element within it.

    before: ``Select(j - i <= 3, score * 0.125, -inf)``
    after:  ``score * 0.125``, with a band up to diagonal 3

    Which elements a comparison of the indices holds for is a matter of their diagonal, ``j - i``.
    Between the diagonals at which the outcome of one changes, each is a constant, and what is then
    left of the value is either minus infinity, whatever the score, or the same expression.

    A finite number in place of minus infinity is as good where every row keeps a key, which then
    weighs so much more, and where nothing else can hide that one. (If a whole row is at that
    number, its weights are all the same.)

    Returns:
        ``None`` where the mask is none or not of this kind.
    """
    (rows,), keys = chain.first.left.free, chain.keys
    outcomes = _Outcomes(weights, rows.name, keys.name)
    starts = outcomes.starts(1 - rows.extent, keys.extent - 1)
    values = [outcomes.at(start) for start in starts]
    fills = [fill_of(value) for value in values]
    runs = find_runs([fill is None for fill in fills])
    if len(runs) != 1 or all(fill is None for fill in fills):
        return None
    first, last = runs[0]
    inside = values[first]
    if not all(tvm_ffi.structural_equal(inside, value) for value in values[first : last + 1]):
        return None
    band = Band(
        None if first == 0 else starts[first],
        None if last == len(starts) - 1 else starts[last + 1] - 1,
    )
    is_infinite = all(fill in (None, -math.inf) for fill in fills)
    is_alone = all(is_load_of(load, weights.element.given[0]) for load in loads_in(inside))
    if not is_infinite and not (is_alone and band.reaches_all_rows(rows.extent, keys.extent)):
        return None
    return band, inside


class _Outcomes:
    """A value, and what is left of it once the comparisons of its indices are decided."""

    def __init__(self, weights: Weights, row: str, key: str) -> None:
        self._value = weights.element.value
        self._names = Names(weights.element.variables)
        self._row, self._key = row, key
        self._found: list[tuple[Any, int, int]] = []  # comparison; a, b of a * diagonal + b
        entries = [(kind, self._read) for kind in COMPARISONS]
        tvm_ffi.structural_walk(self._value, entries, order="pre")

    def starts(self, lowest: int, highest: int) -> list[int]:
        """Diagonals from which on, to the next, all outcomes stay as they are."""
        changes = {-offset // slope + past for _, slope, offset in self._found for past in (0, 1)}
        return [lowest, *sorted(start for start in changes if lowest < start <= highest)]

    def at(self, diagonal: int) -> Any:
        """Value that is left on a diagonal."""

        def outcome(node: Any) -> bool | None:
            for known, slope, offset in self._found:
                if node.same_as(known):
                    return COMPARISONS[type(node)](slope * diagonal + offset, 0)
            return None

        return decided(self._value, outcome)

    def _read(self, node: Any) -> None:
        """Note a comparison of integers if it depends on key minus row alone."""
        if "int" not in str(node.a.ty.dtype):
            return
        difference = affine_index(node.a - node.b, self._names)
        slope = difference.coefficient(self._key)
        if difference.is_exact and dict(difference.terms) == {self._row: -slope, self._key: slope}:
            self._found.append((node, slope, difference.offset))


def decided(value: Any, outcome: Callable[[Any], bool | None]) -> Any:
    """What is left of a value once some of its comparisons are decided.

    Args:
        value: an expression.
        outcome: function that says whether a comparison holds; ``None``: that is not known.
    """

    def known(node: Any) -> Any:
        own = outcome(node)
        return node if own is None else tirx.const(own, "bool")

    entries = [(kind, known) for kind in COMPARISONS]
    return sym.Analyzer().simplify(tvm_ffi.structural_map(value, entries, order="post"))


def fill_of(value: Any) -> float | None:
    """The number that hides an element, or is added to hide it; ``None`` of any other value."""
    value = without_casts(value)
    number = number_in(value)
    if number is not None:
        return number if number <= _HIGHEST_FILL else None
    if isinstance(value, tirx.Add):
        return next((f for f in map(fill_of, (value.a, value.b)) if f is not None), None)
    return None
