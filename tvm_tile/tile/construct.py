"""Roller's construction of rTiles (OSDI'22, section 3.2): scale up, then scale out.

Start from a thread's register tile, enlarge the block tile step by step along the axis that saves
the most traffic (the data-reuse score), keep every tile on the way that fits, split the reduction
among groups of threads or among blocks where the grid leaves multiprocessors idle, and rank by the
model.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.tile_graph import Axis, Operator
from tvm_tile.tile.banks import staged_layouts
from tvm_tile.tile.cost import (
    BlockResources,
    Candidates,
    Floats,
    Ints,
    SharedReads,
    contraction_resources,
    reads_without_conflicts,
    widest_reads,
)
from tvm_tile.tile.rtile import RProgram, RTile, longest_reduce_axis
from tvm_tile.tile.staged_work import contraction_work, staged_seconds, works_of_rows
from tvm_tile.tile.tile import near_ties, ranked
from tvm_tile.tile.time import AMID, Scene

_MAX_ACCUMULATORS = 64
_MAX_UNROLLED = 1024  # multiply-adds of one thread's step, which the kernel unrolls
_MAX_PREFETCHED = 64  # registers of a thread for the next step's operands
_MIN_THREADS = 32
_MAX_THREADS = 512
_GROUPS = (1, 2, 4, 8, 16)
_BLOCKS_OF_PARTS = (1, 2, 3, 4, 6)  # of a multiprocessor, where a sum is split into parts
_MAX_PARTS = 64  # of a sum, which one thread of the second kernel adds
_LEAST_STEPS = 4  # of a part: fewer would mostly start and end
_EXAMINED = 64  # of the best tiles, at least, have their layouts in shared memory examined
# Up to so many times the best one's no difference is to be trusted: then what moves least wins.
_NEAR_TIE = 1.02
_MAX_PADDING = 0.35  # Roller's ε: share of a tile that may lie outside the tensor
_NEAR = 0.05  # of a usual tile: then no other is needed


def construct_contraction(
    operator: Operator,
    device: Device,
    topk: int,
    scene: Scene = AMID,
    *,
    below: float = math.inf,
) -> tuple[RProgram, ...]:
    """The ``topk`` best tiles of a matrix product or convolution, best first.

    The first ones are near ties, by what they move; the others go by predicted time.

    Args:
        operator: the product.
        device: the device that the tiles are made for.
        topk: the most tiles that are wanted.
        scene: where the kernel runs.
        below: seconds; without a tile that could be faster there is none.

    Returns:
        None, too, if nothing fits the device.
    """
    candidates = _candidates(operator, device)
    if not len(candidates.groups):
        return ()
    resources = contraction_resources(device, candidates)
    reads = reads_without_conflicts(device, candidates)
    work = contraction_work(device, candidates, reads, resources)
    seconds = staged_seconds(work, candidates, device, scene)
    # Ties keep the order of construction, so that the choice is the same on every machine.
    order = np.argsort(seconds, kind="stable")[: max(topk, _EXAMINED)]
    # Layouts take a simulated warp to choose: only tiles that may win have theirs examined.
    examined = candidates.rows(order[np.isfinite(seconds[order])])
    resources = contraction_resources(device, examined)
    if not np.any(_at_best(device, examined, resources, scene) < below):
        return ()
    reads = _shared_reads(device, examined, resources.footprint)
    work = contraction_work(device, examined, reads, resources)
    works = enumerate(works_of_rows(work, examined, device))
    told = (replace(_with_resources(examined, resources, row), work=own) for row, own in works)
    programs = ranked(told, device, scene)
    return near_ties(programs, _NEAR_TIE, lambda own: transfer_seconds(own, device))[:topk]


def _at_best(device: Device, tiles: Candidates, resources: BlockResources, scene: Scene) -> Floats:
    """Predicted seconds of tiles if their layouts had the widest loads, and no conflicts."""
    work = contraction_work(device, tiles, widest_reads(device, tiles), resources)
    return staged_seconds(work, tiles, device, scene)


def transfer_seconds(program: RProgram, device: Device) -> float:
    """Seconds in which all blocks' data come to shared memory, and from there to registers.

    Parts of a sum are moved as well, to global memory and back.
    """
    staged = read = 0
    for access in program.operator.reads:
        size = access.tensor.element_size
        staged += access.elements(program.staged) * size
        read += access.elements(program.thread_step) * size * program.block_size
    shared = device.memory(MemoryLevel.SHARED).bandwidth
    step = staged / device.l2_bandwidth + read / shared
    parts = 2 * program.parts * program.operator.write.tensor.size if program.parts > 1 else 0
    return program.grid * program.steps * step + parts / device.l2_bandwidth


def _shared_reads(device: Device, tiles: Candidates, footprint: Ints) -> SharedReads:
    """Cost of the layouts that the kernels will have."""
    columns = np.column_stack((tiles.thread, tiles.block, tiles.groups, footprint))
    # What is loaded ahead, and parts of sums, lie as all else.
    _, first, alike = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    found = np.zeros((4, len(first)), np.int64)
    for place, row in enumerate(first):
        layouts = staged_layouts(_program(tiles, row), int(footprint[row]), device)
        costs = [(o.loads, o.wavefronts, o.padding, o.stores) for o in layouts]
        found[:, place] = np.sum(costs, axis=0)
    return SharedReads(*found[:, alike.ravel()])


def _candidates(operator: Operator, device: Device) -> Candidates:
    """All block tiles on the way up, with each depth of a step and each split among groups."""
    spatial = [axis.name for axis in operator.spatial_axes]
    pairs = {
        (tuple(register[name] for name in spatial), tuple(block[name] for name in spatial))
        for register in _register_tiles(operator)
        for block in _scale_up(operator, register)
    }
    ordered = sorted(pairs)
    shape = (len(ordered), len(spatial))
    thread = np.array([register for register, _ in ordered], np.int64).reshape(shape)
    block = np.array([tile for _, tile in ordered], np.int64).reshape(shape)
    depths = [
        _with_depth(operator, device, thread, block, chunk, groups)
        for chunk in _chunks(operator)
        for groups in _GROUPS
    ]
    plain = Candidates.together(depths)
    return _with_prefetching(_with_parts(device, plain))


def _with_parts(device: Device, whole: Candidates) -> Candidates:
    """Each tile as it is, and where its grid is small, with its longest sum split into parts.

    So many parts that every multiprocessor gets one block, or a few; each has several steps.
    """
    if whole.operator.write.tensor.element_size < 4:
        return whole  # partial sums in global memory would round to half precision
    longest = np.flatnonzero(~whole.is_spatial)[longest_reduce_axis(whole.operator)]
    steps = -(-whole.extents[longest] // whole.block[:, longest])
    found = [whole]
    before = whole.parts
    for blocks in _BLOCKS_OF_PARTS:
        wanted = np.minimum(blocks * device.multi_processor_count // whole.grid, _MAX_PARTS)
        each = np.maximum(-(-steps // np.maximum(wanted, 1)), _LEAST_STEPS)
        parts = -(-steps // each)
        rows = np.flatnonzero((parts > before) & (whole.groups == 1))
        found.append(replace(whole.rows(rows), parts=parts[rows]))
        before = np.maximum(before, parts)
    return Candidates.together(found)


def _with_prefetching(plain: Candidates) -> Candidates:
    """Each tile as it is, and once more with its operands loaded a step ahead."""
    summed = ~plain.is_spatial
    has_steps = np.any(plain.staged[:, summed] < plain.extents[summed], axis=1)
    rows = np.flatnonzero(has_steps & (plain.staged_words <= _MAX_PREFETCHED))
    every = np.concatenate([np.arange(len(plain.groups)), rows])
    both = plain.rows(every)
    return replace(both, prefetched=(np.arange(len(every)) >= len(plain.groups)).astype(np.int64))


def _with_depth(
    operator: Operator,
    device: Device,
    thread: Ints,
    block: Ints,
    chunk: dict[str, int],
    groups: int,
) -> Candidates:
    """The tiles for which this depth of a step and this number of groups make sense."""
    longest = operator.reduce_axes[longest_reduce_axis(operator)]
    columns = np.array([not axis.is_reduce for axis in operator.axes])
    one, whole = np.ones(len(thread), np.int64), np.ones((len(thread), len(columns)), np.int64)
    tiles = Candidates(operator, whole, whole.copy(), groups * one, 0 * one, one)
    tiles.thread[:, columns], tiles.block[:, columns] = thread, block
    tiles.block[:, ~columns] = [chunk[axis.name] for axis in operator.reduce_axes]
    kept = (tiles.threads >= _MIN_THREADS) & (tiles.threads <= _MAX_THREADS)
    kept &= math.prod(chunk.values()) * tiles.accumulators <= _MAX_UNROLLED
    if groups > 1:
        # Groups are for grids too small to fill the device; each needs whole chunks.
        kept &= tiles.grid <= 2 * device.multi_processor_count
        kept &= longest.extent % (chunk[longest.name] * groups) == 0
    return tiles.rows(kept)


def _program(candidates: Candidates, row: int) -> RProgram:
    """Candidate ``row`` as a program without predictions."""
    return RProgram(
        candidates.operator,
        RTile(tuple(int(extent) for extent in candidates.thread[row])),
        RTile(tuple(int(extent) for extent in candidates.block[row])),
        int(candidates.groups[row]),
        bool(candidates.prefetched[row]),
        int(candidates.parts[row]),
    )


def _with_resources(candidates: Candidates, resources: BlockResources, row: int) -> RProgram:
    """Candidate ``row`` as a program with its footprint and registers."""
    return replace(
        _program(candidates, row),
        shared_bytes=int(resources.footprint[row]),
        registers=int(resources.registers[row]),
    )


@functools.cache
def aligned_steps(extent: int) -> tuple[int, ...]:
    """Tile extents worth trying along an axis: divisors and powers of two, padding bounded.

    Where none of these is both of a usual size and near the axis, so are those of two to eight
    equal tiles, rounded up until threads share them evenly.
    """
    steps = {d for d in range(1, min(extent, 512) + 1) if extent % d == 0}
    steps |= {1 << i for i in range(10) if 1 << i <= extent}
    usual = (step for step in steps if step % 8 == 0 and 32 <= step <= 128)
    if not any(_overhang(extent, step) <= _NEAR for step in usual):
        shares = (-(-extent // (8 * tiles)) * 8 for tiles in range(2, 9))
        steps |= {share for share in shares if 32 <= share <= 256}
    return tuple(sorted(step for step in steps if _overhang(extent, step) <= _MAX_PADDING))


def _overhang(extent: int, step: int) -> float:
    """How far tiles of ``step`` overhang an axis, as a share of its ``extent``."""
    return -(-extent // step) * step / extent - 1


def _thread_extents(axis: Axis) -> tuple[int, ...]:
    """Extents of a thread along an axis that are tried."""
    return tuple(step for step in aligned_steps(axis.extent) if step in (1, 2, 4, 7, 8))


def _register_tiles(operator: Operator) -> Iterator[dict[str, int]]:
    """Thread tiles along the last two axes that only one operand has, so that both are reused."""
    inner = operator.write.contiguous_axis
    by_operand = []
    for read in operator.reads:
        only = [
            axis
            for axis in operator.spatial_axes
            if axis.name in read.axes
            and axis.extent > 1
            and not all(axis.name in other.axes for other in operator.reads)
        ]
        by_operand.append(only[-2:])
    base = {axis.name: 1 for axis in operator.spatial_axes}
    candidates = [axis for axes in by_operand for axis in axes]
    if not candidates:
        candidates = [a for a in operator.spatial_axes if a.name == inner]
    choices = [_thread_extents(axis) for axis in candidates]
    # One output a thread wastes shared reads, unless there is too little work to share out.
    least = 4 if operator.outputs >= 1 << 14 else 1
    for extents in itertools.product(*choices):
        if least <= math.prod(extents) <= _MAX_ACCUMULATORS:
            yield base | dict(zip((a.name for a in candidates), extents, strict=True))


def _scale_up(operator: Operator, register: dict[str, int]) -> Iterator[dict[str, int]]:
    """Block tiles along the path of best data reuse, from one thread to the largest block."""
    tile = dict(register)
    while True:
        threads = math.prod(tile[a.name] // register[a.name] for a in operator.spatial_axes)
        if threads > _MAX_THREADS:
            return
        yield dict(tile)
        grown = [
            tile | {axis.name: larger}
            # Of equals the innermost axis grows, along which memory is contiguous.
            for axis in reversed(operator.spatial_axes)
            if (larger := _next_step(axis, tile[axis.name], register[axis.name])) is not None
        ]
        if not grown:
            return
        before, size = _intensity(operator, tile), math.prod(tile.values())
        tile = max(grown, key=lambda t: _reuse(operator, t, before, size))


def _next_step(axis: Axis, current: int, thread: int) -> int | None:
    """The next larger aligned step of an axis that ``thread`` divides; ``None`` behind the last."""
    larger = (s for s in aligned_steps(axis.extent) if s > current and s % thread == 0)
    return next(larger, None)


def _reuse(operator: Operator, tile: dict[str, int], before: float, size: int) -> float:
    """The data-reuse score: operations per byte staged, per growth of the tile.

    ``before`` are the operations per byte of the tile that has grown, ``size`` is its outputs.
    """
    growth = math.prod(tile.values()) / size
    return math.log(_intensity(operator, tile) / before + 1e-9) / math.log(growth)


def _intensity(operator: Operator, tile: dict[str, int]) -> float:
    """Operations per byte staged of a block's tile, for a short step."""
    own = tile | {axis.name: min(axis.extent, 8) for axis in operator.reduce_axes}
    staged = sum(r.elements(own) * r.tensor.element_size for r in operator.reads)
    return math.prod(tile.values()) / staged


def _chunks(operator: Operator) -> Iterator[dict[str, int]]:
    """Reduce extents of one step: short axes (a window) whole, the longest in small pieces.

    A piece that does not divide its axis leaves a last step that is not full; it is tried only
    where no divisor is like it.
    """
    axes = operator.reduce_axes
    longest = axes[longest_reduce_axis(operator)]
    window = {axis.name: max(d for d in range(1, 9) if axis.extent % d == 0) for axis in axes}
    for step in _chunk_steps(longest.extent):
        yield window | {longest.name: step}


def _chunk_steps(extent: int) -> tuple[int, ...]:
    """Lengths of a chunk of the sum that are tried: divisors, and 8 and 16 if none is like them."""
    divisors = [step for step in range(1, 65) if extent % step == 0]
    regular = [step for step in divisors if step in (1, 2, 3, 4, 7, 8, 16, 32) or step >= 16]
    if extent <= 8 or not _USUAL_CHUNKS.isdisjoint(regular):
        return tuple(regular)
    return (*regular, 8, 16)


_USUAL_CHUNKS = frozenset({8, 16, 32})
