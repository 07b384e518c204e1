"""Integers that wrap in their type, as PyTorch's, NumPy's and ONNX's do.

TVM's simplifier takes int32 and int64 never to overflow: ``x * 2 // 2`` is ``x`` to it, and
``x + 1 > x`` is true. C and LLVM take the same of signed numbers. Of narrower types C computes in
int, and TVM writes no conversion back: 200 + 100 of uint8 was 300 to whatever read it in the same
kernel. So arithmetic that may leave its type is written in a type where it is defined, cut to its
own type, and hidden from the simplifier behind :func:`tvm_tile.registered.as_written`.

What no processor defines is defined here, as PyTorch or else NumPy has it:

=============================  ==================================================
``x << n``, n < 0 or too far   0
``x >> n``, n < 0 or too far   0, or -1 where ``x`` is negative
``x / 0``, ``x % 0``           0 (NumPy; PyTorch raises an error)
least number / -1              the least number; its remainder is 0
=============================  ==================================================

Only values are meant. The places of tensors' elements, which must lie within these, stay as they
are, and so does what is computed of loops' variables alone and fits.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx

from tvm_tile.build.exact.floats import is_float
from tvm_tile.build.exact.integer_types import (
    Spelling,
    bits_of,
    in_unsigned,
    is_integer,
    is_unsigned,
    limits_of,
)
from tvm_tile.registered import (
    as_written,
    factor_of_divisor,
    floor_quotient,
    floor_rest,
    is_registered,
    safe_divisor,
    shift_left,
    shift_right,
    type_like,
)

_JOINED = (tirx.Add, tirx.Sub, tirx.Mul)
_QUOTIENTS = (tirx.Div, tirx.FloorDiv)
_REMAINDERS = (tirx.Mod, tirx.FloorMod)
_SHIFTS = (tirx.LShift, tirx.RShift)
_ROUNDED = ("tirx.nearbyint", "tirx.round", "tirx.floor", "tirx.trunc")
_NATIVE = 32  # bits from which on C computes in the type itself


def wrap_integers(function: Any, spell: Spelling | None = None) -> Any:
    """A PrimFunc whose integers wrap in their type, and that the simplifier leaves so.

    before: ``y[i] = float32(x[i] + uint8(100))``
    after:  ``y[i] = float32(as_written(uint8(uint32(x[i]) + uint32(100))))``

    What loops bind to a name are places. Sums that are collected in memory, ``y[0] = y[0] + x[i]``,
    stay as they are, for TVM to know them as reductions: see :func:`wrap_collected`.

    Args:
        function: TensorIR of any stage up to code generation.
        spell: how arithmetic is written; by default for C's family of languages.
    """
    wrapping = _Wrapping(_ranges_of(function), spell or in_unsigned)

    def store(node: Any) -> Any:
        value = wrapping.stored(node)
        return node if value.same_as(node.value) else _stored(node, value)

    return tvm_ffi.structural_map(function, (tirx.BufferStore, store), order="post")


def wrap_collected(function: Any, spell: Spelling | None = None) -> Any:
    """A PrimFunc whose integers that are collected in memory wrap, too.

    before: ``y[0] = y[0] + x[i]``   after: ``y[0] = int32(uint32(y[0]) + uint32(x[i]))``
    """
    written = spell or in_unsigned

    def store(node: Any) -> Any:
        value = node.value
        if not isinstance(value, _JOINED) or not is_integer(value) or bits_of(value) < _NATIVE:
            return node  # what is stored into a narrow type is cut by that
        if not all(map(_is_read, (value.a, value.b))):
            return node
        return _stored(node, written(value))

    return tvm_ffi.structural_map(function, (tirx.BufferStore, store), order="post")


@dataclass(frozen=True, slots=True)
class _Wrapping:
    """Writes the values of one function.

    ``ranges`` is an Analyzer that knows the function's loops; ``loads`` has the loads that
    variables stand for while an expression is changed, so that the places read stay as they are.
    """

    ranges: Any
    spell: Spelling
    loads: dict[Any, Any] = field(default_factory=dict)

    def value(self, value: Any) -> Any:
        """An expression, each of whose integers wraps in its type."""
        opened = tvm_ffi.structural_map(value, (ir.TensorLoad, self._closed), order="pre")
        changes: list[Any] = [(kind, self._joined) for kind in _JOINED]
        changes += [(kind, self._divided) for kind in (*_QUOTIENTS, *_REMAINDERS)]
        changes += [(kind, self._shifted) for kind in _SHIFTS]
        changes += [(tirx.BitwiseNot, self._complement), (tirx.Cast, self._cast)]
        changed = tvm_ffi.structural_map(opened, changes, order="post")
        if changed.same_as(opened):
            return value
        shown = (tirx.Var, lambda var: self.loads.get(var, var))
        return tvm_ffi.structural_map(changed, shown, order="post")

    def stored(self, store: Any) -> Any:
        """The stored value, as :meth:`value`, but for the sum with the element's former value."""
        value = store.value
        if not isinstance(value, _JOINED) or not is_integer(value) or not _reads(value.a, store):
            return self.value(value)
        other = self.value(value.b)
        return value if other.same_as(value.b) else type(value)(value.a, other)

    def _closed(self, load: Any) -> Any:
        """A variable that hides a load from range analysis."""
        var = tirx.Var("loaded", load.ty)
        self.loads[var] = load
        return var

    def _joined(self, node: Any) -> Any:
        """Arithmetic of two operands that wraps, if its result may not fit."""
        if not is_integer(node) or self._fits(node):
            return node
        if isinstance(node.a, tirx.IntImm) and isinstance(node.b, tirx.IntImm):
            return _wrapped(node)  # TVM refuses a difference of constants that is below 0
        return as_written(self.spell(node))

    def _complement(self, node: Any) -> Any:
        """The complement of a narrow unsigned integer, cut to its width."""
        is_cut = is_integer(node) and is_unsigned(node) and bits_of(node) < _NATIVE
        return as_written(self.spell(node)) if is_cut else node

    def _cast(self, node: Any) -> Any:
        """The simplifier takes numbers that a cast cuts off for ones that are not there.

        Of floating-point numbers C makes narrow or unsigned ones as it likes, where these do not
        fit; PyTorch cuts them to wider integers first.
        """
        if not is_integer(node):
            return node
        if is_float(node.value):
            return _by_way_of_wider(node)
        if not is_integer(node.value):
            return node
        least, most = self._range(node.value)
        bottom, top = limits_of(node)
        is_kept = bottom <= least and most <= top
        return node if is_kept or self._is_unknown_place(node.value) else as_written(node)

    def _shifted(self, node: Any) -> Any:
        """A shift that wraps, for any amount that the operand may have."""
        if not is_integer(node):
            return node
        is_right = isinstance(node, tirx.RShift)
        nearest, farthest = self._range(node.b)
        if nearest < 0 or farthest >= bits_of(node):
            return (shift_right if is_right else shift_left)(node.a, node.b)
        least, most = self._range(node.a)
        bottom, top = limits_of(node)
        if is_right or (bottom <= least << farthest and most << farthest <= top):
            return node
        return as_written(self.spell(node))

    def _divided(self, node: Any) -> Any:
        """A division that is right for divisors of 0 and -1, if these may occur."""
        if not is_integer(node):
            return node
        least, most = self._range(node.b)
        has_zero, has_negation = least <= 0 <= most, least <= -1 <= most
        if not (has_zero or has_negation) or _is_place(node.b, self.loads):
            return _rounded_down(node) if _is_hidden(node) else node
        # Divided by 1 instead, the remainder is 0, and the quotient right but for a factor.
        divided = _rounded_down(type(node)(node.a, safe_divisor(node.b)))
        if isinstance(node, _REMAINDERS):
            return divided
        return as_written(self.spell(tirx.Mul(divided, factor_of_divisor(node.b))))

    def _fits(self, node: Any) -> bool:
        """Whether a sum, difference or product lies in its type, as far as loops' ranges tell."""
        (low_a, high_a), (low_b, high_b) = self._range(node.a), self._range(node.b)
        if isinstance(node, tirx.Mul):
            ends = [x * y for x in (low_a, high_a) for y in (low_b, high_b)]
            least, most = min(ends), max(ends)
        elif isinstance(node, tirx.Sub):
            least, most = low_a - high_b, high_a - low_b
        else:
            least, most = low_a + low_b, high_a + high_b
        bottom, top = limits_of(node)
        if bottom <= least and most <= top:
            return True
        return any(map(self._is_unknown_place, (node.a, node.b)))

    def _is_unknown_place(self, value: Any) -> bool:
        """Whether a number is computed of extents that only a call tells: a place, which fits."""
        return self._range(value) == limits_of(value) and _is_place(value, self.loads)

    def _range(self, value: Any) -> tuple[int, int]:
        """The least and the largest number that an integer expression can be."""
        bottom, top = limits_of(value)
        if isinstance(value, tirx.IntImm):
            return int(value.value), int(value.value)
        if "x" in str(value.ty.dtype):
            return bottom, top  # vectors, which the analyzer knows nothing of
        bound = self.ranges.const_int_bound(value)
        least, most = int(bound.min_value), int(bound.max_value)
        # The analyzer has 63 bits and a sign, and its ends mean that it does not know.
        if most >= 2**63 - 1:
            most = top
        if least <= -(2**63 - 1):
            least = bottom
        return max(least, bottom), min(most, top)


