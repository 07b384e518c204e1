"""Reductions whose rows are read once more: softmax, layer, RMS, group and instance norms.

Before → after, for a softmax over the last axis::

    for i, k: m[i] = max(m[i], A[i, k])
    for i, k: s[i] += exp(A[i, k] - m[i])
    for i, k: B[i, k] = exp(A[i, k] - m[i]) / s[i]

    for row in blockIdx, threadIdx.y:
        m, s in registers, each summed over threadIdx.x
        for k in threadIdx.x: B[row, k] = exp(A[row, k] - m) / s

Where threads can hold the row in registers or shared memory, they read it once: see
:mod:`tvm_tile.schedule.s_tir.held_rows`. A longer one is read again from cache; nothing is written
between the stages. Where not the elements of a row but the rows are neighbours in memory (a
softmax over channels), each thread takes a row, or a part of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract_operators
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.s_tir.exchanged import pairs_of, with_exchanged
from tvm_tile.schedule.s_tir.held_rows import write_held
from tvm_tile.schedule.s_tir.merge import MergedShapes, restore
from tvm_tile.schedule.s_tir.normalize import NormalForm, inlined, inlined_cheap
from tvm_tile.schedule.s_tir.row_axes import view_rows
from tvm_tile.schedule.s_tir.steps import LoopRV, SBlockRV, blocks_named, fuse, loops_by_kind
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.rows.held_rows import HeldRows, HeldTile, construct_held, find_held_rows
from tvm_tile.tile.rows.rows import RowTile, construct_rows
from tvm_tile.tile.rules import ROWS


def schedule_rows(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for reductions that share their rows and one output; none for anything else.

    A single reduction is taken where its result goes back to every element of its row.
    """
    # A product is one, too, where what it multiplies is computed inside of it.
    if not task.graph.reductions or any(map(is_contraction, task.graph.reductions)):
        return ()
    sch, form = inlined(task.func, keep_producers=False)
    if form is None or form.producers or len(form.outputs) != 1:
        return ()
    sch, merged = view_rows(sch, form)
    operators = extract_operators(blocks_named(sch, (*form.outputs, *form.reductions)))
    if not operators or any(map(is_contraction, operators[1:])):
        return ()
    output, *sums = operators
    if len(sums) == 1 and not _returns_to_its_row(sums[0], output):
        return ()
    rows = _row_axes(output, sums)
    is_row = [axis.name in rows for axis in output.axes]
    held = _held_choices(task, count)
    tiles = construct_rows(output, sums, rows, task.device, task.scene)
    both = (*held, *choices_of(ROWS, tiles, partial(_write, sch, form, merged, is_row)))
    return sorted(both, key=lambda choice: choice.seconds)[:count]


@dataclass(frozen=True, slots=True)
class _RowForm:
    """A function whose rows can stay in registers, as they are written.

    Attributes:
        sch: schedule whose stages have the same axes along rows.
        form: its blocks.
        merged: how it views tensors.
        row_axes: places of the output's axes that tell rows apart, as rows are read one behind
            the other: what goes with several of them is near, then.
        rows: the rows as plain data.
    """

    sch: Schedule
    form: NormalForm
    merged: MergedShapes
    row_axes: tuple[int, ...]
    rows: HeldRows

    def write(self, device: Device, tile: HeldTile) -> tirx.PrimFunc | None:
        """Write the kernel; ``None`` where a stage has no fitting loops."""
        own = self.form, self.row_axes, self.rows, device, tile
        try:
            func = write_held(self.sch.copy(), *own)
        except ValueError:
            return None
        return restore(func, self.merged)


def holds_rows(func: tirx.PrimFunc) -> bool:
    """Whether elements of rows are stored in the order in which they are read, each once, so that
    threads can hold them; in what order rows are stored does not matter."""
    held = next(_held_forms(func), None)
    if held is None:
        return False
    blocks = blocks_named(held.sch, (*held.form.reductions, *held.form.outputs))
    return len({operator.points for operator in extract_operators(blocks)}) == 1


