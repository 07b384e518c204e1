"""Find products with few vectors in a function, and what makes their short operand.

Several products of one short operand become one, and so do the halves of one of which elements are
made, as a gate's and what it lets through: ``stacked_sums.py``. What makes ``x``, such as a norm of
its rows, stays as it is, but that what is computed element by element is inlined, except for ``x``
itself. So is what others take of it, such as a residual; blocks that store it are told apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import ir, tirx
from tvm.s_tir import SBlock, SBlockRealize, Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_tile.compat import start_schedule
from tvm_tile.device.device import Device
from tvm_tile.graph.extract import blocks_in, extract_operators, is_gather
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.schedule.rule import Task
from tvm_tile.schedule.s_tir.ends import ignores_zeros
from tvm_tile.schedule.s_tir.merge import MergedShapes
from tvm_tile.schedule.s_tir.normalize import pads_sums
from tvm_tile.schedule.s_tir.stacked_sums import halved, stacked
from tvm_tile.schedule.s_tir.steps import (
    SBlockRV,
    blocks_named,
    child_blocks,
    is_output,
    is_reduction,
    replace_parts,
)
from tvm_tile.schedule.scene import streamed_names
from tvm_tile.tile.few_rows.few_vectors import Matvec, Prologue, find_matvec, side_by_side


@dataclass(frozen=True, slots=True)
class FewVectors:
    """A function that is a product with few vectors, and what is before and behind it.

    Attributes:
        sch: its schedule.
        prologue: names of the blocks that make the short operand, in order; the last one writes it.
        stores: blocks that store what it is made of for others, cut out of the schedule.
        main: name of the block of the product, or of all that are side by side.
        outputs: names of the blocks behind it.
        gathers: names of the blocks that look up its long operand, to be inlined where that is
            loaded.
        operator: the product.
        product: the parts of its axes.
        ignores_zeros: whether it adds nothing where its operands are zero.
        constants: names of the parameters that are constants, and in no cache.
        merged: how the shapes of parameters differ from those that callers know.
    """

    sch: Schedule
    prologue: tuple[str, ...]
    stores: tuple[SBlock, ...]
    main: str
    outputs: tuple[str, ...]
    gathers: tuple[str, ...]
    operator: Operator
    product: Matvec
    ignores_zeros: bool
    constants: tuple[str, ...]
    merged: MergedShapes


def find_few_vectors(task: Task) -> FewVectors | None:
    """The product of a function; ``None`` where it is something else, or reads too little."""
    if not task.graph.reductions:
        return None
    sch = start_schedule(task.func)
    mains = [block for block in child_blocks(sch) if _is_last_sum(sch, block)]
    try:
        stored, prologue = _stored(sch), inlined_makers(sch, mains)
    except ScheduleError:
        return None
    names, func = [_name(sch, main) for main in mains], sch.mod["main"]
    outputs = [block for block in child_blocks(sch) if is_output(sch, block)]
    outputs = [block for block in outputs if _name(sch, block) not in stored]
    is_sum = any(is_reduction(sch, block) for block in outputs)
    behind = () if is_sum else tuple(_name(sch, block) for block in outputs)
    stores = tuple(blocks_named(sch, stored))
    if (
        prologue is None
        or len(outputs) > 1
        or (is_sum and len(mains) > 1)
        or (stores and not _are_made_with(stores, blocks_named(sch, prologue), func.params))
        or any(pads_sums(sch, names, name) for name in behind)
    ):
        return None
    func, merged = _without(func, stored), MergedShapes((), tuple(func.params))
    halves = halved(func, *names, *behind) if len(names) == 1 and behind else None
    func, merged = halves or (func, merged)
    found = _products(start_schedule(func), names, prologue, stores, task.device)
    whole = stacked(func, names) if found and len(names) > 1 else func
    if found is None or whole is None:
        return None
    operator, product = found
    if halves is not None:
        product = replace(product, rows=product.rows[1:], parts=product.rows[:1])
    zeros = all(ignores_zeros(sch.get(main)) for main in mains)
    gathers = tuple(_name(sch, block) for block in gathers_of(sch, mains))
    blocks = prologue, stores, names[0], behind, gathers
    constants = streamed_names(task.func)
    return FewVectors(start_schedule(whole), *blocks, operator, product, zeros, constants, merged)


def _name(sch: Schedule, block: SBlockRV) -> str:
    """Name of a block."""
    return str(sch.get(block).name_hint)


def _is_last_sum(sch: Schedule, block: SBlockRV) -> bool:
    """Whether a block is a reduction whose results no other reduction takes, directly or not."""
    waiting = list(sch.get_consumers(block))
    while waiting:
        consumer = waiting.pop()
        if is_reduction(sch, consumer):
            return False
        waiting += sch.get_consumers(consumer)
    return is_reduction(sch, block)


def _stored(sch: Schedule) -> tuple[str, ...]:
    """The names of blocks that store what others read, which then no longer read it there."""
    blocks = [block for block in child_blocks(sch) if is_output(sch, block)]
    pairs = [(block, list(sch.get_consumers(block))) for block in blocks]
    return tuple(
        _name(sch, sch.cache_write(block, 0, "local", consumer_blocks=consumers))
        for block, consumers in pairs
        if consumers and not is_reduction(sch, block)
    )


def _without(func: tirx.PrimFunc, names: Sequence[str]) -> tirx.PrimFunc:
    """A function without the loop nests of some blocks."""
    if not names:
        return func
    root = func.body.block
    kept = [
        nest
        for nest in root.body.seq
        if all(str(block.name_hint) not in names for block in blocks_in(nest))
    ]
    block = replace_parts(root, body=tirx.SeqStmt(kept))
    return func.with_body(SBlockRealize([], func.body.predicate, block))


def _are_made_with(
    stores: Sequence[SBlock], prologue: Sequence[SBlock], params: Sequence[Any]
) -> bool:
    """Whether blocks have the axes of the last block of a prologue, and read what it may read."""
    if not prologue:
        return False
    extents = [
        [int(axis.dom.extent) for axis in block.iter_vars] for block in (*stores, prologue[-1])
    ]
    known = [*params, *(block.writes[0].source for block in prologue)]
    read = [region.source for own in stores for region in own.reads]
    is_known = all(any(source.same_as(own) for own in known) for source in read)
    return is_known and all(own == extents[-1] for own in extents)


def inlined_makers(sch: Schedule, mains: Sequence[SBlockRV]) -> tuple[str, ...] | None:
    """Inline what is computed element by element, but for outputs and what products read.

    Returns:
        The names of what is left before the products; ``None`` where these read several such
        values, or sums, or look up what is made here.

    Raises:
        ScheduleError: TVM cannot inline a block.
    """
    gathers = {_name(sch, block) for block in gathers_of(sch, mains)}
    for block in child_blocks(sch):
        is_view = isinstance(getattr(sch.get(block).body, "value", None), ir.TensorLoad)
        is_kept = is_reduction(sch, block) or is_output(sch, block) or _name(sch, block) in gathers
        if is_view and not is_kept:
            sch.compute_inline(block)
    if any(_is_of_made(sch, gather) for gather in blocks_named(sch, gathers)):
        return None
    makers = {_name(sch, maker) for main in mains for maker in sch.get_producers(main)} - gathers
    for block in child_blocks(sch):
        is_kept = is_reduction(sch, block) or is_output(sch, block)
        if not (is_kept or _name(sch, block) in makers | gathers):
            sch.compute_inline(block)
    ends = {_name(sch, main) for main in mains} | gathers
    left = [b for b in child_blocks(sch) if _name(sch, b) not in ends and not is_output(sch, b)]
    if len(makers) > 1 or any(is_reduction(sch, sch.get_sblock(name)) for name in makers):
        return None
    names = tuple(_name(sch, block) for block in left)
    return names if not names or {names[-1]} == makers else None


def _is_of_made(sch: Schedule, gather: SBlock) -> bool:
    """Whether what a block looks up is made in the function, such as numbers of codes: it would be
    made anew for each element."""
    table = gather.body.value.source
    return any(sch.get(block).writes[0].source.same_as(table) for block in child_blocks(sch))


def gathers_of(sch: Schedule, mains: Sequence[SBlockRV]) -> list[SBlockRV]:
    """The blocks that look up what products, and nothing else, read where data tell."""
    return [
        block
        for main in mains
        for block in sch.get_producers(main)
        if is_gather(sch.get(block)) and not is_output(sch, block)
    ]


def _products(
    sch: Schedule,
    names: Sequence[str],
    prologue: Sequence[str],
    stores: Sequence[SBlock],
    device: Device,
) -> tuple[Operator, Matvec] | None:
    """The products as one operator, with what makes its short operand."""
    operators = extract_operators(blocks_named(sch, names))
    parts = [find_matvec(operator, device) for operator in operators]
    products = [part for part in parts if part is not None]
    if not operators or len(products) < len(names):
        return None
    single = (operators[0], products[0])
    found = side_by_side(operators, products) if len(products) > 1 else single
    if found is None or not prologue:
        return found
    stages = extract_operators(blocks_named(sch, prologue))
    made = Prologue.of(stages) if stages else None
    is_own = bool(stages) and products[0].reused.tensor == stages[-1].write.tensor
    if made is None or not is_own or products[0].batch:
        return None
    size = sum(op.write.tensor.size for op in extract_operators(stores))
    return found[0], replace(found[1], prologue=replace(made, stored_bytes=size))
