"""Write one reduction whose operands are staged through shared memory, for a given tile.

Before → after, for ``C[i, j] += A[i, k] * B[k, j]`` followed by ``D = f(C)``::

    for i, j, k: C[i, j] += A[i, k] * B[k, j]
    for i, j:    D[i, j]  = f(C[i, j])

    for block in blockIdx:  for piece in vthread:  for thread in threadIdx:
        acc[...] = 0
        for k_step:
            A_shared, B_shared = the block's tiles    (all threads copy together; padding inlined)
            for k in chunk:  for i, j in run: acc[i, j] += A_shared * B_shared
        D[run] = f(acc)

A thread's tile is made of runs, one a piece, between which lie those of the other threads. TVM
writes all pieces of a statement next to each other, with one copy of what is staged. Prefetched,
a step loads the next one's operands to registers before it computes.

With ``groups`` > 1 the threads of a block form groups, each summing its own part of every step;
partial sums meet in shared memory (``rfactor``), so that a small output still fills the device.
With ``parts`` > 1 blocks form such groups; ``parts.py`` says how their sums meet.

Staged tiles lie in shared memory as ``tile/banks.py`` decides, dimensions turned and rows padded
where the threads of a warp would meet in one bank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import ScheduleError

from tvm_tile.device.device import STATIC_SHARED_LIMIT, Device, MemoryLevel
from tvm_tile.graph.extract import extract_operator
from tvm_tile.graph.tile_graph import Operator, element_size
from tvm_tile.schedule.rule import Choice, Scheduled, Task, as_written
from tvm_tile.schedule.s_tir.ends import Staged, fill_ends, read_inside, sum_inside
from tvm_tile.schedule.s_tir.guards import copy_guard, drop_guards
from tvm_tile.schedule.s_tir.merge import MergedShapes, merge_axes, restore
from tvm_tile.schedule.s_tir.normalize import NormalForm, gather_strided, inlined
from tvm_tile.schedule.s_tir.padding import clamp_padding, free_copies
from tvm_tile.schedule.s_tir.parts import split_sum
from tvm_tile.schedule.s_tir.steps import (
    LoopRV,
    SBlockRV,
    blocks_named,
    copy_together,
    extent,
    fuse,
    keep_sum,
    permuted,
    shared_scope,
    vector_width,
)
from tvm_tile.tile.banks import StagedLayout, staged_layouts
from tvm_tile.tile.classify import is_contraction
from tvm_tile.tile.cost import elements
from tvm_tile.tile.moves.plain import vector_elements
from tvm_tile.tile.rtile import RProgram
from tvm_tile.tile.rules import Rule


@dataclass(frozen=True, slots=True)
class Draft:
    """A product or convolution in normal form, to be written for one tile or another.

    Attributes:
        sch: schedule in which padding is clamped, and the operands' computation still stands apart.
        form: the blocks that are left.
        merged: axes that are one in ``sch``.
        operator: the reduction.
        device: device that is written for.
    """

    sch: Schedule
    form: NormalForm
    merged: MergedShapes
    operator: Operator
    device: Device

    def _write(self, program: RProgram, rule: Rule) -> Scheduled | None:
        """The scheduled function for a program; ``None`` where it cannot be written."""
        func = _write(self.sch.copy(), self.form, program, self.device)
        if func is None:
            return None
        padded = replace(program, shared_bytes=_shared_bytes(program, self.device))
        return as_written(restore(func, self.merged), rule, padded)

    def choices(self, programs: Iterable[RProgram], rule: Rule) -> tuple[Choice, ...]:
        """The choices of ``programs``, in the name of ``rule``."""
        return tuple(Choice.of(rule, own, partial(self._write, own, rule)) for own in programs)


def draft(task: Task) -> Draft | None:
    """A product or convolution with at most one output behind it; ``None`` for anything else."""
    if len(task.graph.reductions) != 1:
        return None
    # Under a name: a schedule rewrites in place what nobody else refers to, and would so take the
    # blocks that both functions share.
    clamped = clamp_padding(task.func)
    sch, form = inlined(clamped, keep_producers=True)
    if form is None or len(form.reductions) != 1 or len(form.outputs) > 1:
        return None
    operator = _read_operator(sch, form)
    if operator is None or not is_contraction(operator):
        return None
    form = gather_strided(sch, form)
    merged = merge_axes(sch, form)
    operator = _read_operator(sch, form)
    return None if operator is None else Draft(sch, form, merged, operator, task.device)


def _read_operator(sch: Schedule, form: NormalForm) -> Operator | None:
    """The reduction as an operator; reads that come from a kept producer are marked computed."""
    operator = extract_operator(sch.get(sch.get_sblock(form.reductions[0])))
    if operator is None:
        return None
    made = {str(block.writes[0].source.name) for block in blocks_named(sch, form.producers)}
    reads = tuple(
        replace(read, is_computed=read.is_computed or read.tensor.name in made)
        for read in operator.reads
    )
    return replace(operator, reads=reads)


def _shared_bytes(program: RProgram, device: Device) -> int:
    """Bytes of a block: operands, then groups' sums in place of the larger one.

    Their total goes where the smaller one was.
    """
    layouts = staged_layouts(program, program.shared_bytes, device)
    tile = np.array([[program.staged[axis.name] for axis in program.operator.axes]])
    sizes = [
        int(elements(read, program.operator, tile)[0]) * read.tensor.element_size + layout.padding
        for read, layout in zip(program.operator.reads, layouts, strict=True)
    ]
    return max(sum(sizes), program.exchanged + min(sizes) if program.exchanged else 0)


@dataclass(frozen=True, slots=True)
class _StepNest:
    """The accumulating block, the loop of its copies, the block behind it, the summed loops."""

    block: SBlockRV
    step: LoopRV
    after: SBlockRV
    summed: tuple[LoopRV, ...]


@dataclass(frozen=True, slots=True)
class _Copy:
    """One of the copies that stage an operand in shared memory.

    Attributes:
        staged: its block, and what it copies.
        fetch: the block that reads for it, if apart.
        size: bytes.
    """

    staged: Staged
    fetch: str | None
    size: int

    @property
    def name(self) -> str:
        """Name of the block that stages it."""
        return self.staged.name


def _write(
    sch: Schedule, form: NormalForm, program: RProgram, device: Device
) -> tirx.PrimFunc | None:
    """Write a tile into ``sch``; the scheduled function, or ``None`` if a step is impossible."""
    layouts = staged_layouts(program, program.shared_bytes, device)
    scope = shared_scope(device, program.shared_bytes + sum(layout.padding for layout in layouts))
    main = sch.get_sblock(form.reductions[0])
    parts = None
    try:
        if program.parts > 1:
            parts = split_sum(sch, main, form.outputs, program, device)
            if parts is None:
                return None
            sch = parts.sch
            nest = _plain_nest(sch, parts.main, (), program)
        elif program.groups > 1:
            nest = _grouped_nest(sch, main, form, program, scope)
        else:
            nest = _plain_nest(sch, main, form.outputs, program)
        copies = [
            _stage(sch, nest, index, program, layout, scope) for index, layout in enumerate(layouts)
        ]
        if not _fits(sum(copy.size for copy in copies), program, scope, device):
            return None
        init = sch.decompose_reduction(nest.block, nest.step)
        if program.is_prefetched:
            _prefetch(sch, nest.step, [copy.name for copy in copies])
        inner = len(program.operator.axes)
        for loop in sch.get_loops(nest.block)[-inner:]:
            sch.unroll(loop)
        for loop in sch.get_loops(init)[-len(program.spatial) :]:
            sch.unroll(loop)
    except (ScheduleError, TypeError):
        # TypeError: a tile across channel groups has no constant extent to stage.
        return None
    func = sch.mod["main"]
    if program.groups > 1:
        func = copy_guard(sch, main, nest.after)
    if parts is not None:
        func = copy_guard(sch, parts.total, parts.after)
        func = sum_inside(func, str(sch.get(parts.total).name_hint))
    func = free_copies(func, [(copy.name, copy.fetch) for copy in copies if copy.fetch])
    names = frozenset(str(sch.get(b).name_hint) for b in (nest.block, init))
    summed = tuple(sch.get(loop).loop_var for loop in nest.summed)
    func = drop_guards(func, names, summed)
    name = str(sch.get(nest.block).name_hint)
    if parts is not None:
        func = parts.guarded(func, name)
    func = fill_ends(func, name, [copy.staged for copy in copies], program)
    return read_inside(func, [copy.staged for copy in copies if not copy.fetch])


def _prefetch(sch: Schedule, step: LoopRV, copies: Sequence[str]) -> None:
    """Load a step's operands to registers before the step ahead of it is computed.

    A step becomes: load the next one's operands; compute; store these. TVM puts a barrier before
    and behind the stores, which separate two steps' reads and writes of the same shared memory.
    """
    for name in copies:
        sch.annotate(sch.get_sblock(name), "tirx.manifest_shared_memory_local_stage", 1)
    count = len(copies)
    # Each copy is two statements by then, its load and its store; the sum is the last one.
    order = [place for i in range(count) for place in (i, count + 1 + i)]
    sch.annotate(step, "software_pipeline_order", [*order, count])
    sch.annotate(step, "software_pipeline_stage", [0] * 2 * count + [1])


def _plain_nest(
    sch: Schedule, main: SBlockRV, outputs: tuple[str, ...], program: RProgram
) -> _StepNest:
    """Loops blockIdx, vthread, threadIdx, step, chunk, run; the epilogue follows in each thread."""
    axes = len(program.spatial)
    loops = list(sch.get_loops(main))
    part = [loops.pop(axes + program.group_axis)] if program.parts > 1 else []
    split = [
        sch.split(loop, [None, spread.pieces, spread.threads, spread.run])
        for loop, spread in zip(loops[:axes], program.spread.values(), strict=True)
    ]
    blocks, pieces, threads, runs = (list(part) for part in zip(*split, strict=True))
    steps, chunks = _split_reduce(sch, loops[axes:], program.chunk)
    after = keep_sum(sch, main, outputs)
    sch.reorder(*part, *blocks, *pieces, *threads, *steps, *chunks, *runs)
    block, piece, thread = fuse(sch, [*part, *blocks]), fuse(sch, pieces), fuse(sch, threads)
    sch.bind(block, "blockIdx.x")
    sch.bind(piece, "vthread.x")
    sch.bind(thread, "threadIdx.x")
    step = fuse(sch, steps)
    _follow(sch, after, thread)
    return _StepNest(main, step, after, (step, *chunks))


def _grouped_nest(
    sch: Schedule, main: SBlockRV, form: NormalForm, program: RProgram, scope: str
) -> _StepNest:
    """Tile the loops as the plain nest, in each group; then all threads add the groups' sums."""
    axes = len(program.spatial)
    loops = sch.get_loops(main)
    shared_axis, chunk = program.group_axis, program.chunk
    split = [None, program.groups, chunk[shared_axis]]
    _, group, _ = sch.split(loops[axes + shared_axis], split)
    partial = sch.rfactor(group, 0)

    loops = sch.get_loops(main)
    tiled = [
        sch.split(loop, [None, block])
        for loop, (block, _) in zip(loops[:axes], program.spatial, strict=True)
    ]
    sch.reorder(*(t[0] for t in tiled), *(t[1] for t in tiled), loops[axes])
    block = fuse(sch, [t[0] for t in tiled])
    sch.bind(block, "blockIdx.x")
    sch.compute_at(partial, block, preserve_unit_loops=True)
    sch.set_scope(partial, 0, scope)
    flat = fuse(sch, [t[1] for t in tiled])
    _, gather = sch.split(flat, [None, program.block_size])
    sch.bind(gather, "threadIdx.x")
    sch.unroll(sch.get_loops(main)[-1])
    after = keep_sum(sch, main, form.outputs)
    sch.reverse_compute_at(after, gather, preserve_unit_loops=True)

    store = sch.cache_write(partial, 0, "local")
    group, *inner_loops = sch.get_loops(partial)[1:]
    spatial, reduce = inner_loops[:axes], inner_loops[axes:]
    # The shared axis is two loops already: its steps, and one group's chunk.
    own_step, own_chunk = reduce.pop(shared_axis), reduce.pop(shared_axis)
    split = [
        sch.split(loop, [spread.threads, spread.run])
        for loop, spread in zip(spatial, program.spread.values(), strict=True)
    ]
    threads, runs = (list(part) for part in zip(*split, strict=True))
    others = (*chunk[:shared_axis], *chunk[shared_axis + 1 :])
    steps, chunks = _split_reduce(sch, reduce, others)
    steps, chunks = [own_step, *steps], [own_chunk, *chunks]
    sch.reorder(group, *threads, *steps, *chunks, *runs)
    thread = fuse(sch, [group, *threads])
    sch.bind(thread, "threadIdx.x")
    step = fuse(sch, steps)
    sch.reverse_compute_at(store, thread, preserve_unit_loops=True)
    return _StepNest(partial, step, after, (step, *chunks))