def _by_way_of_wider(cast: Any) -> Any:
    """A cast of floating-point numbers to integers of which C says what they are."""
    if is_unsigned(cast):
        wide = "" if _is_positive(cast.value) else "int64"
    else:
        wide = "int32" if bits_of(cast) < _NATIVE else ""
    if not wide:
        return cast
    return as_written(tirx.Cast(cast.ty, tirx.Cast(type_like(wide, cast), cast.value)))


def _is_positive(value: Any) -> bool:
    """Whether a floating-point number is known not to be negative: clamped, rounded or not."""
    if isinstance(value, tirx.FloatImm):
        return float(value.value) >= 0
    if isinstance(value, tirx.Max | tirx.Min):
        known = (_is_positive(value.a), _is_positive(value.b))
        return any(known) if isinstance(value, tirx.Max) else all(known)
    is_rounded = isinstance(value, ir.Call) and getattr(value.op, "name", "") in _ROUNDED
    return is_rounded and _is_positive(value.args[0])


def _wrapped(node: Any) -> Any:
    """The sum, difference or product of two constants, as it is in their type."""
    operate = {tirx.Add: operator.add, tirx.Sub: operator.sub, tirx.Mul: operator.mul}[type(node)]
    bottom, top = limits_of(node)
    value = operate(int(node.a.value), int(node.b.value))
    return tirx.IntImm(str(node.ty.dtype), (value - bottom) % (top - bottom + 1) + bottom)


