"""Tiles for sliding windows staged in shared memory: pooling, depthwise convolution.

An input element meets a few outputs only, so a kernel lives from moving it once and cheaply. A
block stages all that its outputs read; its threads run along the output's contiguous axis, so that
they store together, and each computes a strip of outputs along the other axes that slide, keeping
in registers what their windows share.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.tile_graph import Access, Axis, Operator, Tensor
from tvm_tile.tile.banks import staged_layouts
from tvm_tile.tile.construct import is_aligned
from tvm_tile.tile.cost import SCHEDULERS, SECTOR, clock, occupancy
from tvm_tile.tile.rtile import RProgram, RTile, TileCost, TilePlan
from tvm_tile.tile.staging import copy_rounds, run_dimension

_MAX_WINDOW = 128  # points of a sum that one thread adds up alone
_STRIPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 16)
_MAX_UNROLLED = 1024  # operations of one thread, which the kernel unrolls
_THREADS = (64, 512)
_LANES = 256  # of a block along the contiguous axis, at most
_EXAMINED = 32  # of the best tiles have their wavefronts in shared memory counted

# Counted in the machine code of such kernels.
_COPY_SLOTS = 9.0  # issue slots of a round: read, choose, store, and the next place
_STORE_SLOTS = 3.0  # of one output's store, its test included
_START_SLOTS = 60.0  # of a thread: its places in the grid and the tile
_REGISTERS_BESIDES = 32
# Not fitted to such kernels yet: what products once took.
_ISSUE_EFFICIENCY = 0.767
_CACHE_SHARE = 0.42
_BLOCK_LATENCY = 2600.0  # cycles: a block's start, a round trip to memory, its barrier, its stores
_BATCH_LATENCY = 900.0  # and each further batch of staging loads
_LOADS_IN_FLIGHT = 16


def is_staged_window(operator: Operator) -> bool:
    """Whether one thread can sum a window, and staging is of use to its neighbours.

    It is where windows overlap, or lie along the contiguous axis of the largest operand, so that
    neighbouring threads would not read neighbours.
    """
    reduce = {axis.name for axis in operator.reduce_axes if axis.extent > 1}
    depth = math.prod(axis.extent for axis in operator.reduce_axes)
    if not reduce or not operator.reads or depth > _MAX_WINDOW:
        return False
    if not all(read.is_exact for read in operator.reads):
        return False
    largest = max(operator.reads, key=lambda read: read.tensor.size)
    return bool(_sliding(operator)) or not reduce.isdisjoint(largest.contiguous_axes)


def construct_staged_window(operator: Operator, device: Device, topk: int) -> tuple[TilePlan, ...]:
    """The ``topk`` best tiles, best first.

    Empty if nothing fits the device, or if sums that do not overlap are so few that their elements
    had better be shared among threads.
    """
    outputs = math.prod(axis.extent for axis in operator.spatial_axes)
    if not _sliding(operator) and outputs < device.multi_processor_count * device.warp_size:
        return ()
    plans = [_plan(operator, block, thread, device) for block, thread in _tiles(operator)]
    fitting = sorted(
        (plan for plan in plans if math.isfinite(plan.cost.seconds)),
        key=lambda plan: plan.cost.seconds,
    )
    examined = [_with_wavefronts(plan, device) for plan in fitting[: max(topk, _EXAMINED)]]
    return tuple(sorted(examined, key=lambda plan: plan.cost.seconds)[:topk])


def _sliding(operator: Operator) -> list[Axis]:
    """Spatial axes that move a window: they share an index with a summed one."""
    reduce = {axis.name for axis in operator.reduce_axes if axis.extent > 1}
    moved = {
        name
        for read in operator.reads
        for index in read.indices
        for name, _ in index.terms
        if any(other in reduce for other, _ in index.terms)
    }
    return [axis for axis in operator.spatial_axes if axis.name in moved and axis.extent > 1]


def _tiles(operator: Operator) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """Block and thread tiles: lanes, strips, and as many planes as make a block."""
    spatial = [axis for axis in operator.spatial_axes if axis.extent > 1]
    base = {axis.name: 1 for axis in operator.spatial_axes}
    lane = operator.write.contiguous_axis
    lanes = [axis for axis in spatial if axis.name == lane]
    strips = [axis for axis in _sliding(operator) if axis.name != lane][-2:]
    planes = [axis for axis in spatial if axis not in lanes and axis not in strips][::-1]
    depth = math.prod(axis.extent for axis in operator.reduce_axes)
    for strip in itertools.product(*(_strip_extents(axis) for axis in strips)):
        if math.prod(strip) * depth > _MAX_UNROLLED and math.prod(strip) > 1:
            continue
        thread = base | dict(zip((axis.name for axis in strips), strip, strict=True))
        choices = [_lane_extents(axis) for axis in lanes]
        choices += [
            _counts(-(-axis.extent // own)) for axis, own in zip(strips, strip, strict=True)
        ]
        for counts in itertools.product(*choices):
            if math.prod(counts) > _THREADS[1]:
                continue
            block = dict(thread)
            for axis, count in zip((*lanes, *strips), counts, strict=True):
                block[axis.name] *= count
            yield from ((tile, thread) for tile in _with_planes(block, planes, math.prod(counts)))


def _with_planes(
    block: dict[str, int], planes: list[Axis], threads: int
) -> Iterator[dict[str, int]]:
    """The block tile over more and more planes, the innermost ones first."""
    tile = dict(block)
    while True:
        grown = next((axis for axis in planes if _can_double(axis, tile[axis.name])), None)
        if threads >= _THREADS[0] or grown is None:
            yield dict(tile)
        if grown is None or 2 * threads > _THREADS[1]:
            return
        tile[grown.name] *= 2
        threads *= 2


def _can_double(axis: Axis, current: int) -> bool:
    return 2 * current <= axis.extent and is_aligned(axis.extent, 2 * current)


def _strip_extents(axis: Axis) -> tuple[int, ...]:
    return tuple(s for s in _STRIPS if s <= axis.extent and is_aligned(axis.extent, s))


def _lane_extents(axis: Axis) -> tuple[int, ...]:
    pieces = {-(-axis.extent // n) for n in (1, 2, 3, 4)} | {32, 64, 128}
    return tuple(sorted(p for p in pieces if p <= min(axis.extent, _LANES)))


def _counts(strips: int) -> tuple[int, ...]:
    """How many strips of an axis a block may take: about equal shares of them."""
    return tuple(sorted({-(-strips // n) for n in range(1, min(strips, 16) + 1)}))


def _plan(
    operator: Operator, block: dict[str, int], thread: dict[str, int], device: Device
) -> TilePlan:
    reduce = {axis.name: axis.extent for axis in operator.reduce_axes}
    names = [axis.name for axis in operator.axes]
    one = dict.fromkeys(reduce, 1)
    program = RProgram(
        operator,
        RTile(tuple((thread | one)[name] for name in names)),
        RTile(tuple((block | reduce)[name] for name in names)),
    )
    return TilePlan(program, program.grid_size, program.block_size, _cost(program, device, None))


def _with_wavefronts(plan: TilePlan, device: Device) -> TilePlan:
    layouts = staged_layouts(plan.program, plan.cost.footprint, device)
    wavefronts = sum(layout.wavefronts for layout in layouts)
    return replace(plan, cost=_cost(plan.program, device, wavefronts))


def _cost(program: RProgram, device: Device, wavefronts: int | None) -> TileCost:
    """The slowest of memory, the second-level cache, issue, shared memory and latency."""
    operator, grid = program.operator, program.grid_size
    staged = {read.tensor: read.region(program.staged) for read in operator.reads}
    footprint = sum(math.prod(r) * tensor.element_size for tensor, r in staged.items())
    outputs = math.prod(thread for _, thread in program.spatial)
    reads = sum(read.elements(program.thread_step) for read in operator.reads)
    registers = min(255, outputs + min(reads, 64) + _REGISTERS_BESIDES)
    resident = _resident(program.block_size, registers, footprint, device)
    if not resident:
        return TileCost(0.0, footprint, registers, 0.0, math.inf)

    rounds = sum(_rounds(read, program) for read in operator.reads)
    depth = math.prod(axis.extent for axis in operator.reduce_axes)
    slots = outputs * (depth + _STORE_SLOTS) + reads + rounds * _COPY_SLOTS + _START_SLOTS
    warps = -(-program.block_size // device.warp_size)
    if wavefronts is None:
        wavefronts = warps * (reads + rounds)
    issue = warps * slots / SCHEDULERS / _ISSUE_EFFICIENCY
    batches = -(-rounds // _LOADS_IN_FLIGHT) - 1
    alone = _BLOCK_LATENCY + batches * _BATCH_LATENCY + slots / _ISSUE_EFFICIENCY
    blocks = -(-grid // device.multi_processor_count)
    together = min(resident, blocks)
    cycles = max(blocks * max(issue, wavefronts), -(-blocks // together) * alone)

    traffic = float(operator.traffic)
    out = operator.write.tensor
    moved = sum(_sector_bytes(region, tensor) for tensor, region in staged.items())
    moved += _sector_bytes(operator.write.region(program.staged), out)
    # The last blocks run while the others are done: half a block's time is lost.
    seconds = max(
        cycles / clock(device),
        traffic / device.memory(MemoryLevel.GLOBAL).bandwidth,
        grid * moved / (device.l2_bandwidth * _CACHE_SHARE),
    )
    seconds += 0.5 * max(alone, issue * together) / clock(device)
    waves = grid / (resident * device.multi_processor_count)
    return TileCost(traffic, footprint, registers, waves, seconds + device.launch_latency)


def _resident(threads: int, registers: int, footprint: int, device: Device) -> int:
    columns = [np.array([value], np.int64) for value in (threads, registers, footprint)]
    return int(occupancy(device, *columns)[0])


def _sector_bytes(region: tuple[int, ...], tensor: Tensor) -> float:
    """Bytes that caches move for a tile: each run begins and ends within a sector, on average."""
    runs = math.prod(region[: run_dimension(region, tensor.shape)])
    return math.prod(region) * tensor.element_size + runs * (SECTOR - tensor.element_size)


def _rounds(read: Access, program: RProgram) -> int:
    """Rounds of the copy: of vectors, where whole runs of memory are staged."""
    region, tensor = read.region(program.staged), read.tensor
    if read.is_computed:
        return copy_rounds(region, program.block_size)
    first = run_dimension(region, tensor.shape)
    run, stride = math.prod(region[first:]), math.prod(tensor.shape[first:])
    vector = math.gcd(run, stride, VECTOR_BYTES // tensor.element_size)
    return copy_rounds((*region[:first], run // vector), program.block_size)
