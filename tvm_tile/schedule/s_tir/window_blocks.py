"""The parts of a function that sums sliding windows, and where what slides lies in memory."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tvm_tile.graph.expression import is_at, is_in_order, loads_of
from tvm_tile.graph.extract import extract_operator, loads_in
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.schedule.s_tir.guards import conjunction
from tvm_tile.schedule.s_tir.normalize import inlined
from tvm_tile.schedule.s_tir.padding import implies, padding_of
from tvm_tile.schedule.s_tir.steps import blocks_named
from tvm_tile.tile.windows.window import window_of


@dataclass(frozen=True, slots=True)
class WindowBlocks:
    """The parts of a function that sums windows.

    Attributes:
        func: the whole.
        operator: the sum.
        main: its block.
        producers: blocks that pad what slides.
        after: the block that takes each sum to the output, if that is more than a copy.
    """

    func: tirx.PrimFunc
    operator: Operator
    main: SBlock
    producers: tuple[SBlock, ...]
    after: SBlock | None

    def producer_of(self, name: str) -> SBlock | None:
        """The block that pads the tensor of that name, if one does."""
        return next((p for p in self.producers if str(p.writes[0].source.name) == name), None)


def read_blocks(func: tirx.PrimFunc) -> WindowBlocks | None:
    """``None`` where a thread's outputs are not those whose sums it has."""
    sch, form = inlined(func, keep_producers=True)
    if form is None or len(form.reductions) != 1 or len(form.outputs) > 1:
        return None
    main = sch.get(sch.get_sblock(form.reductions[0]))
    operator = extract_operator(main)
    window = None if operator is None else window_of(operator)
    if operator is None or window is None or not isinstance(main.init, tirx.BufferStore):
        return None
    # Padding of what slides is read into registers; any other producer is computed where used.
    sliding = {read.tensor.name for read in window.reads}
    kept = []
    for name in form.producers:
        block = sch.get_sblock(name)
        if str(sch.get(block).writes[0].source.name) in sliding:
            kept.append(name)
        else:
            sch.compute_inline(block)
    main, *producers = blocks_named(sch, (form.reductions[0], *kept))
    after = sch.get(sch.get_sblock(form.outputs[0])) if form.outputs else None
    spatial = [v.var for v in main.iter_vars if v.iter_type == tirx.IterVar.DataPar]
    if not is_at(main.body.indices, spatial) or not all(map(is_in_order, producers)):
        return None
    if after is not None and not _follows(after, main):
        return None
    if not _is_read_in_one_way(main.body.value, sliding):
        return None
    operator = replace(operator, reads=tuple(_in_memory(r, producers) for r in operator.reads))
    if after is not None:
        operator = replace(operator, write=_output(after, operator))
    return WindowBlocks(sch.mod["main"], operator, main, tuple(producers), after)


def _is_read_in_one_way(value: Any, sliding: Set[str]) -> bool:
    """Whether no tensor that slides is read elsewhere, too, as an image that is its own filter.

    A tensor's rows in registers are found by its name.
    """
    first: dict[str, Any] = {}
    for load in loads_in(value):
        name = str(load.source.name)
        other = first.setdefault(name, load)
        is_same = tvm_ffi.structural_equal(list(other.indices), list(load.indices))
        if name in sliding and not is_same:
            return False
    return True


def _in_memory(read: Access, producers: Sequence[SBlock]) -> Access:
    """``read`` with the element type of what its producer, if it has one, reads in turn."""
    for producer in producers:
        loads = loads_in(producer.body.value)
        if str(producer.writes[0].source.name) == read.tensor.name and loads:
            tensor = replace(read.tensor, dtype=str(loads[0].ty.dtype))
            return replace(read, tensor=tensor, is_computed=True)
    return read


def _output(after: SBlock, operator: Operator) -> Access:
    """Place that ``after`` stores to, by the sum's axes; the sum's own if it cannot be read."""
    found = extract_operator(after)
    if found is None:
        return operator.write
    names = {
        own.name: axis.name for own, axis in zip(found.axes, operator.spatial_axes, strict=True)
    }
    return found.write.renamed(names)


def sources_of(blocks: WindowBlocks) -> tuple[Access | None, ...]:
    """Tensors that slide, as they lie in memory, for ``vectors_of``."""
    window = window_of(blocks.operator)
    reads = window.reads if window else ()
    return tuple(_source(read, blocks) for read in reads)


def _source(read: Access, blocks: WindowBlocks) -> Access | None:
    """The tensor behind the padding that a sum reads; ``None`` if more is between them."""
    producer = blocks.producer_of(read.tensor.name)
    if producer is None:
        return read
    operator, padding = extract_operator(producer), padding_of(producer)
    if operator is None or padding is None or len(operator.reads) != 1:
        return None
    # Whether it is padding that is read must be told by the tensor's extents.
    load = padding.load
    places = zip(load.indices, load.source.ty.shape, strict=True)
    inside = [tirx.all(place >= 0, place < extent) for place, extent in places]
    if not implies(conjunction(inside), padding.condition):
        return None
    (found,) = operator.reads
    if any(o.terms != ((a.name, 1),) for o, a in zip(found.indices, operator.axes, strict=True)):
        return None
    pairs = zip(read.indices, found.indices, strict=True)
    indices = tuple(replace(at, offset=at.offset + own.offset) for at, own in pairs)
    return Access(found.tensor, indices)


def _follows(after: SBlock, main: SBlock) -> bool:
    """Whether ``after`` takes each sum, and nothing but that sum, to an output of its own."""
    variables = [v.var for v in after.iter_vars]
    same = [
        tuple(int(v.dom.extent) for v in block.iter_vars if v.iter_type == tirx.IterVar.DataPar)
        for block in (after, main)
    ]
    loads = loads_of(after.body.value, main.writes[0].source)
    return same[0] == same[1] and all(is_at(load.indices, variables) for load in loads)
