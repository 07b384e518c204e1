"""Rank tiles by an analytic model of the device (Roller's micro-performance model, section 3.3).

A block repeats one step: stage a chunk of each operand in shared memory, wait, multiply-add from
shared memory into registers. Instruction issue (of all resident blocks, or of one block alone) or
second-level cache traffic bounds a step; what latency the resident blocks cannot hide comes on
top. Waves of blocks then follow one another.

Candidates are rows of integer arrays, so that thousands are ranked in a few milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.tile.rtile import longest_reduce_axis

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Fitted on an H200 to some 700 measured tiles of 23 operators (bench/candidates.py), in cycles of
# `clock`. What a device record can say, it says; these are about compiled code.
_EXPOSED_LATENCY = 337.0  # of a step's loads and barriers, shared by the resident blocks
_EPILOGUE_CYCLES = 3950.0  # start of a kernel, its first loads, last barrier, stores
_ISSUE_EFFICIENCY = 0.767
_SHARED_READ_COST = 1.1  # issue slots of one shared read, its address included
_COPY_COST = 23.2  # issue slots of one staging load and store, with their addresses
_ODD_EXTENT_COST = 0.73  # more of these for each extent that needs a real division
_COPY_STALL = 0.86  # a staging load's wait, where few warps are resident
_SINGLE_WARP_STALL = 0.76  # stalls, as a share of a step's time, when one warp is resident
_CACHE_SHARE = 0.42  # of the second-level cache's read bandwidth that staging loads reach
_SCHEDULERS = 4  # warp schedulers of a multiprocessor
_BLOCKS_PER_MULTI_PROCESSOR = 32
_SECTOR = 32  # bytes a cache moves at once
_REGISTERS_BESIDES = 28  # addresses and loop state


@dataclass(frozen=True, slots=True)
class Candidates:
    """Tiles to rank, one a row.

    Attributes:
        thread: extents of a thread's tile, shape (candidates, axes); one on reduce axes.
        block: extents of a block's tile; on reduce axes, of one group's chunk.
        groups: groups of threads that share the reduction, shape (candidates,).
    """

    thread: Ints
    block: Ints
    groups: Ints


@dataclass(frozen=True, slots=True)
class Costs:
    """The model's prediction for each candidate; ``seconds`` is infinite where none fits."""

    seconds: Floats
    footprint: Ints
    registers: Ints
    waves: Floats
    traffic: Floats


def clock(device: Device) -> float:
    """Steps of 128 multiply-adds on a multiprocessor per second: cycles, where it has 128 lanes."""
    return device.flops("float32") / (device.multi_processor_count * 2 * 128)


