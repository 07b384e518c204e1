"""Merge axes that everything walks through together, for the time of scheduling.

Before → after, for a 1 x 1 convolution::

    for n, f, y, x, c: B[n, f, y, x] += A[n, c, y, x] * W[f, c, 0, 0]
    for n, f, yx, c:   B[n, f, yx]   += A[n, c, yx]   * W[f, c, 0, 0]

``tile/merge.py`` says which axes. The parameters change their shape with it; :func:`restore`
gives them back what callers know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.s_tir import SBlock, Schedule

from tvm_tile.graph.extract import extract_operators
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.schedule.s_tir.normalize import NormalForm
from tvm_tile.schedule.s_tir.steps import SBlockRV, blocks_named, replace_parts
from tvm_tile.tile.merge import Merge, Pair, find_merge, find_row_merge


@dataclass(frozen=True, slots=True)
class Joined:
    """A step in which two dimensions of a tensor became one: which, and the second one's extent."""

    dimension: int
    extent: int

    def restored(self, *index: Any) -> list[Any]:
        """The index by which callers know an element."""
        place, value = self.dimension, index[self.dimension]
        parts = (value // self.extent, value % self.extent)
        return [*index[:place], *parts, *index[place + 1 :]]


@dataclass(frozen=True, slots=True)
class Divided:
    """A dimension of a tensor became two, the second of this extent."""

    dimension: int
    extent: int

    def restored(self, *index: Any) -> list[Any]:
        """The index by which callers know an element."""
        place = self.dimension
        value = index[place] * self.extent + index[place + 1]
        return [*index[:place], value, *index[place + 2 :]]


Step = Joined | Divided


@dataclass(frozen=True, slots=True)
class MergedShapes:
    """How the shapes of parameters differ from those that callers know.

    Attributes:
        steps: tensor name -> what became of its dimensions; one mapping after the other.
        params: parameters of the function, as callers know them.
    """

    steps: tuple[Mapping[str, Step], ...]
    params: tuple[Any, ...]


def merge_axes(sch: Schedule, form: NormalForm, *, keep_outputs: bool = False) -> MergedShapes:
    """Merge what can be merged of a function with one reduction.

    With ``keep_outputs`` a spatial output may keep its shape, if it is indexed otherwise.
    """
    sums = len(form.reductions)
    end = sums + len(form.producers)
    stored = len(form.outputs) if keep_outputs else 0
    places = range(sums, end), range(end, end + stored)
    names = (*form.reductions, *form.producers, *form.outputs)
    return _merged(sch, names, lambda operators: find_merge(operators, 0, *places))


def merge_along_rows(sch: Schedule, form: NormalForm) -> MergedShapes:
    """Merge what can be merged of the axes along rows that are summed, and then stored."""
    return _merged(sch, (*form.producers, *form.reductions, *form.outputs), find_row_merge)


def _merged(
    sch: Schedule, names: Sequence[str], find: Callable[[Sequence[Operator]], Merge | None]
) -> MergedShapes:
    """Merge axes of some blocks for as long as ``find`` finds any among their operators."""
    params = tuple(sch.mod["main"].params)
    steps: list[Mapping[str, Step]] = []
    while (stages := extract_operators(blocks_named(sch, names))) and (merge := find(stages)):
        for place, pair in merge.axes.items():
            _merge_loops(sch, sch.get_sblock(names[place]), pair, merge.extent)
        own = [names[place] for place in merge.axes]
        first, extent = merge.dimensions, merge.extent
        turn_tensors(sch, own, {name: Divided(d, extent).restored for name, d in first.items()})
        steps.append({name: Joined(d, extent) for name, d in first.items()})
    return MergedShapes(tuple(steps), params)


def turn_tensors(
    sch: Schedule, names: Sequence[str], orders: Mapping[str, Callable[..., list[Any]]]
) -> list[str]:
    """Lay tensors out otherwise, as far as blocks read or write them.

    Args:
        sch: the schedule.
        names: names of the blocks.
        orders: name of a tensor -> what becomes of an index of it.

    Returns:
        The names of the tensors that were met, in order.
    """
    done: list[str] = []
    for name in names:
        block = sch.get_sblock(name)
        for kind, regions in (("read", sch.get(block).reads), ("write", sch.get(block).writes)):
            for place, region in enumerate(regions):
                tensor = str(region.source.name)
                if tensor in orders and tensor not in done:
                    done.append(tensor)
                    sch.transform_layout(block, (kind, place), orders[tensor])
    return done


def _merge_loops(sch: Schedule, block: SBlockRV, pair: Pair, extent: int) -> None:
    """Merge the loops of a pair of axes; summed axes of one element go."""
    own = [(str(v.var.name), v.iter_type == 0, int(v.dom.extent)) for v in sch.get(block).iter_vars]
    long = any(size > 1 for _, is_spatial, size in own if not is_spatial)

    def index(*values: Any) -> list[Any]:
        at = dict(zip((name for name, _, _ in own), values, strict=True))
        at[pair[0]] = at[pair[0]] * extent + at.pop(pair[1])
        units = {name for name, is_spatial, size in own if long and not is_spatial and size == 1}
        return [value for name, value in at.items() if name not in units]

    sch.transform_block_layout(block, tirx.IndexMap.from_func(index, ndim=len(own)))


def restore(func: tirx.PrimFunc, merged: MergedShapes) -> tirx.PrimFunc:
    """``func`` with the parameters that callers know, its accesses divided among dimensions."""
    if not merged.steps:
        return func
    params = list(zip(func.params, merged.params, strict=True))

    def original(buffer: Any) -> Any | None:
        return next((old for new, old in params if new.same_as(buffer)), None)

    def restored(name: str, index: Sequence[Any]) -> list[Any]:
        parts = list(index)
        for step in reversed(merged.steps):
            if name in step:
                parts = step[name].restored(*parts)
        return parts

    def load(node: ir.TensorLoad) -> Any:
        old = original(node.source)
        if old is None:
            return node
        return tirx.BufferLoad(old, restored(str(old.name), node.indices))

    def store(node: tirx.BufferStore) -> Any:
        old = original(node.buffer)
        if old is None:
            return node
        return tirx.BufferStore(old, node.value, restored(str(old.name), node.indices))

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