def _split_reduce(
    sch: Schedule, loops: list[LoopRV], chunk: tuple[int, ...]
) -> tuple[list[LoopRV], list[LoopRV]]:
    """Split each summed loop into chunks: the outer loops, and the inner ones."""
    pairs = [sch.split(loop, [None, c]) for loop, c in zip(loops, chunk, strict=True)]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def _follow(sch: Schedule, after: SBlockRV, thread: LoopRV) -> None:
    """Put the epilogue behind each thread's tile: unrolled, its innermost run vectorized.

    A compiler that is not told unrolls no loop around a long expression, such as GELU's: the sums,
    at a place that a loop's variable gives, then lie in memory instead of in registers.
    """
    sch.reverse_compute_at(after, thread, preserve_unit_loops=True)
    own = list(sch.get_loops(after))[3:]  # behind block, piece and thread
    operator = extract_operator(sch.get(after))
    if not own:
        return
    width = 1 if operator is None else math.gcd(extent(sch, own[-1]), vector_elements(operator))
    if width > 1:
        own[-1], vector = sch.split(own[-1], [None, width])
        sch.vectorize(vector)
    for loop in own:
        sch.unroll(loop)


def _fits(staged: int, program: RProgram, scope: str, device: Device) -> bool:
    """Whether what was really staged fits; the model only estimates indices that are not affine."""
    memory = device.memory(MemoryLevel.SHARED)
    partial = math.prod(block for block, _ in program.spatial) * (program.groups + 1) * 4
    total = staged + (partial if program.groups > 1 else 0)
    is_static = scope != memory.scope
    return total <= min(memory.capacity, STATIC_SHARED_LIMIT if is_static else memory.capacity)


