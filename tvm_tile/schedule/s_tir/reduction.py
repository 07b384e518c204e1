"""One reduction without reuse: sums, matrix-vector products, windows that share nothing.

Three forms, by where the summed elements lie in memory:

* *window*: few elements; one thread sums them all, and goes on to other windows in further laps::

      for block in blockIdx:  for thread in threadIdx:
          acc = 0;  for ry, rx unrolled: acc += A[y*s + ry, x*s + rx];  out = f(acc)

* *row*: the elements are neighbours; the threads of a block share a row and add up
  (TVM lowers the bound reduction to shuffles or a shared-memory tree)::

      for row in blockIdx, threadIdx.y:
          for k_outer:  for k in threadIdx.x:
              own[vector] = A[row, ...];  for v in vector: acc += own[v]

* *column*: the outputs are neighbours; threadIdx.x runs over outputs, threadIdx.y over parts
  of the reduction.

Where there are too few outputs to fill the device, the last two split their sums over blocks, too::

    for part, row: P[part, row] = sum of A[row, part * length + k]     as above
    for row in blockIdx, threadIdx:  out = f(sum of P[part, row])      as a window
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tvm import tirx
from tvm.s_tir import Schedule

from tvm_tile.compat import start_schedule
from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.extract import extract_operator
from tvm_tile.schedule.rule import Choice, Task, choices_of
from tvm_tile.schedule.s_tir.ends import sum_inside
from tvm_tile.schedule.s_tir.guards import copy_guard
from tvm_tile.schedule.s_tir.normalize import NormalForm, inlined
from tvm_tile.schedule.s_tir.steps import (
    LoopRV,
    SBlockRV,
    extent,
    fuse,
    keep_sum,
    loops_by_kind,
    unroll_part,
)
from tvm_tile.schedule.s_tir.widened import with_wide_numbers
from tvm_tile.tile.classify import is_window
from tvm_tile.tile.moves.plain import vector_elements
from tvm_tile.tile.rows.reduce import by_columns, construct_reduction, construct_window
from tvm_tile.tile.rows.reduce_work import ReduceTile, adding_tile
from tvm_tile.tile.rules import COLUMN, ROW, WINDOW

# By the forms of tiles.
_RULES = {rule.name: rule for rule in (WINDOW, ROW, COLUMN)}
_LOOPS_OF_A_SHARE = 5  # of blocks, results, turns, loads in flight, threads
_LOADS_IN_FLIGHT, _SINGLES_IN_FLIGHT = 4, 8  # of a thread


def schedule_reduction(task: Task, count: int) -> Sequence[Choice]:
    """Tiles for a function with one reduction; none for any other number."""
    if len(task.graph.reductions) != 1:
        return ()
    sch, form = inlined(task.func, keep_producers=False)
    if form is None or form.producers or len(form.reductions) != 1 or len(form.outputs) > 1:
        return ()
    operator = extract_operator(sch.get(sch.get_sblock(form.reductions[0])))
    if operator is None:
        return ()
    construct = construct_window if is_window(operator) else construct_reduction
    after = extract_operator(sch.get(sch.get_sblock(form.outputs[0]))) if form.outputs else None
    tiles = construct(operator, task.device, task.scene, after)[:count]
    return choices_of(_RULES[tiles[0].form], tiles, partial(_write, sch, form, task.device))


def _write(
    sch: Schedule, form: NormalForm, device: Device, tile: ReduceTile
) -> tirx.PrimFunc | None:
    """Write the reduction for a tile, in its form."""
    write = write_window if tile.form == "window" else _write_shared
    sch = sch.copy()
    main = sch.get_sblock(form.reductions[0])
    if tile.parts > 1:
        return _write_parts(sch, main, form.outputs, tile, device)
    several = any(len(loops) > 1 for loops in loops_by_kind(sch, main))
    func = copy_guard(sch, main, write(sch, main, form.outputs, tile))
    # Threads share sums only of blocks whose places TVM can tell: of several axes that are walked
    # as one, it can do so by their common end alone.
    if tile.form == "window" or not several:
        func = sum_inside(func, str(sch.get(main).name_hint))
    return with_wide_numbers(func, device)


def write_window(
    sch: Schedule, main: SBlockRV, outputs: tuple[str, ...], tile: ReduceTile
) -> SBlockRV:
    """Write the form *window*; returns the block behind ``main``, which needs its guard."""
    (*outer, last), window = _split_kinds(sch, main)
    neighbours, run = sch.split(last, [None, tile.outputs_per_thread])
    sch.reorder(*outer, neighbours, *window, run)
    flat = fuse(sch, [*outer, neighbours])
    block, lap, thread = sch.split(flat, [None, tile.laps, tile.block_size])
    sch.bind(block, "blockIdx.x")
    sch.unroll(lap)
    sch.bind(thread, "threadIdx.x")
    after = keep_sum(sch, main, outputs)
    sch.reverse_compute_at(after, thread, preserve_unit_loops=True)
    store = extract_operator(sch.get(after))
    if store is not None and tile.outputs_per_thread > 1 and vector_elements(store) > 1:
        sch.vectorize(list(sch.get_loops(after))[-1])
    for loop in (*window, run):
        sch.unroll(loop)
    sch.decompose_reduction(main, window[0])
    return after


def _split_kinds(sch: Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """Spatial and summed loops of a block, spatial ones first; never without a spatial loop."""
    spatial, summed = loops_by_kind(sch, block)
    spatial = spatial or [sch.add_unit_loop(summed[0])]
    sch.reorder(*spatial, *summed)
    return spatial, summed


def _write_shared(
    sch: Schedule, main: SBlockRV, outputs: tuple[str, ...], tile: ReduceTile
) -> SBlockRV:
    """Write a reduction whose threads share sums; the result is its main block."""
    spatial, reduce = _split_kinds(sch, main)
    row, summed = fuse(sch, spatial), fuse(sch, reduce)
    block, output = sch.split(row, [None, tile.outputs_per_block])
    pieces, vector = sch.split(summed, [None, tile.vector])
    # Single elements come several at a time, past the end of a sum if need be: vectors, of which
    # the last may be cut off, only as many as divide it.
    ahead = _SINGLES_IN_FLIGHT if tile.vector == 1 else 1
    ahead = min(ahead, -(-extent(sch, pieces) // tile.threads_per_output))
    serial, flying, part = sch.split(pieces, [None, ahead, tile.threads_per_output])
    sch.reorder(block, output, serial, flying, part, vector)
    along, across = ("threadIdx.x", "threadIdx.y")
    if tile.form == "column":
        along, across = across, along
    sch.bind(block, "blockIdx.x")
    sch.bind(output, across)
    sch.bind(part, along)
    after = keep_sum(sch, main, outputs)
    sch.reverse_compute_at(after, output)
    sch.unroll(flying)
    if tile.vector > 1:
        _load_vectors(sch, main, part, tile.vector)
        unroll_part(sch, serial, _LOADS_IN_FLIGHT)
    return after


def _load_vectors(sch: Schedule, main: SBlockRV, part: LoopRV, vector: int) -> None:
    """Load what a sum reads along its row to registers, as many neighbours as it adds in turn.

    What it reads elsewhere, too, ``x[k] == x[row]``, it reads where it lies: registers hold the
    places in between as well, and how many these are is not known.
    """
    operator = extract_operator(sch.get(main))
    assert operator is not None, "it has been extracted before"
    summed = {axis.name for axis in operator.reduce_axes if axis.extent > 1}
    for tensor in {r.tensor.name: r.tensor for r in operator.reads if r.axes & summed}.values():
        own = (read for read in operator.reads if read.tensor.name == tensor.name)
        if len({tuple(index.terms for index in read.indices) for read in own}) > 1:
            continue
        names = [str(region.source.name) for region in sch.get(main).reads]
        copy = sch.cache_read(main, names.index(tensor.name), "local")
        sch.compute_at(copy, part, preserve_unit_loops=True)
        flat = fuse(sch, list(sch.get_loops(copy))[_LOOPS_OF_A_SHARE:])
        outer, inner = sch.split(flat, [None, min(vector, VECTOR_BYTES // tensor.element_size)])
        sch.unroll(outer)
        sch.vectorize(inner)


def _write_parts(
    sch: Schedule, main: SBlockRV, outputs: tuple[str, ...], tile: ReduceTile, device: Device
) -> tirx.PrimFunc | None:
    """Both kernels of a sum in parts; ``None`` if it cannot be analysed."""
    operator = extract_operator(sch.get(main))
    if operator is None:
        return None
    _, reduce = _split_kinds(sch, main)
    within = []
    if tile.neighbours > 1:
        columns = by_columns(operator)
        own = {axis.name for axis in columns.reduce_axes} if columns else set()
        names = [axis.name for axis in operator.reduce_axes]
        within = [loop for loop, name in zip(reduce, names, strict=True) if name not in own]
        reduce = [loop for loop in reduce if loop not in within]
    part, rest = sch.split(fuse(sch, reduce), [tile.parts, None])
    sch.reorder(part, *within, rest)
    own = sch.rfactor(fuse(sch, [part, *within]), 0)
    *outer, share, _ = sch.get_loops(own)
    shares = [share] if tile.neighbours == 1 else sch.split(share, [tile.parts, tile.neighbours])
    part, *neighbour = shares
    sch.reorder(part, *outer, *neighbour)  # so that neighbouring threads have neighbouring outputs
    *spatial, added = sch.get_loops(main)
    if len(spatial) < len(sch.get(main).iter_vars):
        sch.reorder(added, *spatial)  # as the block's variables are
    adding = adding_tile(operator.outputs, tile.shares, device)
    if adding.form == "window":
        one = extract_operator(sch.get(main))
        if one is None:
            return None
        adding = construct_window(one, device)[0]
    write = write_window if adding.form == "window" else _write_shared
    total = write(sch, main, outputs, adding)
    names = [str(sch.get(block).name_hint) for block in (main, total)]
    guarded = start_schedule(copy_guard(sch, own, _write_shared(sch, own, (), tile)))
    func = copy_guard(guarded, *map(guarded.get_sblock, names))
    func = sum_inside(func, names[0]) if adding.form == "window" else func
    return with_wide_numbers(func, device)
