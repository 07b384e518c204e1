"""Arithmetic on scores between two products, as expressions of TensorIR, in float32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import (
    Expression,
    are_same,
    combined,
    is_load_of,
    loads_of,
    number_in,
    substituted,
    summand,
    variables_in,
)
from tvm_tile.graph.extract import loads_in, nodes_in
from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.loops.softmax import LEAST_SINK

HALVES = ("float16", "bfloat16")
# Models that mask with a number take exp(number - a row's maximum) to be 0, which in float32 it is
# from 104 below the maximum on. Float16's lowest number is the highest that is in use.
HIGHEST_FILL = -(2.0**15)
_HIGHEST = 3.4028234663852886e38  # of float32, finite
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)


@dataclass(frozen=True, slots=True)
class Weights:
    """Arithmetic on scores before the second product, and on its sums behind it.

    Attributes:
        element: a score, scaled and masked, or whatever else becomes of it by itself, in float32;
            the score is given.
        lowest: number that the maximum of a row starts at; ``None`` where there is no softmax, and
            a score's element is its weight.
        is_safe: whether a row all of whose elements are minus infinity has weights of zero.
        sink: one more element of the row, in float32, whose weight nothing is multiplied by;
            ``None`` where there is none.
    """

    element: Expression
    lowest: float | None
    is_safe: bool = False
    sink: Expression | None = None

    @property
    def tensors(self) -> frozenset[str]:
        """Names of the parameters that weights are made of, beside scores."""
        return self.element.tensors | (self.sink.tensors if self.sink else frozenset())

    @property
    def highest_fill(self) -> float:
        """A number in place of a score, or added to it, that hides it, as all lower ones do.

        Minus infinity, unless the row has a sink that is known to be high enough, and nothing else
        is added to scores that might bring them back.
        """
        sink = None if self.sink is None else self.sink.value
        least = number_in(sink.b) if isinstance(sink, tirx.Max) else None
        if least is None or least < LEAST_SINK:
            return -math.inf
        choices = nodes_in(self.element.value, tirx.Select)
        asked = [load for choice in choices for load in loads_in(choice.condition)]
        is_alone = all(any(map(load.same_as, asked)) for load in self.element.loads)
        return HIGHEST_FILL if is_alone else -math.inf

    @property
    def slope(self) -> float | None:
        """The factor, where an element is its score times a positive constant."""
        value, factor = without_casts(self.element.value), 1.0
        while isinstance(value, tirx.Mul) and (own := number_in(value.b)) is not None:
            value, factor = without_casts(value.a), factor * own
        return factor if factor > 0 and is_load_of(value, self.element.given[0]) else None

    def scaled(self, factor: float) -> Weights:
        """The weights of scores that are to be scaled first."""
        if factor == 1:
            return self

        def load(node: ir.TensorLoad) -> Any:
            is_score = node.source.same_as(self.element.given[0])
            return node * tirx.const(factor, "float32") if is_score else node

        value = tvm_ffi.structural_map(self.element.value, [(ir.TensorLoad, load)], order="post")
        return replace(self, element=replace(self.element, value=value))


def read_weights(
    between: Sequence[SBlock], weight: Any, scores: Any, axes: Mapping[Any, AffineIndex]
) -> Weights | None:
    """Read the arithmetic on scores between two products, the second's left factor included.

    Args:
        between: the maximum and the sum of a softmax's rows, perhaps with a flag whether
            any element of the row is not minus infinity; or nothing.
        weight: the factor, an expression of scores and of what ``between`` writes.
        scores: the first product's output.
        axes: variables of the weight -> the axes that they stand for.
    """
    loads = loads_of(weight, scores)
    if any(not are_same(loads[0].indices, load.indices) for load in loads):
        return None
    softmax = _softmax(between, weight, scores) if between else (weight, None, False, None)
    if softmax is None:
        return None
    value, lowest, is_safe, own = softmax
    given = tirx.decl_buffer(scores.ty.shape, "float32", str(scores.name))
    element = Expression(_in_float32(value, scores, given), axes, (given,))
    sink = None if own is None else Expression(_in_float32(own, scores, given), axes)
    return Weights(element, lowest, is_safe, sink)


def _softmax(
    between: Sequence[SBlock], weight: Any, scores: Any
) -> tuple[Any, float, bool, Any | None] | None:
    """Parts of a softmax: argument, start of the maxima, whether empty rows weigh nothing, sink."""
    flags = [block for block in between if "int" in str(block.body.buffer.ty.dtype)]
    sums = [block for block in between if block not in flags]
    if len(sums) != 2 or len(flags) > 1:
        return None
    most, total = sums
    given = _unless_lowest(weight, most.body.buffer)
    if given is None and flags:
        given = _unless_empty(weight, flags[0].body.buffer)
    is_safe = given is not None
    weight = given if is_safe else weight
    own = _weight(weight, total.body.buffer, most.body.buffer)
    summed = _exponent(summand(total), most.body.buffer)
    lowest = number_in(most.init.value)
    if own is None or summed is None or lowest is None:
        return None
    value, sink = own
    pairs = [(_less_sink(*own), _less_sink(*summed)), (value, combined(most, tirx.Max))]
    pairs += [(value, _flagged(flag)) for flag in flags]
    if any(other is None or not _is_same_score(one, other, scores) for one, other in pairs):
        return None
    if sink is not None and (is_safe or not _is_of_row(summed[1], total, (scores, most, total))):
        return None
    # From minus infinity, which is where maxima start, the difference to itself is no number.
    return value, max(lowest, -_HIGHEST), is_safe, sink


def _unless_lowest(weight: Any, most: Any) -> Any | None:
    """``x`` of ``0 if most == -inf else x``."""
    choice = without_casts(weight)
    if not isinstance(choice, tirx.Select) or number_in(choice.true_value) != 0:
        return None
    test = choice.condition
    if not isinstance(test, tirx.EQ) or number_in(test.b) != -math.inf:
        return None
    return choice.false_value if is_load_of(test.a, most) else None


def _unless_empty(weight: Any, flag: Any) -> Any | None:
    """``x`` of ``0 if no flag is set else x``."""
    choice = without_casts(weight)
    if not isinstance(choice, tirx.Select) or number_in(choice.true_value) != 0:
        return None
    if not all(is_load_of(load, flag) for load in loads_in(choice.condition)):
        return None
    dtype = str(flag.ty.dtype)
    outcomes = []
    for value in range(2):
        entry = (ir.TensorLoad, lambda _, value=value: tirx.const(value, dtype))
        condition = tvm_ffi.structural_map(choice.condition, [entry], order="post")
        outcomes.append(sym.Analyzer().can_prove(condition))
    return choice.false_value if outcomes == [True, False] else None


def _flagged(block: SBlock) -> Any | None:
    """``x`` of ``flag = max(flag, x != -inf)``."""
    test = combined(block, tirx.Max)
    test = test.value if isinstance(test, tirx.Cast) else test
    if not isinstance(test, tirx.Not) or not isinstance(test.a, tirx.EQ):
        return None
    return test.a.a if number_in(test.a.b) == -math.inf else None


def without_casts(expr: Any) -> Any:
    """``expr`` without the casts from float to float around it."""
    while isinstance(expr, tirx.Cast) and _is_float(expr) and _is_float(expr.value):
        expr = expr.value
    return expr


def _weight(weight: Any, total: Any, most: Any) -> tuple[Any, Any | None] | None:
    """``x`` of ``exp(x - most) / total``; or, with a sink, it and ``y`` of ``exp(x - max(most, y))
    / (total + exp(y - max(most, y)))``."""
    quotient = without_casts(weight)
    if not isinstance(quotient, tirx.Div):
        return None
    whole, found = quotient.b, _exponent(quotient.a, most)
    if found is None or found[1] is None:
        return found if is_load_of(whole, total) else None
    if not isinstance(whole, tirx.Add) or not is_load_of(whole.a, total):
        return None
    own, sink = _exponent(whole.b, most), found[1]
    is_sink = own is not None and all(tvm_ffi.structural_equal(part, sink) for part in own)
    return found if is_sink else None


def _exponent(value: Any, most: Any) -> tuple[Any, Any | None] | None:
    """``x`` of ``exp(x - most)``; or it and ``y`` of ``exp(x - max(most, y))``."""
    if not isinstance(value, ir.Call) or getattr(value.op, "name", "") != "tirx.exp":
        return None
    (difference,) = value.args
    if not isinstance(difference, tirx.Sub):
        return None
    top, sink = difference.b, None
    if isinstance(top, tirx.Max):
        top, sink = top.a, top.b
    return (difference.a, sink) if is_load_of(top, most) else None


def _less_sink(value: Any, sink: Any | None) -> Any:
    """One expression of an element and its row's sink, to be compared."""
    return value if sink is None else tirx.Sub(value, sink)