def _stage(
    sch: Schedule, nest: _StepNest, index: int, program: RProgram, layout: StagedLayout, scope: str
) -> _Copy:
    """Copy operand ``index`` of a step to shared memory, its producer inlined."""
    threads = program.block_size
    copy = sch.cache_read(nest.block, index, scope)
    tensor = sch.get(copy).writes[0].source
    shape = tuple(int(e) for e in tensor.ty.shape)
    size = element_size(str(tensor.ty.dtype))
    if not layout.is_plain:
        sch.transform_layout(copy, ("write", 0), partial(permuted, layout.order))
    sch.compute_at(copy, nest.step, preserve_unit_loops=True)
    producers = list(sch.get_producers(copy))
    for producer in producers:
        sch.compute_inline(producer)
    region = tuple(extent(sch, loop) for loop in list(sch.get_loops(copy))[-len(shape) :])
    pitch = region[layout.order[-1]]
    staged = math.prod(region) * size
    if layout.alignment is not None:
        factor, offset = layout.alignment
        sch.storage_align(copy, 0, len(shape) - 2, factor, offset)
        staged += staged // pitch * ((offset - pitch) % factor)
    width = 1 if producers else vector_width(region, shape, size)
    if not layout.is_plain and region[-1] % width and math.prod(region) % (width * threads):
        # Vectors across rows, into turned rows, behind a guard: TVM fails to lower them.
        width = 1
    copy_together(sch, copy, region, shape, threads, width, is_unrolled=not program.is_prefetched)
    fetched = None
    reads = sch.get(copy).reads
    is_padding = len(reads) == 1 and len(reads[0].region) == len(shape)
    if not program.is_prefetched and producers and is_padding:
        fetch = sch.cache_read(copy, 0, "local")
        sch.compute_at(fetch, sch.get_loops(copy)[-1], preserve_unit_loops=True)
        fetched = str(sch.get(fetch).name_hint)
    return _Copy(Staged(str(sch.get(copy).name_hint), region), fetched, staged)
