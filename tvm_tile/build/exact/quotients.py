"""Divisions in the places of tensors' elements, which TVM would get wrong, in another form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, sym, tirx

from tvm_tile.graph.functions import with_prim_funcs

_LARGEST = 2**30  # what is not known to lie within is left alone


@tvm.transform.module_pass(opt_level=0, name="TruncateQuotients")
@dataclass(frozen=True, slots=True)
class TruncateQuotients:
    """Write floor divisions of sums with offsets, or of differences, as truncating ones.

    before: ``A[(287 - x) % 288]`` with x < 576   after: ``A[truncmod(575 - x, 288)]``

    FlattenBuffer makes indices simpler as maps of loops (``IterMapSimplify``), and loses offsets
    there: of the one above it makes ``A[x % -288 * -1]``. It leaves truncating divisions alone;
    they are the same where nothing is negative, which multiples of the divisor see to.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return with_prim_funcs(mod, lambda func: func.with_body(_truncated(func.body)))


def _truncated(body: Any) -> Any:
    """A body whose divisions in places of elements are in a form that TVM gets right."""
    ranges = sym.Analyzer()

    def bind_loop(loop: tirx.For) -> None:
        ranges.bind(loop.loop_var, ir.Range.from_min_extent(loop.min, loop.extent))

    def bind_thread(attr: tirx.AttrStmt) -> None:
        if attr.attr_key == "thread_extent":
            ranges.bind(attr.node.var, ir.Range(0, attr.value))

    def divide(node: Any) -> Any:
        if not isinstance(node.b, tirx.IntImm) or int(node.b.value) <= 0 or not _has_offset(node.a):
            return node
        return _quotient(node, int(ranges.const_int_bound(node.a).min_value))

    def index(value: Any) -> Any:
        divisions = [(tirx.FloorDiv, divide), (tirx.FloorMod, divide)]
        return tvm_ffi.structural_map(value, divisions, order="post")

    def load(node: ir.TensorLoad) -> Any:
        return tirx.BufferLoad(node.source, list(map(index, node.indices)))

    def store(node: tirx.BufferStore) -> Any:
        return tirx.BufferStore(node.buffer, node.value, list(map(index, node.indices)))

    tvm_ffi.structural_walk(
        body, [(tirx.For, bind_loop), (tirx.AttrStmt, bind_thread)], order="pre"
    )
    visits = [(ir.TensorLoad, load), (tirx.BufferStore, store)]
    return tvm_ffi.structural_map(body, visits, order="post")


def _has_offset(value: Any) -> bool:
    """Whether a value is a difference, or a sum with a constant."""
    if isinstance(value, tirx.IntImm):
        return int(value.value) != 0
    if isinstance(value, tirx.Add):
        return _has_offset(value.a) or _has_offset(value.b)
    if isinstance(value, tirx.Mul):
        factors = ((value.a, value.b), (value.b, value.a))
        constant = [(x, int(y.value)) for x, y in factors if isinstance(y, tirx.IntImm)]
        return any(factor < 0 or _has_offset(other) for other, factor in constant)
    return isinstance(value, tirx.Sub)


def _quotient(node: Any, least: int) -> Any:
    """A floor division, whose dividend is at least ``least``, as a truncating one."""
    if abs(least) > _LARGEST:
        return node
    divisor = int(node.b.value)
    added = max(0, -(least // divisor))
    dividend = node.a + added * divisor if added else node.a
    if isinstance(node, tirx.FloorMod):
        return tirx.truncmod(dividend, node.b)
    return tirx.truncdiv(dividend, node.b) - added
