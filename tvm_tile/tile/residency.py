"""How many blocks share a multiprocessor, and what each may have of its registers and memory.

A launch gives all threads of a kernel as many registers. A warp-specialised block then moves some
from its producer, which needs few, to its consumers (setmaxnreg), within what it was launched with.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.tile.tile import Tile

Ints = npt.NDArray[np.int64]
_Count = TypeVar("_Count", int, Ints)

_WORD = 4  # bytes of a register
# Of setmaxnreg: it moves registers by eights, and none of a thread that has all it can name.
_UNIT, _MOST = 8, 255
# A producer does with as few as may be kept; alone on its multiprocessor it need not.
_LEAST, _PLENTY, _GIVEN = 24, 40, 232


def occupancy(device: Device, threads: Ints, registers: Ints, shared_bytes: Ints) -> Ints:
    """Blocks resident on one multiprocessor; zero where a block does not fit at all.

    Args:
        device: device whose multiprocessors they are.
        threads: threads of a block, shape (candidates,), as is what follows.
        registers: registers of a thread, rounded as they are given out.
        shared_bytes: bytes of shared memory of a block.
    """
    too_large = (threads > device.max_threads_per_block) | (
        shared_bytes > device.memory(MemoryLevel.SHARED).capacity
    )
    *limits, most = _limits(device, threads, registers, shared_bytes)
    return np.where(too_large, 0, np.minimum(np.minimum.reduce(limits), most))


def fitting_blocks(device: Device, threads: int, registers: int, shared_bytes: int) -> int:
    """:func:`occupancy` of one kernel, for which arrays would take most of the time."""
    if threads > device.max_threads_per_block:
        return 0
    if shared_bytes > device.memory(MemoryLevel.SHARED).capacity:
        return 0
    return min(_limits(device, threads, registers, shared_bytes))


def _limits(
    device: Device, threads: _Count, registers: _Count, shared_bytes: _Count
) -> tuple[_Count, _Count, _Count, int]:
    """How many blocks each resource of a multiprocessor is enough for."""
    rounded = -(-threads // device.warp_size) * device.warp_size
    # The driver may keep none, and a block take none: then any number fits.
    taken = shared_bytes + device.reserved_shared_memory
    return (
        device.max_threads_per_multi_processor // rounded,
        device.registers_per_multi_processor // (registers * rounded),
        device.shared_memory_per_multi_processor // (taken + (taken == 0)),
        device.max_blocks_per_multi_processor,
    )


def resident_blocks(device: Device, tile: Tile) -> int:
    """Blocks of a tile that share a multiprocessor at a time; at least one."""
    return max(1, fitting_blocks(device, tile.block_size, tile.registers, tile.shared_bytes))


def given_blocks(device: Device, tile: Tile) -> int:
    """Blocks that share a multiprocessor, by registers as they are given out; 0 if none fits."""
    given = given_registers(device, tile.registers)
    return fitting_blocks(device, tile.block_size, given, tile.shared_bytes)


def given_registers(device: Device, registers: _Count) -> _Count:
    """Registers that a thread is given which needs ``registers``; a number or an array."""
    return -(-registers // device.register_unit) * device.register_unit


def nameable_registers(device: Device) -> int:
    """Registers that the code of a thread can use at most."""
    return device.memory(MemoryLevel.REGISTER).capacity // _WORD


def shared_capacity(device: Device, blocks: int) -> int:
    """Bytes of shared memory for each of ``blocks`` blocks; the driver keeps some of each."""
    most = device.memory(MemoryLevel.SHARED).capacity
    return min(
        most, device.shared_memory_per_multi_processor // blocks - device.reserved_shared_memory
    )


def launched_registers(device: Device, blocks: int, threads: int) -> int:
    """Registers of a thread where ``blocks`` blocks of ``threads`` fit; 0 where none do."""
    if blocks * threads > device.max_threads_per_multi_processor:
        return 0
    each = device.registers_per_multi_processor // (blocks * threads)
    return min(each // device.register_unit * device.register_unit, nameable_registers(device))


def divide_registers(launched: int, blocks: int, consumers: int) -> tuple[int, int] | None:
    """Registers of a producer's and a consumer's thread once the producer has given some away.

    Args:
        launched: registers of every thread at first.
        blocks: blocks that share the multiprocessor.
        consumers: warpgroups that take what one more gives.

    Returns:
        ``None`` where nothing is to be given, or needed.
    """
    producer = _PLENTY if blocks == 1 else _LEAST
    if not producer < launched < _MOST:
        return None
    each = launched + (launched - producer) // consumers
    return producer, min(each // _UNIT * _UNIT, _GIVEN)
