"""Find which keys rows of attention see, where their positions, numbers in memory, say so."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_tile.graph.expression import Expression, substituted, uses, variables_in
from tvm_tile.graph.extract import nodes_in
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.attention.mask import COMPARISONS, decided, fill_of
from tvm_tile.schedule.attention.weights import Weights
from tvm_tile.tile.attention.band import Band
from tvm_tile.tile.attention.chain import Chain

_INTEGERS = ("int32", "int64")
# What holds where a comparison does not; what it says of its sides the other way round.
_NEGATED = {
    tirx.LT: tirx.GE,
    tirx.LE: tirx.GT,
    tirx.GT: tirx.LE,
    tirx.GE: tirx.LT,
    tirx.EQ: tirx.NE,
    tirx.NE: tirx.EQ,
}
_MIRRORED = {tirx.LT: tirx.GT, tirx.LE: tirx.GE, tirx.GT: tirx.LT, tirx.GE: tirx.LE}
# A key's last and first value that a comparison with a number leaves, from that number on.
_LAST: dict[type, int] = {tirx.LT: -1, tirx.LE: 0, tirx.EQ: 0}
_FIRST: dict[type, int] = {tirx.GT: 1, tirx.GE: 0, tirx.EQ: 0}


@dataclass(frozen=True, slots=True)
class Reach:
    """The keys that a row sees at most: neighbours, from a first to a last one.

    Attributes:
        first: the first one, int32, from 0 to their number; ``None``: 0.
        last: the last one, int32, -1 for none at all; ``None``: the last there is.
    """

    first: Expression | None
    last: Expression | None


def find_reach(chain: Chain, weights: Weights) -> tuple[Reach, Band, Weights] | None:
    """What comparisons of keys with numbers of their rows leave to be seen.

    before: ``Select(j <= position[i] && kept[j], score * 0.125, -inf)``
    after:  ``Select(kept[j], score * 0.125, -inf)``, where a row sees keys up to ``position[i]``

    A comparison counts if, with it decided one way, nothing but minus infinity is left of the
    score, whatever all else says, and if it can be solved for the key. Finite numbers hide no key
    of a row that may have nothing else, so they are left to be read.

    Returns:
        What rows see; the band that is if their positions are 0, 1, 2, and so on, as those of a
        prompt are; and the weights of keys within reach. ``None`` where nothing is hidden so.
    """
    (rows,), keys = chain.first.left.free, chain.keys
    element = weights.element
    firsts: list[Any] = []
    lasts: list[Any] = []
    while (found := _next(element, keys)) is not None:
        kind, number, value = found
        one = tirx.const(1, str(number.ty.dtype))
        firsts += [number + one * _FIRST[kind]] if kind in _FIRST else []
        lasts += [number + one * _LAST[kind]] if kind in _LAST else []
        element = replace(element, value=value)
    if not firsts and not lasts:
        return None
    reach = Reach(
        _clamped(element, firsts, tirx.Max, (0, keys.extent)),
        _clamped(element, lasts, tirx.Min, (-1, keys.extent - 1)),
    )
    band = Band(
        max(_diagonals(element, firsts, rows), default=None),
        min(_diagonals(element, lasts, rows), default=None),
    )
    return reach, band, replace(weights, element=element)


def _next(element: Expression, keys: Axis) -> tuple[type, Any, Any] | None:
    """A comparison that seen keys pass, the number they are compared with, the value for them."""
    for node in nodes_in(element.value, *COMPARISONS):
        for outcome in (True, False):
            if fill_of(_with(element.value, node, not outcome)) != -math.inf:
                continue
            kind = type(node) if outcome else _NEGATED[type(node)]
            solved = None if kind is tirx.NE else _solved(element, keys, node, kind)
            if solved is not None:
                return *solved, _with(element.value, node, outcome)
    return None


def _with(value: Any, comparison: Any, outcome: bool) -> Any:
    """A value, once a comparison is decided."""

    def known(node: Any) -> bool | None:
        return outcome if tvm_ffi.structural_equal(node, comparison) else None

    return decided(value, known)


def _solved(element: Expression, keys: Axis, node: Any, kind: type) -> tuple[type, Any] | None:
    """``kind`` between a comparison's sides as one of the key with a number that has none."""
    dtype = str(node.a.ty.dtype)
    own = [var for var, name in element.variables.items() if name == keys.name]
    if dtype not in _INTEGERS or len(own) != 1 or not uses(node, own):
        return None
    ranges, key = sym.Analyzer(), tirx.Var(keys.name, dtype)
    difference = _without_casts(node.a - node.b, own[0], key)
    rest = ranges.simplify(substituted(difference, {key: tirx.const(0, dtype)}))
    for step in (1, -1):
        left = ranges.simplify(difference - key * tirx.const(step, dtype) - rest)
        if isinstance(left, tirx.IntImm) and int(left) == 0:
            number = ranges.simplify(rest * tirx.const(-step, dtype))
            return kind if step > 0 else _MIRRORED.get(kind, kind), number
    return None


def _without_casts(expr: Any, variable: Any, key: Any) -> Any:
    """An expression with ``key`` for a variable, and for it in another width and back again."""

    def cast(node: Any) -> Any:
        inner = node
        while isinstance(inner, tirx.Cast) and str(inner.ty.dtype) in _INTEGERS:
            inner = inner.value
        return key if inner.same_as(variable) and node.ty == key.ty else node

    narrowed = tvm_ffi.structural_map(expr, [(tirx.Cast, cast)], order="post")
    return substituted(narrowed, {variable: key}) if variable.ty == key.ty else narrowed


def _clamped(
    element: Expression, numbers: Sequence[Any], combine: type, ends: tuple[int, int]
) -> Expression | None:
    """Numbers of a row, combined to one that is a key, int32; ``None`` where there are none."""
    if not numbers:
        return None
    wide = [tirx.Cast("int64", number) for number in numbers]
    low, high = (tirx.const(end, "int64") for end in ends)
    value = tirx.Max(tirx.Min(functools.reduce(combine, wide), high), low)
    return replace(element, value=tirx.Cast("int32", value), given=())


def _diagonals(element: Expression, numbers: Sequence[Any], rows: Axis) -> list[int]:
    """Numbers less their row, of those that grow by one from row to row if positions do."""
    variables = {var for var, name in element.variables.items() if name == rows.name}

    def at(number: Any, row: int) -> Any:
        def load(node: ir.TensorLoad) -> Any:
            is_of_row = any(var in variables for var in variables_in(list(node.indices)))
            return tirx.const(row if is_of_row else 0, str(node.ty.dtype))

        known = tvm_ffi.structural_map(number, [(ir.TensorLoad, load)], order="pre")
        values = {var: tirx.const(row if var in variables else 0) for var in element.axes}
        return sym.Analyzer().simplify(substituted(known, values))

    found = []
    for number in numbers:
        start, end = (at(number, row) for row in (0, rows.extent - 1))
        if all(isinstance(own, tirx.IntImm) for own in (start, end)):
            found += [int(start)] if int(end) - int(start) == rows.extent - 1 else []
    return found
