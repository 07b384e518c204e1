"""Ends of tensors within a tile: copies read what there is, so that neither they nor sums branch.

The end of a sum within a step: copies fill up with zeros, so that nothing tests as it adds.

Before → after, for chunks of 16 that do not divide a sum over 1931 places::

    if base + k < 1931: A_shared[k] = A[base + k]        (and B_shared alike)
    for k in 16: if base + k < 1931: acc += A_shared[k] * B_shared[k]

    A_shared[k] = A[base + k] if base + k < 1931 else 0  (and B_shared alike)
    for k in 16: acc += A_shared[k] * B_shared[k]

A test at each place of an unrolled sum keeps the compiler from loading one's operands while it
multiplies another's. Both operands are zero behind the end: neither may be infinite there. That is
for what adds nothing at zeros, as a product does; ``max``, or a sum of equal elements, tests.

The end of a dimension within a tile: copies read the last place again, for sums that nobody stores.
Before → after, for rows of which the last block has too few::

    if row < 7797: A_shared[r, k] = A[row, k] if base + k < 1931 else 0
    A_shared[r, k] = Select(base + k < 1931, A[min(row, 7796), min(base + k, 1930)], 0)

A test around each copy makes a branch of it, and a thread's loads then wait for one another. So it
is with sums whose threads read for themselves::

    if row < 5849 and base + k < 1485: acc = acc + A[row, base + k] * x[base + k]

    acc = acc + (A[min(row, 5848), base + k] if base + k < 1485 else 0) * (... x[base + k] else 0)

A load by itself that is tested is no branch: the processor leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock, SBlockRealize

from tvm_tile.graph.expression import combined, number_in, substituted, uses, variables_in
from tvm_tile.graph.extract import Names, affine_index, is_choice, loads_in
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
from tvm_tile.schedule.s_tir.steps import reads_of, replace_value
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


def read_inside(func: tirx.PrimFunc, copies: Sequence[Staged]) -> tirx.PrimFunc:
    """``func`` with staging copies that read the last place of a dimension again behind its end.

    Args:
        func: a scheduled function whose sums are stored only where they are whole.
        copies: the copies.

    The tests against the ends go, but along what is copied in vectors, which stay together, and
    along a dimension that is no longer than the tile, where they also keep threads within that.
    """
    ends, regions = _EndTests.of(func), {copy.name: copy.region for copy in copies}

    def visit(realize: SBlockRealize) -> SBlockRealize:
        block = realize.block
        if block.name_hint not in regions or not isinstance(block.body, tirx.BufferStore):
            return realize
        own, region = block.body.value, regions[block.name_hint]
        chosen = variables_in(own.args[0]) if is_choice(own) else []
        pairs = zip(block.iter_vars, region, strict=True)
        whole = [v.var for v, extent in pairs if extent < int(v.dom.extent)]
        clamped, kept = ends.clamped(realize, whole, chosen)
        if not clamped:
            return realize
        value = substituted(own.args[1] if chosen else own, clamped)
        value = tirx.Select(own.args[0], value, own.args[2]) if chosen else value
        read = replace_value(block, value, reads=reads_of(value))
        return SBlockRealize(realize.iter_values, conjunction(kept), read)

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlockRealize, visit), order="post"))


def sum_inside(func: tirx.PrimFunc, name: str) -> tirx.PrimFunc:
    """``func`` with a sum, a maximum or a minimum that is computed behind ends without a branch.

    Args:
        func: a scheduled function that stores what is summed only where it is an output.
        name: name of the block that adds up what it reads.

    Behind the end of an output's dimension it sums what the last place does; behind the end of the
    sum it adds what it starts from. A function whose tests are others stays as it is.
    """
    realize = realize_of(func, name)
    block, ends = realize.block, _EndTests.of(func)
    kind = next((kind for kind in _IDLE if combined(block, kind) is not None), None)
    if kind is None or _is_true(realize.predicate):
        return func
    outputs = [v.var for v in block.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    clamped, kept = ends.clamped(realize, outputs)
    inside = []
    for variable, value in zip(block.iter_vars, realize.iter_values, strict=True):
        tests = ends.tests(kept, value, variable)
        inside += [variable.var < variable.dom.extent] if tests else []
        kept = _without(kept, tests)
    if kept:
        return func
    term = _moved(combined(block, kind), clamped)
    if inside:
        condition, zero = conjunction(inside), _IDLE[kind](str(term.ty.dtype))

        def tested(load: ir.TensorLoad) -> Any:
            return tirx.if_then_else(condition, load, tirx.const(0, str(load.ty.dtype)))

        read = tvm_ffi.structural_map(term, (ir.TensorLoad, tested), order="post")
        term = read if ignores_zeros(block) else tirx.Select(condition, read, zero)
    value = kind(block.body.value.a, term)
    own = [region for region in block.reads if region.source.same_as(block.writes[0].source)]
    summed = replace_value(block, value, reads=[*own, *reads_of(term)])

    def visit(own: SBlockRealize) -> SBlockRealize:
        if not own.same_as(realize):
            return own
        return SBlockRealize(realize.iter_values, conjunction(()), summed)

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlockRealize, visit), order="post"))


# What changes nothing, of each type, where it is combined with something else.
_IDLE: dict[Any, Callable[[str], Any]] = {
    tirx.Add: partial(tirx.const, 0),
    tirx.Max: tirx.min_value,
    tirx.Min: tirx.max_value,
}


def _moved(term: Any, places: Mapping[Any, Any]) -> Any:
    """A term that reads tensors at other places; what threads hold lies where they put it."""

    def moved(load: ir.TensorLoad) -> ir.TensorLoad:
        if load.source.scope() != "global":
            return load
        return tirx.BufferLoad(load.source, [substituted(own, places) for own in load.indices])

    return tvm_ffi.structural_map(term, (ir.TensorLoad, moved), order="post")


@dataclass(frozen=True, slots=True)
class _EndTests:
    """Tests of a function's blocks against the ends of their dimensions.

    Attributes:
        ranges: analyzer that knows the function's loops.
        lanes: variables of loops over vectors.
    """

    ranges: sym.Analyzer
    lanes: list[Any]

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> _EndTests:
        """The tests of a function's blocks."""
        loops = loops_of(func)
        lanes = [loop.loop_var for loop in loops if loop.kind == tirx.ForKind.VECTORIZED]
        return cls(loop_ranges(loops), lanes)

    def tests(self, tests: Sequence[Any], value: Any, variable: Any) -> list[Any]:
        """The tests, of some, for a value to be one that a block's variable can have."""
        inside = value < variable.dom.extent
        return [test for test in tests if _are_equal(test, inside, self.ranges)]

    def clamped(
        self, realize: SBlockRealize, variables: Sequence[Any], chosen: Sequence[Any] = ()
    ) -> tuple[dict[Any, Any], list[Any]]:
        """Values within the tensor for those of some variables that go beyond, and other tests.

        ``chosen`` are variables that go beyond without a test.
        """
        found, kept = {}, conjuncts(realize.predicate)
        for variable, value in zip(realize.block.iter_vars, realize.iter_values, strict=True):
            if not any(variable.var.same_as(own) for own in variables) or uses(value, self.lanes):
                continue
            tests = self.tests(kept, value, variable)
            if tests or any(variable.var.same_as(own) for own in chosen):
                found[variable.var] = tirx.min(variable.var, variable.dom.extent - 1)
                kept = _without(kept, tests)
        return found, kept


def _without(tests: Sequence[Any], dropped: Sequence[Any]) -> list[Any]:
    """The other tests."""
    return [test for test in tests if not any(test.same_as(own) for own in dropped)]


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
