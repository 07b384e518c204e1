"""Tiles for reductions without reuse: how many threads share one sum, and how many sums a block."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import AffineIndex, Operator
from tvm_tile.tile.powers import power_of_two
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.rows.reduce_work import ReduceTile, work_of
from tvm_tile.tile.rows.walk import vector_of_sum
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, Scene

_SHORT = 4  # points of a sum whose thread would have too few loads in flight
_SHARE = 6  # points of a row that are worth a thread, where there are rows enough
_LEAST_LANES = 4  # of a row: together they read a sector or so
_REGISTERS_BESIDES = 6  # of a thread
_OF_A_SUM = 7  # of a window's, with loads in flight
_LEAST_PART = 4  # points of a thread that are worth a second kernel


def _registers(tile: ReduceTile, device: Device) -> int:
    """Registers of a thread: its sums or its vector, and what it reads ahead."""
    own = 2 * min(tile.vector, VECTOR_BYTES // 4)
    if tile.form == "window":
        own = _OF_A_SUM * tile.outputs_per_thread
    return max(register_use(device).least, _REGISTERS_BESIDES + own)


def construct_window(
    operator: Operator, device: Device, scene: Scene = AMID, after: Operator | None = None
) -> tuple[ReduceTile, ...]:
    """One thread a sum, or a few neighbouring sums where they share loads and threads abound.

    Tiles vary the sums of a thread and the threads of a block; the best one comes first.
    ``scene`` is where the kernel runs, ``after`` what is made of the sums before it is stored.
    """
    outputs, depth = operator.outputs, operator.depth
    last = [axis for axis in operator.spatial_axes if axis.extent > 1][-1:]
    per_thread = 1
    if last and depth > 1:
        # Enough threads to fill half of the device must remain.
        wanted = device.multi_processor_count * device.max_threads_per_multi_processor // 4
        fits = [n for n in (4, 2) if last[0].extent % n == 0 and outputs // n >= wanted]
        per_thread = fits[0] if fits else 1
    threads = 128 if outputs // per_thread >= 128 * device.multi_processor_count else 64
    laps = _laps(outputs, threads, device) if per_thread == 1 and depth <= _SHORT else 1
    best = ReduceTile("window", outputs, threads * per_thread * laps, per_thread, 1, laps)
    others = [
        replace(best, outputs_per_block=t * n, outputs_per_thread=n, laps=1)
        for n in (1, 2, 4)
        for t in (64, 128, 256)
        if not last or last[0].extent % n == 0
    ]
    tiles = (best, *(tile for tile in others if tile != best))
    return ranked((_told(tile, operator, device, after) for tile in tiles), device, scene)


def _laps(outputs: int, threads: int, device: Device) -> int:
    """Results of a thread that are not neighbours, so that it has several loads in flight.

    Only whole laps: a test for the end in each would keep the loads apart.
    """
    wanted = device.multi_processor_count * device.max_threads_per_multi_processor
    return next((n for n in (4, 2) if outputs % (n * threads) == 0 and outputs // n >= wanted), 1)


def construct_reduction(
    operator: Operator, device: Device, scene: Scene = AMID, after: Operator | None = None
) -> tuple[ReduceTile, ...]:
    """Threads across the reduction where its elements are neighbours, else across the outputs.

    Tiles have more or fewer threads an output; the best one comes first. ``scene`` is where the
    kernel runs, ``after`` what is made of the sums before it is stored.
    """
    told = _in_parts(_sharing(operator, device), operator, device, scene, after)
    columns = by_columns(operator)
    if columns is None or columns.outputs < device.warp_size:
        return told
    neighbours = columns.outputs // operator.outputs
    tiles = [replace(tile, neighbours=neighbours) for tile in _columns(columns, device)]
    own = _in_parts(tiles, columns, device, scene, after, operator)
    return ranked((*told, *(tile for tile in own if tile.parts > 1)), device, scene)


def by_columns(operator: Operator) -> Operator | None:
    """A sum over channels of a group and places of an image as sums over places, of each channel.

    before: ``sum[g] += X[y, x, g * 8 + c]`` over ``c, y, x``
    after:  ``sum[g, c] += X[y, x, g * 8 + c]`` over ``y, x``

    Neighbouring threads read neighbours so, where the elements of one sum are few and far between.

    Returns:
        ``None`` where the neighbours in memory are not summed, or are all that is, or no other sum
        goes on where they end.
    """
    largest = max(operator.reads, key=lambda read: read.tensor.size)
    summed = [axis for axis in operator.reduce_axes if axis.extent > 1]
    inner = next((axis for axis in summed if axis.name == largest.contiguous_axis), None)
    if inner is None or len(summed) == 1:
        return None
    others = (axis.name for axis in operator.spatial_axes if axis.extent > 1)
    if all(largest.strides.get(name) != inner.extent for name in others):
        return None
    own, write = replace(inner, is_reduce=False), operator.write
    tensor = replace(write.tensor, shape=(*write.tensor.shape, inner.extent))
    return replace(
        operator,
        axes=(*operator.spatial_axes, own, *(a for a in operator.reduce_axes if a != inner)),
        write=replace(
            write, tensor=tensor, indices=(*write.indices, AffineIndex(((inner.name, 1),)))
        ),
    )


def _sharing(operator: Operator, device: Device) -> list[ReduceTile]:
    """Tiles whose threads share sums, by where neighbours in memory belong."""
    outputs, depth = operator.outputs, operator.depth
    contiguous = max(operator.reads, key=lambda read: read.tensor.size).contiguous_axis
    spatial = {axis.name for axis in operator.spatial_axes if axis.extent > 1}
    if contiguous in spatial and outputs >= device.warp_size:
        return _columns(operator, device)
    resident = device.multi_processor_count * device.max_threads_per_multi_processor // 2
    # Several short rows share a warp: each thread has loads in flight, and few partial sums meet.
    vector = vector_of_sum(operator)
    loads = depth // vector
    lanes = min(
        device.warp_size, max(_LEAST_LANES, power_of_two(loads // max(2, _SHARE // vector)))
    )
    wanted = max(lanes, resident // max(1, outputs))
    parts = max(lanes, power_of_two(min(wanted, max(1, loads // 2), device.max_threads_per_block)))
    return [
        ReduceTile(
            *("row", outputs, _rows_of_a_block(outputs, threads, device), 1, threads), vector=vector
        )
        for threads in _around(parts, _LEAST_LANES, device.max_threads_per_block)
    ]


def _columns(operator: Operator, device: Device) -> list[ReduceTile]:
    """Tiles whose neighbouring threads have neighbouring outputs."""
    across, outputs = device.warp_size, operator.outputs
    resident = device.multi_processor_count * device.max_threads_per_multi_processor // 2
    most = device.max_threads_per_block // across
    parts = power_of_two(min(max(1, resident // outputs), max(1, operator.depth // 4), most))
    return [
        ReduceTile("column", outputs, across, 1, threads) for threads in _around(parts, 1, most)
    ]


def _in_parts(
    tiles: Sequence[ReduceTile],
    operator: Operator,
    device: Device,
    scene: Scene,
    after: Operator | None,
    whole: Operator | None = None,
) -> tuple[ReduceTile, ...]:
    """The tiles, and each with its sums split over as many blocks as is best, best first.

    ``whole`` is what is to be summed, where ``operator`` has neighbours as sums of their own.
    """
    own = device, after, whole or operator
    told, depth = [_told(tile, operator, *own) for tile in tiles], operator.depth
    for tile in tiles:
        numbers = [
            n
            for n in range(2, 2 * device.multi_processor_count)
            if depth % n == 0 and depth >= n * tile.threads_per_output * _LEAST_PART
        ]
        split = (replace(tile, parts=n, vector=math.gcd(tile.vector, depth // n)) for n in numbers)
        told += ranked((_told(part, operator, *own) for part in split), device, scene, 1)
    return ranked(told, device, scene)


def _told(
    tile: ReduceTile,
    operator: Operator,
    device: Device,
    after: Operator | None,
    whole: Operator | None = None,
) -> ReduceTile:
    """A tile with its registers and what its kernels do."""
    tile = replace(tile, registers=_registers(tile, device))
    return replace(tile, work=work_of(tile, operator, device, after, whole))


def _rows_of_a_block(outputs: int, threads: int, device: Device) -> int:
    """Rows of a block, so that warps are whole and all multiprocessors have work."""
    whole_warps = device.warp_size // threads
    return power_of_two(
        max(1, whole_warps, min(256 // threads, outputs // device.multi_processor_count))
    )


def _around(best: int, least: int, most: int) -> list[int]:
    """``best`` and its multiples by powers of two, the nearest first."""
    factors = (1, 2, 0.5, 4, 0.25, 8, 0.125)
    return [int(best * f) for f in factors if least <= best * f <= most and best * f >= 1]
