"""Merge axes that everything walks through together, for the time of scheduling.

Before → after, for a 1 x 1 convolution::

    for n, f, y, x, c: B[n, f, y, x] += A[n, c, y, x] * W[f, c, 0, 0]
    for n, f, yx, c:   B[n, f, yx]   += A[n, c, yx]   * W[f, c, 0, 0]

``tile/merge.py`` says which axes. The parameters change their shape with it; :func:`restore`
gives them back what callers know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.graph.extract import extract_operator
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.schedule.normalize import NormalForm
from tvm_tile.schedule.steps import SBlockRV, replace_parts
from tvm_tile.tile.merge import Merge, Pair, find_merge

Step = tuple[int, int]  # the first of two dimensions, the extent of the second


@dataclass(frozen=True, slots=True)
class Merged:
    """What was merged.

    Attributes:
        steps: tensor name -> dimensions that became one; one mapping after the other.
        params: of the function, as callers know them.
    """

    steps: tuple[Mapping[str, Step], ...]
    params: tuple[Any, ...]


def merge_axes(sch: Schedule, form: NormalForm, *, keep_outputs: bool = False) -> Merged:
    """Merge what can be merged of a function with one reduction.

    With ``keep_outputs`` a spatial output may keep its shape, if it is indexed otherwise.
    """
    params = tuple(sch.mod["main"].params)
    steps = []
    while (merge := _find(sch, form, keep_outputs)) is not None:
        _apply(sch, form, merge)
        steps.append({name: (d, merge.extent) for name, d in merge.dimensions.items()})
    return Merged(tuple(steps), params)


def _names(form: NormalForm) -> tuple[str, ...]:
    return (*form.reductions, *form.producers, *form.outputs)


def _operators(sch: Schedule, form: NormalForm) -> list[Operator | None]:
    return [extract_operator(sch.get(sch.get_sblock(name))) for name in _names(form)]


def _find(sch: Schedule, form: NormalForm, keep_outputs: bool) -> Merge | None:
    operators = _operators(sch, form)
    known = [op for op in operators if op is not None]
    end = len(form.reductions) + len(form.producers)
    copied = range(len(form.reductions), end)
    stored = range(end, len(operators) if keep_outputs else end)
    return find_merge(known, 0, copied, stored) if len(known) == len(operators) else None


def _apply(sch: Schedule, form: NormalForm, merge: Merge) -> None:
    blocks = {place: _names(form)[place] for place in merge.axes}
    for place, name in blocks.items():
        _merge_loops(sch, sch.get_sblock(name), merge.axes[place], merge.extent)
    done: set[str] = set()
    for name in blocks.values():
        block = sch.get_sblock(name)
        for kind, regions in (("read", sch.get(block).reads), ("write", sch.get(block).writes)):
            for place, region in enumerate(regions):
                tensor = str(region.source.name)
                if tensor in merge.dimensions and tensor not in done:
                    done.add(tensor)
                    step = (merge.dimensions[tensor], merge.extent)
                    sch.transform_layout(block, (kind, place), partial(_merged_index, step))


def _merge_loops(sch: Schedule, block: SBlockRV, pair: Pair, extent: int) -> None:
    """One loop for a pair of axes; summed axes of one element go."""
    own = [(str(v.var.name), v.iter_type == 0, int(v.dom.extent)) for v in sch.get(block).iter_vars]
    long = any(size > 1 for _, is_spatial, size in own if not is_spatial)

    def index(*values: Any) -> list[Any]:
        at = dict(zip((name for name, _, _ in own), values, strict=True))
        at[pair[0]] = at[pair[0]] * extent + at.pop(pair[1])
        units = {name for name, is_spatial, size in own if long and not is_spatial and size == 1}
        return [value for name, value in at.items() if name not in units]

    sch.transform_block_layout(block, tirx.IndexMap.from_func(index, ndim=len(own)))


def _merged_index(step: Step, *index: Any) -> list[Any]:
    dimension, extent = step
    merged = index[dimension] * extent + index[dimension + 1]
    return [*index[:dimension], merged, *index[dimension + 2 :]]


def restore(func: tirx.PrimFunc, merged: Merged) -> tirx.PrimFunc:
    """``func`` with the parameters that callers know, its accesses divided among dimensions."""
    if not merged.steps:
        return func
    params = list(zip(func.params, merged.params, strict=True))

    def original(buffer: Any) -> Any | None:
        return next((old for new, old in params if new.same_as(buffer)), None)

    def split(name: str, index: Sequence[Any]) -> list[Any]:
        parts = list(index)
        for step in reversed(merged.steps):
            if name in step:
                dimension, extent = step[name]
                value = parts[dimension]
                parts[dimension : dimension + 1] = [value // extent, value % extent]
        return parts

    def load(node: ir.TensorLoad) -> Any:
        old = original(node.source)
        return tirx.BufferLoad(old, split(str(old.name), node.indices)) if old is not None else node

    def store(node: tirx.BufferStore) -> Any:
        old = original(node.buffer)
        if old is None:
            return node
        return tirx.BufferStore(old, node.value, split(str(old.name), node.indices))

    def region(node: Any) -> Any:
        # What follows asks of a parameter's region only which tensor it is of.
        old = original(node.source)
        whole = [ir.Range(0, extent) for extent in old.ty.shape] if old is not None else None
        return node if whole is None else tirx.BufferRegion(old, whole)

    def block(node: SBlock) -> Any:
        reads, writes = ([region(r) for r in regions] for regions in (node.reads, node.writes))
        return replace_parts(node, reads=reads, writes=writes)

    body = func.body
    for kind, visit in ((ir.TensorLoad, load), (tirx.BufferStore, store), (SBlock, block)):
        body = tvm_ffi.structural_map(body, (kind, visit), order="post")
    return tirx.PrimFunc(merged.params, body, func.ret_type, func.attrs)
