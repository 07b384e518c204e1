"""Find which keys a mask leaves to each row: neighbours, and what becomes of a score of theirs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_tile.graph.expression import Expression, is_load_of, number_in, substituted, uses
from tvm_tile.graph.extract import loads_in, nodes_in
from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.schedule.attention.weights import HIGHEST_FILL, Weights, without_casts
from tvm_tile.tile.attention.band import Band
from tvm_tile.tile.attention.chain import Chain

# Comparisons: what holds where one does not, what one says of its sides the other way round.
_NEGATED = {
    tirx.LT: tirx.GE,
    tirx.LE: tirx.GT,
    tirx.GT: tirx.LE,
    tirx.GE: tirx.LT,
    tirx.EQ: tirx.NE,
    tirx.NE: tirx.EQ,
}
_MIRRORED = {tirx.LT: tirx.GT, tirx.LE: tirx.GE, tirx.GT: tirx.LT, tirx.GE: tirx.LE}
# The first, and the last, integer that passes one with a number, from that number on.
_FIRST: dict[type, int] = {tirx.GT: 1, tirx.GE: 0, tirx.EQ: 0}
_LAST: dict[type, int] = {tirx.LT: -1, tirx.LE: 0, tirx.EQ: 0}
_INTEGERS = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class Reach:
    """The keys that numbers of a row let it see: neighbours, from a first to a last one.

    Attributes:
        first: the first one, int32, from 0 to their number; ``None``: 0.
        last: the last one, int32, -1 for none at all; ``None``: the last there is.
    """

    first: Expression | None
    last: Expression | None


@dataclass(frozen=True, slots=True)
class Mask:
    """What a mask leaves.

    Attributes:
        band: the band outside of which all weights are 0.
        reach: the keys outside of which they are, too; ``None``: all.
        expected: the band of both if the numbers in memory that a row has, its positions, are 0, 1,
            2, and so on, as those of a prompt; ``None`` without any.
        weights: the weights of what is left.
    """

    band: Band
    reach: Reach | None
    expected: Band | None
    weights: Weights


def find_mask(chain: Chain, weights: Weights) -> Mask:
    """What comparisons of keys with numbers of their rows leave to be seen.

    before: ``Select(j - i <= 3, score * 0.125, -inf)``
    after:  ``score * 0.125``, with a band up to diagonal 3
    before: ``Select(j <= position[i] && kept[j], score * 0.125, -inf)``
    after:  ``Select(kept[j], score * 0.125, -inf)``, where a row sees keys up to ``position[i]``

    A comparison counts if, with it decided one way, nothing but minus infinity is left of the
    score, whatever all else says, and if it can be solved for the key.

    A finite number in place of minus infinity is as good where every row keeps a key, which then
    weighs so much more, and where nothing else can hide that one. (If a whole row is at that
    number, its weights are all the same.) Or where the row has a sink, which weighs so much more.
    """
    found = _find(chain, weights, HIGHEST_FILL)
    (rows,), (scores,) = chain.first.left.free, weights.element.given
    is_alone = all(is_load_of(load, scores) for load in loads_in(found.weights.element.value))
    keeps_all = found.band.reaches_all_rows(rows.extent, chain.keys.extent)
    is_sure = found.reach is None and is_alone and keeps_all
    is_sure |= weights.highest_fill == HIGHEST_FILL
    return found if is_sure else _find(chain, weights, -math.inf)


def _find(chain: Chain, weights: Weights, highest: float) -> Mask:
    """What is left where numbers up to ``highest`` hide keys."""
    (rows,), keys = chain.first.left.free, chain.keys
    row, key = ({dtype: tirx.Var(axis.name, dtype) for dtype in _INTEGERS} for axis in (rows, keys))
    element = _with_variables(weights.element, {rows.name: row, keys.name: key})
    firsts: list[Any] = []
    lasts: list[Any] = []
    while (found := _next(element.value, key, highest)) is not None:
        kind, number, value = found
        firsts += [number + _FIRST[kind]] if kind in _FIRST else []
        lasts += [number + _LAST[kind]] if kind in _LAST else []
        element = replace(element, value=value)

    def diagonal(number: Any) -> int | None:
        """The diagonal that a number of each row is; ``None`` if it is not on one."""
        found = sym.Analyzer().simplify(number - row[str(number.ty.dtype)])
        return int(found) if isinstance(found, tirx.IntImm) else None

    def expected(number: Any) -> int | None:
        """The same if a row's position is the row."""

        def load(node: ir.TensorLoad) -> Any:
            dtype = str(node.ty.dtype)
            is_of_row = uses(list(node.indices), list(row.values()))
            return row[dtype] if is_of_row and dtype in row else tirx.const(0, dtype)

        return diagonal(tvm_ffi.structural_map(number, [(ir.TensorLoad, load)], order="pre"))

    band = _band(firsts, lasts, diagonal).of(rows.extent, keys.extent)
    firsts, lasts = ([n for n in own if diagonal(n) is None] for own in (firsts, lasts))
    weights = replace(weights, element=element)
    if not firsts and not lasts:
        return Mask(band, None, None, weights)
    reach = Reach(
        _clamped(element, firsts, tirx.Max, (0, keys.extent)),
        _clamped(element, lasts, tirx.Min, (-1, keys.extent - 1)),
    )
    return Mask(band, reach, band.within(_band(firsts, lasts, expected)), weights)