def occupancy(device: Device, threads: Ints, registers: Ints, shared_bytes: Ints) -> Ints:
    """Blocks resident on one multiprocessor; zero where a block does not fit at all."""
    rounded = -(-threads // device.warp_size) * device.warp_size
    resident = np.minimum(
        device.max_threads_per_multi_processor // rounded,
        device.registers_per_multi_processor // (registers * rounded),
    )
    # The runtime keeps one KiB of shared memory a block for itself.
    by_shared = device.shared_memory_per_multi_processor // (shared_bytes + 1024)
    resident = np.minimum(np.minimum(resident, by_shared), _BLOCKS_PER_MULTI_PROCESSOR)
    too_large = (threads > device.max_threads_per_block) | (
        shared_bytes > device.memory(MemoryLevel.SHARED).capacity
    )
    return np.where(too_large, 0, resident)


def elements(access: Access, operator: Operator, tiles: Ints) -> Ints:
    """Elements of ``access`` that each tile touches, shape (candidates,)."""
    return np.prod(np.stack(_spans(access, operator, tiles)), axis=0)


def _spans(access: Access, operator: Operator, tiles: Ints) -> list[Ints]:
    column = {axis.name: i for i, axis in enumerate(operator.axes)}
    spans = []
    for index, extent in zip(access.indices, access.tensor.shape, strict=True):
        span = np.ones(len(tiles), np.int64)
        for axis, coefficient in index.terms:
            span = span + abs(coefficient) * (tiles[:, column[axis]] - 1)
        spans.append(np.minimum(span, extent))
    return spans or [np.ones(len(tiles), np.int64)]


def coalescing(access: Access, operator: Operator, tiles: Ints) -> Floats:
    """Bytes moved per byte used when tiles of ``access`` cross global memory, at least one."""
    run = np.ones(len(tiles), np.int64)
    full = np.ones(len(tiles), bool)
    spans = _spans(access, operator, tiles)
    for span, extent in zip(reversed(spans), reversed(access.tensor.shape), strict=False):
        run = np.where(full, run * span, run)
        full = full & (span == extent)
    used = run * access.tensor.element_size
    return np.asarray(-(-used // _SECTOR) * _SECTOR / used, np.float64)


def vector_elements(access: Access, operator: Operator, tiles: Ints) -> Ints:
    """Elements a thread can move at once when tiles of ``access`` are staged."""
    if access.is_computed:
        return np.ones(len(tiles), np.int64)
    run = np.ones(len(tiles), np.int64)
    stride = np.ones(len(tiles), np.int64)
    full = np.ones(len(tiles), bool)
    spans = _spans(access, operator, tiles)
    for span, extent in zip(reversed(spans), reversed(access.tensor.shape), strict=False):
        run = np.where(full, run * span, run)
        stride = np.where(full, stride * extent, stride)
        full = full & (span == extent)
    return np.gcd(np.gcd(run, stride), max(1, VECTOR_BYTES // access.tensor.element_size))


def contraction_costs(operator: Operator, device: Device, tiles: Candidates) -> Costs:
    """Predict each candidate for a matrix product or convolution staged in shared memory."""
    spatial = np.array([not axis.is_reduce for axis in operator.axes])
    extent = np.array([axis.extent for axis in operator.axes])
    shared_axis = int(np.flatnonzero(~spatial)[longest_reduce_axis(operator)])
    staged = tiles.block.copy()
    staged[:, shared_axis] *= tiles.groups
    outputs = np.prod(tiles.block[:, spatial], axis=1)
    accumulators = np.prod(tiles.thread[:, spatial], axis=1)
    threads = tiles.groups * (outputs // accumulators)
    grid = np.prod(-(-extent[spatial] // tiles.block[:, spatial]), axis=1)
    steps = np.prod(-(-extent[~spatial] // staged[:, ~spatial]), axis=1)

    # Partial sums of the groups, and their total on its way to global memory.
    footprint = np.where(tiles.groups > 1, outputs * (tiles.groups + 1) * 4, 0)
    for read in operator.reads:
        footprint = footprint + elements(read, operator, staged) * read.tensor.element_size
    point = sum(elements(read, operator, tiles.thread) for read in operator.reads)
    registers = np.minimum(255, accumulators + 2 * point + _REGISTERS_BESIDES)
    occupied = occupancy(device, threads, registers, footprint)

    step = _StepModel(operator, device, tiles, staged, threads, accumulators)
    slots = np.maximum(1, device.multi_processor_count * occupied)
    full, rest = grid // slots, grid % slots
    cycles = _EPILOGUE_CYCLES + full * steps * step.cycles(occupied)
    cycles = cycles + np.where(
        rest > 0, steps * step.cycles(-(-rest // device.multi_processor_count)), 0
    )

    written = operator.write.tensor.size * coalescing(operator.write, operator, tiles.block)
    traffic = operator.traffic - operator.write.tensor.size + written
    memory_seconds = traffic / device.memory(MemoryLevel.GLOBAL).bandwidth
    seconds = np.maximum(cycles / clock(device), memory_seconds) + device.launch_latency
    return Costs(
        seconds=np.where(occupied > 0, seconds, np.inf),
        footprint=footprint,
        registers=registers,
        waves=grid / slots,
        traffic=traffic,
    )


class _StepModel:
    """Cycles of one barrier-to-barrier step, given how many blocks share a multiprocessor."""

    def __init__(
        self,
        operator: Operator,
        device: Device,
        tiles: Candidates,
        staged: Ints,
        threads: Ints,
        accumulators: Ints,
    ) -> None:
        reduce = np.array([axis.is_reduce for axis in operator.axes])
        chunk = np.where(reduce, tiles.block, tiles.thread)
        depth = np.prod(tiles.block[:, reduce], axis=1)
        self.warps = -(-threads // device.warp_size)
        self.shared_reads = sum(elements(read, operator, chunk) for read in operator.reads)
        work = accumulators * depth + self.shared_reads * _SHARED_READ_COST
        self.instructions = work / _ISSUE_EFFICIENCY
        self.copies: Floats = np.zeros(len(threads))
        self.fetched: Floats = np.zeros(len(threads))
        for read in operator.reads:
            count = elements(read, operator, staged)
            spans = np.stack(_spans(read, operator, staged))
            odd = np.sum(spans & (spans - 1) != 0, axis=0)
            loads = count / vector_elements(read, operator, staged) / device.warp_size
            self.copies += loads * _COPY_COST * (1 + _ODD_EXTENT_COST * odd)
            waste = coalescing(read, operator, staged)
            self.fetched += count * read.tensor.element_size * waste
        cache = device.l2_bandwidth * _CACHE_SHARE
        self.bytes_per_cycle = cache / device.multi_processor_count / clock(device)

    def cycles(self, resident: Ints) -> Floats:
        """The slower of issue and cache traffic, stretched by stalls; then exposed latency."""
        present = np.maximum(1, resident)
        active = present * self.warps
        together = present * (self.warps * self.instructions + self.copies)
        together = together / np.clip(active, 1, _SCHEDULERS)
        alone = np.maximum(1.0, self.warps / _SCHEDULERS) * self.instructions
        alone = alone + self.copies / np.clip(self.warps, 1, _SCHEDULERS)
        busy = np.maximum(together, alone) * (1 + _SINGLE_WARP_STALL / active)
        traffic = present * self.fetched / self.bytes_per_cycle
        exposed = _EXPOSED_LATENCY / present + _COPY_STALL * self.copies / active
        return np.asarray(np.maximum(busy, traffic) + exposed)
