"""Padding without branches: always read, at a clamped place, and choose the value afterwards.

TVM pads with ``if_then_else(inside, A[y - 1], 0)``. Compiled, each such load sits in a branch of
its own, and a thread's loads wait for one another. Before → after::

    pad[y] = if_then_else(1 <= y and y < 8, A[y - 1], 0)
    pad[y] = Select(y - 1 == clamp(y - 1, 0, 6), A[clamp(y - 1, 0, 6)], 0)

The new form may be evaluated at any ``y``, also where a tile overhangs the padded tensor. So a
staging copy reads first, without a test, and needs none for the overhang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, sym, tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import uses, variables_in
from tvm_tile.graph.extract import is_choice, loads_in, nodes_in
from tvm_tile.schedule.s_tir.guards import (
    conjunction,
    conjuncts,
    is_grid,
    loop_ranges,
    loops_of,
    realize_of,
    with_guards,
)
from tvm_tile.schedule.s_tir.steps import element, replace_value

_CONSTANTS = (tirx.IntImm, tirx.FloatImm)


def clamp_padding(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """``func`` with the padding of its blocks as above; what is no padding stays as it is."""

    def visit(block: SBlock) -> SBlock:
        store = block.body
        value = _clamped(store.value) if isinstance(store, tirx.BufferStore) else None
        if value is None:
            return block
        reads = [element(load.source, load.indices) for load in loads_in(value)]
        return replace_value(block, value, reads=reads)

    return func.with_body(tvm_ffi.structural_map(func.body, (SBlock, visit), order="post"))


def _clamped(value: Any) -> Any:
    """The expression to store instead; ``None`` if ``value`` pads nothing."""
    if not is_choice(value):
        return None
    condition, inner, outer = value.args
    if not isinstance(outer, _CONSTANTS):
        return None
    tested = variables_in(condition)
    bounds: list[Any] = []
    implied: list[Any] = []

    def visit(load: ir.TensorLoad) -> ir.TensorLoad:
        indices = []
        for index, extent in zip(load.indices, load.source.ty.shape, strict=True):
            if uses(index, tested):
                place = tirx.max(tirx.min(index, extent - 1), 0)
                bounds.append(index == place)
                implied.extend((index >= 0, index < extent))
                index = place
            indices.append(index)
        return tirx.BufferLoad(load.source, indices)

    clamped = tvm_ffi.structural_map(inner, (ir.TensorLoad, visit), order="post")
    if not bounds:
        return None
    inside = conjunction(bounds)
    if not implies(conjunction(implied), condition):
        inside = tirx.all(inside, condition)
    return tirx.Select(inside, clamped, outer)


@dataclass(frozen=True, slots=True)
class Padding:
    """Padding that a block stores: ``load`` if ``condition`` holds, else ``outside``."""

    condition: Any
    load: Any
    outside: Any


def padding_of(block: SBlock) -> Padding | None:
    """Padding that a block stores; ``None`` if it does anything else."""
    value = block.body.value
    if not is_choice(value):
        return None
    condition, load, outside = value.args
    if not isinstance(load, ir.TensorLoad) or not isinstance(outside, _CONSTANTS):
        return None
    return Padding(condition, load, outside)


def implies(premise: Any, conclusion: Any) -> bool:
    """Whether ``conclusion`` can be proved where ``premise`` holds."""
    analyzer = sym.Analyzer()
    with analyzer.constraint_scope(premise):
        return bool(analyzer.can_prove(conclusion))


def free_copies(func: tirx.PrimFunc, copies: Sequence[tuple[str, str]]) -> tirx.PrimFunc:
    """Take the tests for overhanging tiles out of staging copies of clamped padding.

    Args:
        func: a scheduled function.
        copies: names of each block that chooses and stores, and of the one that reads before it.

    What a copy stores for places that a tile overhangs is padding. The block that reads has guards
    of its own, along the dimensions that are not clamped.
    """
    if not copies:
        return func
    loops = loops_of(func)
    ranges = loop_ranges(loops)
    grid = [loop.loop_var for loop in loops if is_grid(loop)]
    guards = {}
    for copy, fetch in copies:
        store, read = realize_of(func, copy), realize_of(func, fetch)
        clamped = [
            value
            for value, place in zip(store.iter_values, read.iter_values, strict=True)
            if nodes_in(place, tirx.Max)
        ]
        guards[copy] = conjunction(
            [
                part
                for part in conjuncts(store.predicate)
                if not any(_is_overhang(part, value, grid, ranges) for value in clamped)
            ]
        )
    return with_guards(func, guards)


def _is_overhang(guard: Any, value: Any, grid: list[Any], ranges: Any) -> bool:
    """Whether ``guard`` keeps ``value`` from overhanging the tensor, in the last blocks of a grid.

    A guard without the block's place keeps the threads from overhanging the staged tile itself.
    """
    return (
        isinstance(guard, tirx.LT)
        and uses(guard, grid)
        and isinstance(ranges.simplify(guard.a - value), tirx.IntImm)
    )