def _rounded_down(node: Any) -> Any:
    """A floor division whose operands are hidden, hidden until TVM would make it one of C's kind.

    It would then know what its operands are, and take what was cut for what it was before.
    """
    if not isinstance(node, tirx.FloorDiv | tirx.FloorMod):
        return node
    is_rest = isinstance(node, tirx.FloorMod)
    if is_unsigned(node):
        return (tirx.Mod if is_rest else tirx.Div)(node.a, node.b)
    return (floor_rest if is_rest else floor_quotient)(node.a, node.b)


def _is_hidden(value: Any) -> bool:
    """Whether a part of an expression is hidden from the simplifier."""

    def look(call: Any) -> Any:
        return tvm_ffi.VisitInterrupt() if is_registered(call) else None

    return tvm_ffi.structural_walk(value, (ir.Call, look), order="pre") is not None


def _ranges_of(function: Any) -> Any:
    """An Analyzer that knows the ranges of a function's loops, threads and blocks' axes.

    A variable of several loops whose ranges differ is one that it knows nothing of.
    """
    found: dict[Any, Any] = {}

    def note(var: Any, span: Any) -> None:
        known = found.setdefault(var, span)
        if known is not None and not tvm_ffi.structural_equal(known, span):
            found[var] = None

    def loop(node: Any) -> None:
        note(node.loop_var, ir.Range.from_min_extent(node.min, node.extent))

    def thread(node: Any) -> None:
        if node.attr_key == "thread_extent":
            note(node.node.var, ir.Range(0, node.value))

    def block(node: Any) -> None:
        for axis in node.iter_vars:
            note(axis.var, axis.dom)

    from tvm.s_tir import SBlock

    visits = [(tirx.For, loop), (tirx.AttrStmt, thread), (SBlock, block)]
    tvm_ffi.structural_walk(function, visits, order="pre")
    ranges = sym.Analyzer()
    for var, span in found.items():
        if span is not None:
            ranges.bind(var, span)
    return ranges


def _is_place(value: Any, loads: dict[Any, Any]) -> bool:
    """Whether an expression is made of loops' variables, extents and addresses alone."""

    def look(node: Any) -> Any:
        if _is_address(node):
            return tvm_ffi.WalkResult.SKIP
        is_place = isinstance(node, tirx.Var) and node not in loads
        return None if is_place else tvm_ffi.VisitInterrupt()

    kinds = (tirx.Var, ir.Call, ir.TensorLoad, tirx.Let)
    return tvm_ffi.structural_walk(value, (kinds, look), order="pre") is None


def _is_address(value: Any) -> bool:
    """Whether an expression is a pointer as a number."""
    is_same = isinstance(value, ir.Call) and getattr(value.op, "name", "") == "tirx.reinterpret"
    return is_same and not hasattr(value.args[0].ty, "dtype")


def _is_read(value: Any) -> bool:
    """Whether an expression reads memory."""
    found = (ir.TensorLoad, lambda _: tvm_ffi.VisitInterrupt())
    return tvm_ffi.structural_walk(value, found, order="pre") is not None


def _reads(value: Any, store: Any) -> bool:
    """Whether an expression is the element that a store writes."""
    if not isinstance(value, ir.TensorLoad) or not value.source.same_as(store.buffer):
        return False
    return tvm_ffi.structural_equal(list(value.indices), list(store.indices))


def _stored(store: Any, value: Any) -> Any:
    """A store of another value in the same place."""
    return tirx.BufferStore(store.buffer, value, store.indices)