def _with_variables(element: Expression, variables: Mapping[str, Mapping[str, Any]]) -> Expression:
    """An expression with one variable for each of some axes and types of integers.

    Args:
        element: the expression.
        variables: name of an axis -> type -> variable, also in place of one that is cast to it.
    """
    axes = {var: name for name, own in variables.items() for var in own.values()}
    names = {**element.variables, **axes}

    def variable(node: Any) -> Any:
        inner = node
        while isinstance(inner, tirx.Cast) and str(inner.ty.dtype) in _INTEGERS:
            inner = inner.value
        own = variables.get(names.get(inner, "")) if isinstance(inner, tirx.Var) else None
        return node if own is None else own.get(str(node.ty.dtype), node)

    entries = [(tirx.Var, variable), (tirx.Cast, variable)]
    value = tvm_ffi.structural_map(element.value, entries, order="post")
    known = {var: AffineIndex(((name, 1),)) for var, name in axes.items()}
    return replace(element, value=value, axes={**element.axes, **known})


def _band(
    firsts: Sequence[Any], lasts: Sequence[Any], diagonal: Callable[[Any], int | None]
) -> Band:
    """The band between the first and the last keys of rows that are on diagonals."""
    lowers, uppers = ([d for d in map(diagonal, own) if d is not None] for own in (firsts, lasts))
    return Band(max(lowers, default=None), min(uppers, default=None))


def _next(value: Any, key: Mapping[str, Any], highest: float) -> tuple[type, Any, Any] | None:
    """A comparison that seen keys pass, the number they are compared with, the value for them."""
    for node in nodes_in(value, *_NEGATED):
        for outcome in (True, False):
            kind = type(node) if outcome else _NEGATED[type(node)]
            solved = None if kind is tirx.NE else _solved(node, kind, key)
            fill = None if solved is None else _fill(_decided(value, node, not outcome))
            if solved is not None and fill is not None and fill <= highest:
                return *solved, _decided(value, node, outcome)
    return None


def _decided(value: Any, comparison: Any, outcome: bool) -> Any:
    """What is left of a value once a comparison is decided."""

    def known(node: Any) -> Any:
        is_same = tvm_ffi.structural_equal(node, comparison)
        return tirx.const(outcome, "bool") if is_same else node

    entries = [(type(comparison), known)]
    return sym.Analyzer().simplify(tvm_ffi.structural_map(value, entries, order="post"))


def _solved(node: Any, kind: type, key: Mapping[str, Any]) -> tuple[type, Any] | None:
    """``kind`` between a comparison's sides as one of the key with a number that has none."""
    dtype = str(node.a.ty.dtype)
    if dtype not in key or not uses(node, [key[dtype]]):
        return None
    ranges, difference = sym.Analyzer(), node.a - node.b
    rest = ranges.simplify(substituted(difference, {key[dtype]: tirx.const(0, dtype)}))
    for step in (1, -1):
        left = ranges.simplify(difference - key[dtype] * step - rest)
        if number_in(left) == 0:
            number = ranges.simplify(rest * -step)
            return kind if step > 0 else _MIRRORED.get(kind, kind), number
    return None


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


def _fill(value: Any) -> float | None:
    """The number that hides an element, or is added to hide it; ``None`` of any other value."""
    value = without_casts(value)
    number = number_in(value)
    if number is not None:
        return number if number <= HIGHEST_FILL else None
    if isinstance(value, tirx.Add):
        return next((f for f in map(_fill, (value.a, value.b)) if f is not None), None)
    return None
