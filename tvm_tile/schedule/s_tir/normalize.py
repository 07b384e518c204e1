"""Bring a fused function into a normal form: no intermediate but those a rule stages on chip."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import ir, tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_tile.compat import start_schedule
from tvm_tile.graph.expression import are_same, block_ranges, is_at, loads_of
from tvm_tile.graph.extract import extract_operator, is_gather, loads_in
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.schedule.s_tir.steps import (
    SBlockRV,
    blocks_named,
    child_blocks,
    is_output,
    is_reduction,
    permuted,
    with_simple_places,
)

_COSTLY_FLOPS = 8  # of one element, such as an exponential's


@dataclass(frozen=True, slots=True)
class NormalForm:
    """The names of the blocks that are left when spatial ones are inlined.

    Attributes:
        producers: spatial blocks that only feed a reduction (padding, casts, dequantization).
        reductions: names of the reductions, in program order.
        outputs: spatial blocks that write the function's outputs, in program order.
    """

    producers: tuple[str, ...]
    reductions: tuple[str, ...]
    outputs: tuple[str, ...]


def inlined(func: tirx.PrimFunc, *, keep_producers: bool) -> tuple[Schedule, NormalForm | None]:
    """A function with every spatial block inlined that is no output, for the caller to schedule.

    With ``keep_producers`` a spatial block that directly feeds a reduction stays, so that a rule
    can merge it into its copy to shared memory.

    Returns:
        The schedule, and ``None`` where something cannot be inlined, and where an output pads sums:
        rules write outputs where they have sums, so that what lies beyond would stay unwritten.
    """
    sch, form = _inlined(func, keep_producers)
    return sch.copy(), form


# Rules ask for the same function, one behind the other.
@functools.lru_cache(maxsize=2)
def _inlined(func: tirx.PrimFunc, keep_producers: bool) -> tuple[Schedule, NormalForm | None]:
    """The function with its spatial blocks inlined; no form where one cannot be."""
    sch = start_schedule(func)
    form = _inline(sch, _feeds_sum if keep_producers else lambda *_: False)
    if form is None or any(pads_sums(sch, form.reductions, name) for name in form.outputs):
        return sch, None
    # Once blocks are inlined, a place is perhaps one that a reshape left and another came back to.
    func = sch.mod["main"]
    simple = with_simple_places(func)
    return (sch if simple.same_as(func) else start_schedule(simple)), form


def _inline(sch: Schedule, stays: Callable[[Schedule, SBlockRV], bool]) -> NormalForm | None:
    """Inline spatial blocks but outputs and what ``stays``; ``None`` where that cannot be."""
    for block in child_blocks(sch):
        if is_reduction(sch, block) or is_output(sch, block) or stays(sch, block):
            continue
        try:
            sch.compute_inline(block)
        except ScheduleError:
            return None
    return _describe(sch)


def _feeds_sum(sch: Schedule, block: SBlockRV) -> bool:
    """Whether one reduction, and nothing else, reads what a block makes, which is no copy."""
    consumers = sch.get_consumers(block)
    return len(consumers) == 1 and is_reduction(sch, consumers[0]) and not _is_copy(sch, block)


def pads_sums(sch: Schedule, reductions: Sequence[str], output: str) -> bool:
    """Whether a guard keeps an output from reading sums of ``reductions`` beyond their end."""
    block = sch.get(sch.get_sblock(output))
    sums = [block.writes[0].source for block in blocks_named(sch, reductions)]
    ranges = block_ranges(block)
    return any(
        load.source.same_as(own)
        and not all(
            ranges.can_prove(index < extent)
            for index, extent in zip(load.indices, own.ty.shape, strict=True)
        )
        for load in loads_in(block.body.value)
        for own in sums
    )


def inlined_cheap(func: tirx.PrimFunc) -> tuple[Schedule, NormalForm | None]:
    """Inline blocks as :func:`inlined` does, but keep costly ones that several blocks read.

    Returns:
        The schedule, and ``None`` where nothing is that costly, or something cannot be inlined.
    """
    sch = start_schedule(func)
    form = _inline(sch, _is_costly_twice)
    return sch, form if form is not None and form.producers else None


def _is_costly_twice(sch: Schedule, block: SBlockRV) -> bool:
    """Whether what is read at several places, or by several blocks, costs too much to be computed
    for each."""
    node = sch.get(block)
    operator = extract_operator(node)
    if operator is None or operator.flops < _COSTLY_FLOPS:
        return False
    readers = [sch.get(reader) for reader in sch.get_consumers(block)]
    made = node.writes[0].source
    loads = [load for own in readers for load in loads_of(own.body, made)]
    places = [load.indices for load in loads]
    return len(readers) > 1 or any(not are_same(place, places[0]) for place in places)


def inline_views(sch: Schedule, form: NormalForm) -> NormalForm:
    """Inline producers that only load an element from elsewhere: slices, transposes, reshapes.

    Those stay that data tell from where.
    """
    for name in form.producers:
        block = sch.get_sblock(name)
        own = sch.get(block)
        if isinstance(own.body.value, ir.TensorLoad) and not is_gather(own):
            sch.compute_inline(block)
    return _describe(sch)


def store_by_sums(sch: Schedule, form: NormalForm) -> None:
    """Let the output's loops run through the sums as they lie, and write to where they belong.

    before: ``for b, h, s, d: O[b, h, s, d] = f(sums[b, s, h * 64 + d])``
    after:  ``for b, s, n: O[b, n // 64, s, n % 64] = f(sums[b, s, n])``
    """
    if len(form.outputs) != 1:
        return
    output = sch.get_sblock(form.outputs[0])
    block = sch.get(output)
    sums = sch.get(sch.get_sblock(form.reductions[-1])).body.buffer
    own = loads_of(block.body.value, sums)
    ranges = block_ranges(block)
    places = [[ranges.simplify(index) for index in load.indices] for load in own]
    is_plain = [all(isinstance(i, tirx.Var | tirx.IntImm) for i in indices) for indices in places]
    if any(is_plain) or not own:
        return
    order = tirx.IndexMap([v.var for v in block.iter_vars], places[0], None)
    try:
        sch.transform_block_layout(output, order)
    except ScheduleError:
        return  # some sums are stored twice, or not at all


def gather_strided(sch: Schedule, form: NormalForm) -> NormalForm:
    """Give a reduction that reads every other element a producer that picks them.

    A 1 x 1 convolution of stride two reads ``A[n, c, 2 * y, 2 * x]``: staged as it stands, a tile
    would hold what lies between, too. Merged into the copy, ``P[n, c, y, x] = A[n, c, 2 * y,
    2 * x]`` leaves that out.
    """
    (name,) = form.reductions
    main = sch.get_sblock(name)
    operator = extract_operator(sch.get(main))
    strided = (
        () if operator is None else tuple(filter(partial(_is_strided, operator), operator.reads))
    )
    for read in strided:
        names = [str(region.source.name) for region in sch.get(main).reads]
        producer = sch.reindex(main, ("read", names.index(read.tensor.name)))
        picked = extract_operator(sch.get(producer))
        assert picked is not None, "it copies, at affine places"
        # Dimensions in the order of the source, so that neighbours stay neighbours.
        source = [axis for index in picked.reads[0].indices for axis, _ in index.terms]
        own = [axis for index in picked.write.indices for axis, _ in index.terms]
        order = tuple(own.index(axis) for axis in source)
        sch.transform_layout(producer, ("write", 0), partial(permuted, order))
    return _describe(sch) if strided else form


def _is_strided(operator: Operator, read: Access) -> bool:
    """Whether a read skips elements, and each of its indices is of one axis, of its own."""
    long = {axis.name for axis in operator.axes if axis.extent > 1}
    terms = [[t for t in index.terms if t[0] in long] for index in read.indices]
    axes = [axis for own in terms for axis, _ in own]
    if not read.is_exact or max(map(len, terms)) > 1 or len(set(axes)) < len(axes):
        return False
    return any(abs(coefficient) > 1 for own in terms for _, coefficient in own)


def _is_copy(sch: Schedule, block: SBlockRV) -> bool:
    """Whether a block stores each element where it found it: TVM pads by nothing so."""
    body = sch.get(block).body
    if not isinstance(body, tirx.BufferStore) or not isinstance(body.value, ir.TensorLoad):
        return False
    load = body.value
    if [int(e) for e in load.source.ty.shape] != [int(e) for e in body.buffer.ty.shape]:
        return False
    return is_at(load.indices, body.indices)


def _describe(sch: Schedule) -> NormalForm:
    """Names of the blocks that are left: producers, reductions, outputs."""
    blocks = child_blocks(sch)
    reductions = [b for b in blocks if is_reduction(sch, b)]
    outputs = [b for b in blocks if not is_reduction(sch, b) and is_output(sch, b)]
    rest = [b for b in blocks if not is_reduction(sch, b) and not is_output(sch, b)]
    parts = (rest, reductions, outputs)
    return NormalForm(*(tuple(str(sch.get(block).name_hint) for block in part) for part in parts))
