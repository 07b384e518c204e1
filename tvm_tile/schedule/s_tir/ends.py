"""The end of a sum within a step: copies fill up with zeros, so that nothing tests as it adds.

Before → after, for chunks of 16 that do not divide a sum over 1931 places::

    if base + k < 1931: A_shared[k] = A[base + k]        (and B_shared alike)
    for k in 16: if base + k < 1931: acc += A_shared[k] * B_shared[k]

    A_shared[k] = A[base + k] if base + k < 1931 else 0  (and B_shared alike)
    for k in 16: acc += A_shared[k] * B_shared[k]

A test at each place of an unrolled sum keeps the compiler from loading one's operands while it
multiplies another's. Both operands are zero behind the end: neither may be infinite there. That is
for what adds nothing at zeros, as a product does; ``max``, or a sum of equal elements, tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import combined, number_in
from tvm_tile.graph.extract import Names, affine_index, loads_in
from tvm_tile.graph.tile_graph import Access
from tvm_tile.schedule.s_tir.guards import (
    conjunction,
    conjuncts,
    loop_ranges,
    loops_of,
    realize_of,
    with_guards,
    zero_unless,
)
from tvm_tile.tile.rtile import RProgram


@dataclass(frozen=True, slots=True)
class Staged:
    """A staging copy.

    Attributes:
        name: name of its block.
        region: region that it copies in a step, an extent for each dimension of the operand.
    """

    name: str
    region: tuple[int, ...]


def fill_ends(
    func: tirx.PrimFunc, sum_name: str, copies: Sequence[Staged], program: RProgram
) -> tirx.PrimFunc:
    """``func`` with the guard of its sum moved into its copies, one an operand.

    It stays as it is where the sum has no guard, where zeros would add to it, or where an operand
    has no guard to move: one whose dimensions are not the summed axis alone, or whose copies are
    shorter than a step of the sum (where a step is longer than the tensor, TVM copies the tensor).
    """
    total = realize_of(func, sum_name)
    if _is_true(total.predicate) or not ignores_zeros(total.block):
        return func
    axis = program.operator.reduce_axes[program.group_axis].name
    chunk = program.chunk[program.group_axis]
    ranges = loop_ranges(loops_of(func))
    filled = {}
    for copy, read in zip(copies, program.operator.reads, strict=True):
        place = _place_of(read, axis)
        if place is None or copy.region[place] < chunk:
            return func
        found = _filled(realize_of(func, copy.name), place, ranges)
        if found is None:
            return func
        filled[copy.name] = found

    def visit(realize: SBlockRealize) -> SBlockRealize:
        return filled.get(realize.block.name_hint, realize)

    body = tvm_ffi.structural_map(func.body, (SBlockRealize, visit), order="post")
    return with_guards(func.with_body(body), {sum_name: conjunction([])})


def ignores_zeros(block: SBlock) -> bool:
    """Whether a reduction stays as it is where everything that it reads is zero.

    So it is for sums of products whose operands are read at the summed place itself. A place that
    is clamped to what there is would be another one behind the end, with no zero.
    """
    term = combined(block, tirx.Add)
    if term is None:
        return False
    names = Names({v.var: str(i) for i, v in enumerate(block.iter_vars)})  # of any range
    places = [index for load in loads_in(term) for index in load.indices]
    if not all(affine_index(place, names).is_exact for place in places):
        return False

    def visit(load: ir.TensorLoad) -> Any:
        return tirx.const(0, str(load.ty.dtype))

    added = sym.Analyzer().simplify(
        tvm_ffi.structural_map(term, (ir.TensorLoad, visit), order="post")
    )
    return number_in(added) == 0


def _place_of(read: Access, axis: str) -> int | None:
    """The one dimension that is an axis alone."""
    places = [d for d, index in enumerate(read.indices) if index.terms == ((axis, 1),)]
    return places[0] if len(places) == 1 else None


def _filled(realize: SBlockRealize, place: int, ranges: sym.Analyzer) -> SBlockRealize | None:
    """A copy that stores zeros behind the end of a dimension; ``None`` if no guard says so."""
    block = realize.block
    variable = block.iter_vars[place]
    inside = realize.iter_values[place] < variable.dom.extent
    parts = conjuncts(realize.predicate)
    ends = [_are_equal(part, inside, ranges) for part in parts]
    if not any(ends) or not isinstance(block.body, tirx.BufferStore):
        return None
    filled = zero_unless(variable.var < variable.dom.extent, block)
    kept = [part for part, is_end in zip(parts, ends, strict=True) if not is_end]
    return SBlockRealize(realize.iter_values, conjunction(kept), filled)


def _are_equal(first: Any, second: Any, ranges: sym.Analyzer) -> bool:
    """Whether two tests can be proved to hold at the same places."""
    for premise, conclusion in ((first, second), (tirx.Not(first), tirx.Not(second))):
        with ranges.constraint_scope(ranges.simplify(premise)):
            if not ranges.can_prove(conclusion):
                return False
    return True


def _is_true(guard: Any) -> bool:
    """Whether a guard is known to hold."""
    return isinstance(guard, tirx.IntImm) and bool(guard.value)