def _held_forms(func: tirx.PrimFunc) -> Iterator[_RowForm]:
    """The ways to hold a function's rows: with what is costly computed once, if anything is."""
    for inline in (inlined_cheap, partial(inlined, keep_producers=False)):
        sch, form = inline(func)
        if form is None or len(form.outputs) != 1:
            continue
        sch, merged = view_rows(with_exchanged(sch, form), form)
        blocks = blocks_named(sch, (form.outputs[0], *form.producers, *form.reductions))
        operators, pairs = extract_operators(blocks), pairs_of(blocks[0])
        if not operators or pairs is None:
            continue
        output, *stages = operators
        count = len(form.producers)
        rows = _row_axes(output, stages[count:], stages[:count])
        held = find_held_rows(output, stages, rows)
        if held is not None:
            yield _RowForm(sch, form, merged, _read_order(output, rows), replace(held, pairs=pairs))


def _read_order(output: Operator, rows: frozenset[str]) -> tuple[int, ...]:
    """Places of an output's axes that tell rows apart, in the order of what it reads most of."""
    strides = max(output.reads, key=lambda read: read.tensor.size).strides
    places = [place for place, axis in enumerate(output.axes) if axis.name in rows]
    if any(output.axes[place].name not in strides for place in places):
        return tuple(places)
    return tuple(sorted(places, key=lambda place: -strides[output.axes[place].name]))


def _held_choices(task: Task, count: int) -> Sequence[Choice]:
    """Tiles whose rows stay in registers; none where they do not fit."""
    for held in _held_forms(task.func):
        tiles = construct_held(held.rows, task.device, task.scene)[:count]
        if tiles:
            return choices_of(ROWS, tiles, partial(held.write, task.device))
    return ()


def _returns_to_its_row(reduction: Operator, output: Operator) -> bool:
    """Whether an output has several elements for each sum, as a norm of rows has."""
    return not is_contraction(reduction) and output.write.tensor.size > reduction.write.tensor.size


def _row_axes(
    output: Operator, reductions: Sequence[Operator], producers: Sequence[Operator] = ()
) -> frozenset[str]:
    """The output's axes that tell rows apart: those that index the reductions' results, which it
    reads itself or what producers make of them for each element."""
    results = {op.write.tensor for op in reductions}
    made = {op.write.tensor: op for op in producers}
    found = {axis for read in output.reads if read.tensor in results for axis in read.axes}
    for read in output.reads:
        if read.tensor in made:
            maker = made[read.tensor]
            rows = _row_axes(maker, reductions, producers)
            for index, place in zip(read.indices, maker.write.indices, strict=True):
                if rows & {name for name, _ in place.terms}:
                    found.update(name for name, _ in index.terms)
    return frozenset(found)


def _write(
    sch: Schedule, form: NormalForm, merged: MergedShapes, is_row: list[bool], tile: RowTile
) -> tirx.PrimFunc:
    """Write reductions whose rows are read again, each stage by the same threads."""
    sch = sch.copy()
    for name in form.reductions:
        # In registers, each thread its copy: TVM's sum over threads ends in a broadcast. In shared
        # memory TVM leaves out the barrier behind a row's result (its index is threadIdx.y alone).
        sch.set_scope(sch.get_sblock(name), 0, "local")
    last = sch.get_sblock(form.outputs[0])
    loops = list(sch.get_loops(last)) or [sch.add_unit_loop(last)]  # a scalar has none
    rows = [loop for loop, row in zip(loops, is_row, strict=True) if row]
    inner = [loop for loop, row in zip(loops, is_row, strict=True) if not row]
    rows = rows or [sch.add_unit_loop(loops[0])]
    sch.reorder(*rows, *inner)
    block, lane = sch.split(fuse(sch, rows), [None, tile.rows_per_block])
    sch.bind(block, "blockIdx.x")
    sch.bind(lane, "threadIdx.x" if tile.are_neighbours else "threadIdx.y")
    _spread(sch, last, inner, tile)
    for name in reversed(form.reductions):
        reduction = sch.get_sblock(name)
        sch.compute_at(reduction, lane, preserve_unit_loops=True)
        _spread(sch, reduction, loops_by_kind(sch, reduction)[1], tile)
    return restore(sch.mod["main"], merged)


def _spread(sch: Schedule, block: SBlockRV, loops: list[LoopRV], tile: RowTile) -> None:
    """Share a stage's loops out among the threads of a row."""
    if tile.threads_per_row == 1:
        return
    flat = fuse(sch, loops) if loops else sch.add_unit_loop(block)
    _, thread = sch.split(flat, [None, tile.threads_per_row])
    sch.bind(thread, "threadIdx.y" if tile.are_neighbours else "threadIdx.x")
