"""Functions written as plainly as they may be, so that two of them can be compared."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.schedule.s_tir.steps import replace_parts

NUMBERS = (tirx.IntImm, tirx.FloatImm)
_CONDITIONS = (tirx.EQ, tirx.NE, tirx.LT, tirx.LE, tirx.GT, tirx.GE)


def is_alike(func: tirx.PrimFunc, other: tirx.PrimFunc) -> bool:
    """Whether functions differ in no more than the last digits of numbers."""
    outlines = without_numbers(func), without_numbers(other)
    if not tvm_ffi.structural_equal(*outlines, map_free_vars=True):
        return False
    pairs = zip(numbers_of(func), numbers_of(other), strict=True)
    return all(a == b or (isinstance(a, float) and is_close(a, b)) for a, b in pairs)


def is_close(number: float, other: float) -> bool:
    """Whether numbers differ in no more than their last digits in float32; NaN do not."""
    return math.isclose(number, other, rel_tol=1e-6) or (number != number and other != other)


def plain(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function as simple as it may be, without what follows of the rest of it.

    Products with 1 and quotients by it are what they are of, as TVM writes them to begin with.
    """

    def arithmetic(node: Any) -> Any:
        is_known = isinstance(node.b, tirx.FloatImm)
        if isinstance(node, tirx.Div) and is_known and isinstance(node.a, tirx.FloatImm):
            return tirx.FloatImm(node.ty, node.a.value / node.b.value)
        return node.a if is_known and node.b.value == 1.0 else node

    def block(block: Any) -> Any:
        return replace_parts(block, reads=[], writes=[])

    callbacks = [((tirx.Mul, tirx.Div), arithmetic), (SBlock, block)]
    return tvm_ffi.structural_map(simplified(func, even_ones=True), callbacks, order="post")


def simplified(func: tirx.PrimFunc, *, even_ones: bool = False) -> tirx.PrimFunc:
    """A function whose blocks' indices and conditions are as plain as their ranges allow.

    before: ``y[i, j] = x[(j // 64 + i) % 128, j % 64]`` with ``j < 64``, as reshapes leave it
    after:  ``y[i, j] = x[i, j]``
    """

    def block(block: Any) -> Any:
        analyzer = sym.Analyzer()
        for v in block.iter_vars:
            # One of extent 1 would give way to 0, by which no rule knows it.
            if even_ones or not is_one(v.dom.extent):
                analyzer.bind(v.var, v.dom)
        return _with_plain_indices(block, analyzer)

    return tvm_ffi.structural_map(func, [(SBlock, block)], order="post")


def _with_plain_indices(block: Any, analyzer: Any) -> Any:
    """A block whose indices and conditions are simplified."""

    def load(load: Any) -> Any:
        return tirx.BufferLoad(load.source, [analyzer.simplify(i) for i in load.indices])

    def store(store: Any) -> Any:
        return tirx.BufferStore(
            store.buffer, store.value, [analyzer.simplify(i) for i in store.indices]
        )

    def condition(value: Any) -> Any:
        return analyzer.simplify(value) if "int" in str(value.a.ty.dtype) else value

    def touched(span: Any) -> Any:
        return tvm.ir.Range.from_min_extent(analyzer.simplify(span.min), span.extent)

    callbacks = [
        (tvm.ir.TensorLoad, load),
        (tirx.BufferStore, store),
        (_CONDITIONS, condition),
        (tvm.ir.Range, touched),
    ]
    return tvm_ffi.structural_map(block, callbacks, order="post")


def is_one(extent: Any) -> bool:
    """Whether an extent is known to be 1."""
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def numbers_of(func: tirx.PrimFunc) -> list[float]:
    """The numbers of a function, in the order in which a map meets them."""
    found: list[float] = []

    def visit(value: Any) -> Any:
        found.append(value.value)
        return value

    tvm_ffi.structural_map(func, [(NUMBERS, visit)], order="post")
    return found


def without_numbers(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A function all of whose numbers are 0."""
    zeros = {
        tirx.IntImm: lambda v: tirx.IntImm(v.ty, 0),
        tirx.FloatImm: lambda v: tirx.FloatImm(v.ty, 0.0),
    }
    return tvm_ffi.structural_map(func, list(zeros.items()), order="post")