def _is_of_row(sink: Any, total: SBlock, made: Sequence[Any]) -> bool:
    """Whether a sink is the same for all of a row that ``total`` sums up, and made by no block."""
    keys = [v.var for v in total.iter_vars if v.iter_type == tirx.IterVar.CommReduce]
    buffers = [own.body.buffer if isinstance(own, SBlock) else own for own in made]
    is_made = any(loads_of(sink, buffer) for buffer in buffers)
    return not is_made and not any(var.same_as(key) for var in variables_in(sink) for key in keys)


def _is_same_score(value: Any, other: Any, scores: Any) -> bool:
    """Whether two expressions make the same of a score, each with variables of its own."""
    places = [next((load.indices for load in loads_of(e, scores)), ()) for e in (value, other)]
    own, others = (variables_in(list(indices)) for indices in places)
    names = dict(zip(others, own, strict=False))
    theirs = substituted(without_casts(other), names)
    return bool(tvm_ffi.structural_equal(theirs, without_casts(value)))


def _in_float32(expr: Any, scores: Any, given: Any) -> Any:
    """``expr`` with float32 in place of half precision, and loads of ``given`` for ``scores``.

    What a graph rounds to half precision only to hand it on stays as it is: nothing is handed on
    any more.
    """

    def visit(node: Any) -> Any:
        if isinstance(node, ir.TensorLoad) and is_load_of(node, scores):
            return tirx.BufferLoad(given, list(node.indices))
        if isinstance(node, tirx.Cast) and _is_float(node):
            return visit(node.value)
        if isinstance(node, tirx.FloatImm):
            return tirx.const(float(node.value), "float32")
        if isinstance(node, _ARITHMETIC) and _is_float(node):
            return type(node)(visit(node.a), visit(node.b))
        if isinstance(node, tirx.Select) and _is_float(node):
            choice = inner(node.condition)
            return tirx.Select(choice, visit(node.true_value), visit(node.false_value))
        if isinstance(node, ir.Call) and _is_float(node):
            args = [visit(arg) if _is_float(arg) else inner(arg) for arg in node.args]
            return ir.Call(node.op, args, ret_ty=ir.PrimType("float32"))
        return _float32(inner(node))

    def inner(node: Any) -> Any:
        """Whatever is of another type, such as a condition: as it is, of the scores as these
        would be handed on."""

        def load(node: ir.TensorLoad) -> Any:
            if not is_load_of(node, scores):
                return node
            own = tirx.BufferLoad(given, list(node.indices))
            dtype = str(node.ty.dtype)
            return own if dtype == "float32" else tirx.Cast(dtype, own)

        return tvm_ffi.structural_map(node, [(ir.TensorLoad, load)], order="post")

    return visit(expr)


def _is_float(expr: Any) -> bool:
    """Whether an expression is a number in float32 or half precision."""
    return str(expr.ty.dtype) in ("float32", *HALVES)


def _float32(expr: Any) -> Any:
    """An expression as float32."""
    return expr if str(expr.ty.dtype) == "float32" else tirx.Cast("float32", expr)
