"""Split a copy's axes into digits until each access is an affine form of them.

A reshape divides an index: a pixel shuffle reads ``A[y // 2, x // 2, c * 4 + y % 2 * 2 + x % 2]``.
Over the digits of its axes, ``y = 2 * y1 + y0`` and ``x = 2 * x1 + x0``, nothing is divided::

    for c, y, x:           B[c, y, x] = A[y // 2, x // 2, c * 4 + y % 2 * 2 + x % 2]
    for c, y1, y0, x1, x0: B[...]     = A[y1 * a + x1 * b + c * 4 + y0 * 2 + x0]

Digits that every access walks through together become one again, across the dimensions of the
tensors: an image's rows and columns are one digit to a transpose of channels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import substituted, uses
from tvm_tile.graph.extract import Names, affine_index, loads_in, nodes_in
from tvm_tile.graph.tile_graph import AffineIndex

_MOST_STEPS = 64  # splits and merges; no function of a network comes near
_ORDERS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)


@dataclass(frozen=True, slots=True)
class Digits:
    """An output whose places are told by digits, each with a loop of its own.

    Attributes:
        axes: (variable, extent) of each digit, the last one fastest in the output.
        value: the stored value, its loads at flat places: of one index, in elements.
        place: flat, where in the output.
        buffers: flat stand-ins and the tensors that they are for; the output is the last one.
    """

    axes: tuple[tuple[Any, int], ...]
    value: Any
    place: Any
    buffers: tuple[tuple[Any, Any], ...]

    def used(self, expr: Any) -> frozenset[str]:
        """Names of digits that ``expr`` uses not just for places of loads: for tests."""

        def visit(node: Any) -> Any:
            return tirx.const(0, str(node.ty.dtype))

        bare = tvm_ffi.structural_map(expr, (ir.TensorLoad, visit), order="pre")
        return frozenset(str(var.name) for var, _ in self.axes if uses(bare, [var]))

    def affine(self, place: Any) -> AffineIndex:
        """A flat place as an affine form of the digits' names."""
        return affine_index(place, self._names())

    def _names(self) -> Names:
        """Names and ranges of the digits' variables."""
        domains = tuple((var, ir.Range(0, extent)) for var, extent in self.axes)
        return Names({var: str(var.name) for var, _ in self.axes}, domains)

    def replaced(self, place: int, count: int, axes: Sequence[tuple[Any, int]], own: Any) -> Digits:
        """The output with ``axes`` for ``count`` digits from ``place`` on, of values ``own``."""
        former = [var for var, _ in self.axes[place : place + count]]
        pairs = dict(zip(former, own, strict=True))
        changed = (*self.axes[:place], *axes, *self.axes[place + count :])
        value, index = substituted(self.value, pairs), substituted(self.place, pairs)
        return Digits(changed, value, index, self.buffers)._simplified()

    def _simplified(self) -> Digits:
        """The digits with every index and test simplified by their ranges."""
        ranges = self._names().ranges

        def load(node: ir.TensorLoad) -> Any:
            return tirx.BufferLoad(node.source, [ranges.simplify(i) for i in node.indices])

        def test(node: Any) -> Any:
            return self._without_remainder(ranges.simplify(node))

        entries = [(ir.TensorLoad, load), *((kind, test) for kind in _ORDERS)]
        value = tvm_ffi.structural_map(self.value, entries, order="post")
        return Digits(self.axes, value, ranges.simplify(self.place), self.buffers)

    def _without_remainder(self, node: Any) -> Any:
        """``28 <= 28 * a + b`` as ``1 <= a``, where ``b`` is less than 28."""
        if not isinstance(node, _ORDERS) or "int" not in str(node.a.ty.dtype):
            return node
        # As ``0 <= sum(factor * digit) + offset``.
        left, right = (node.a, node.b) if isinstance(node, tirx.GT | tirx.GE) else (node.b, node.a)
        index = self.affine(left - right)
        offset = index.offset - isinstance(node, tirx.LT | tirx.GT)
        if not index.is_exact:
            return node
        extents = {str(var.name): extent for var, extent in self.axes}
        for least in sorted({abs(factor) for _, factor in index.terms}, reverse=True):
            whole = math.gcd(*(f for _, f in index.terms if abs(f) >= least))
            rest = [f * (extents[name] - 1) for name, f in index.terms if abs(f) < least]
            low, high = (sum(f for f in rest if (f > 0) == sign) for sign in (False, True))
            if whole > 1 and low + offset % whole >= 0 and high + offset % whole < whole:
                kept = {name: f // whole for name, f in index.terms if abs(f) >= least}
                dtype = str(node.a.ty.dtype)
                total: Any = tirx.const(0, dtype)
                for var, _ in self.axes:
                    if str(var.name) in kept:
                        total = total + var * kept[str(var.name)]
                return tirx.const(-(offset // whole), dtype) <= total
        return node


def read_digits(block: SBlock) -> Digits | None:
    """The digits of a block that stores one expression; ``None`` if its extents are not known."""
    store = block.body
    if not isinstance(store, tirx.BufferStore):
        return None
    axes = [(v.var, int(v.dom.extent)) for v in block.iter_vars]
    found: list[tuple[Any, Any]] = []

    def flat(buffer: Any) -> Any:
        for own, original in found:
            if original.same_as(buffer):
                return own
        size = math.prod(int(extent) for extent in buffer.ty.shape)
        own = tirx.decl_buffer((size,), str(buffer.ty.dtype), str(buffer.name))
        found.append((own, buffer))
        return own

    def load(node: ir.TensorLoad) -> Any:
        return tirx.BufferLoad(flat(node.source), [_flattened(node.source, node.indices)])

    value = tvm_ffi.structural_map(store.value, (ir.TensorLoad, load), order="post")
    place = _flattened(store.buffer, store.indices)
    flat(store.buffer)
    # Two variables may share a name: positions tell them apart.
    named = [(tirx.Var(f"d{i}", str(v.ty.dtype)), extent) for i, (v, extent) in enumerate(axes)]
    pairs = {old: new for (old, _), (new, _) in zip(axes, named, strict=True)}
    digits = Digits(
        tuple(named), substituted(value, pairs), substituted(place, pairs), tuple(found)
    )
    return _merged(_split(_without_units(digits._simplified())))


def _flattened(buffer: Any, indices: Sequence[Any]) -> Any:
    """Place of an element in its buffer's memory, in elements, rows one behind the other."""
    flat: Any = tirx.const(0, "int64")
    for index, extent in zip(indices, buffer.ty.shape, strict=True):
        flat = flat * int(extent) + index
    return flat


def _without_units(digits: Digits) -> Digits:
    """The digits without those that have one value only."""
    for place in reversed(range(len(digits.axes))):
        var, extent = digits.axes[place]
        if extent == 1:
            digits = digits.replaced(place, 1, (), [tirx.const(0, str(var.ty.dtype))])
    return digits


def _split(digits: Digits) -> Digits:
    """The digits split as long as that makes an index affine."""
    for step in range(_MOST_STEPS):
        found = next(_splits(digits), None)
        if found is None:
            break
        place, inner = found
        var, extent = digits.axes[place]
        dtype = str(var.ty.dtype)
        high, low = (tirx.Var(f"{var.name}_{step}{end}", dtype) for end in "hl")
        axes = ((high, extent // inner), (low, inner))
        digits = digits.replaced(place, 1, axes, [high * inner + low])
    return digits


def _splits(digits: Digits) -> Iterator[tuple[int, int]]:
    """The divisions and tests that split a digit: its place, and the extent of its lower part."""
    names = [str(var.name) for var, _ in digits.axes]
    for expr in (digits.value, digits.place):
        for node in nodes_in(expr, tirx.FloorDiv, tirx.FloorMod, order="post"):
            index = digits.affine(node.a)
            if not index.is_exact or not isinstance(node.b, tirx.IntImm):
                continue
            for name, factor in index.terms:
                place = names.index(name)
                extent, divisor = digits.axes[place][1], int(node.b)
                inner = math.gcd(extent, divisor // abs(factor))
                if divisor % factor == 0 and 1 < inner < extent:
                    yield place, inner
        for node in nodes_in(expr, *_ORDERS, order="post"):
            index = digits.affine(node.a - node.b)
            if index.is_exact and len(index.terms) == 1:
                place = names.index(index.terms[0][0])
                extent = digits.axes[place][1]
                inner = math.gcd(extent, _turn(node, index))
                if 1 < inner < extent:
                    yield place, inner


def _turn(node: Any, index: AffineIndex) -> int:
    """The first value of a digit for which a test is not what it was for those before."""
    ((_, factor),) = index.terms
    bound = -index.offset if factor > 0 else index.offset
    # Whether the test turns where both sides are equal, or behind that.
    at_equal = isinstance(node, tirx.LT | tirx.GE) == (factor > 0)
    return -(-bound // abs(factor)) if at_equal else bound // abs(factor) + 1


def _merged(digits: Digits) -> Digits:
    """The digits with neighbours as one wherever everything walks through both together."""
    place = len(digits.axes) - 2
    while place >= 0:
        (high, _), (low, inner) = digits.axes[place : place + 2]
        if _walk_together(digits, str(high.name), str(low.name), inner):
            extent = digits.axes[place][1] * inner
            both = tirx.Var(f"{high.name}{low.name}", str(high.ty.dtype))
            own = [tirx.floordiv(both, inner), tirx.floormod(both, inner)]
            digits = digits.replaced(place, 2, ((both, extent),), own)
        place -= 1
        place = min(place, len(digits.axes) - 2)
    return digits


def _walk_together(digits: Digits, high: str, low: str, inner: int) -> bool:
    """Whether all indices walk through two digits as through one."""
    if {high, low} & digits.used(digits.value):
        return False
    places = [digits.place, *(load.indices[0] for load in loads_in(digits.value))]
    indices = [digits.affine(place) for place in places]
    return all(i.is_exact and i.coefficient(high) == inner * i.coefficient(low) for i in indices)
