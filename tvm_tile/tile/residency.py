"""How many blocks share a multiprocessor, and what each may have of its registers and memory.

A launch gives all threads of a kernel as many registers. A warp-specialised block then moves some
from its producer, which needs few, to its consumers (setmaxnreg), within what it was launched with.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvm_tile.device.device import Device, MemoryLevel

Ints = npt.NDArray[np.int64]

_RESERVED = 1024  # bytes of shared memory that each block costs besides its own
_MOST_BLOCKS = 32  # of a multiprocessor
_UNIT, _MOST = 8, 255  # registers are given out by eights; a thread can name 255
# A producer does with as few as may be kept; alone on its multiprocessor it need not.
_LEAST, _PLENTY, _GIVEN = 24, 40, 232


def occupancy(device: Device, threads: Ints, registers: Ints, shared_bytes: Ints) -> Ints:
    """Blocks resident on one multiprocessor; zero where a block does not fit at all.

    Args:
        device: whose multiprocessors they are.
        threads: of a block, shape (candidates,), as is what follows.
        registers: of a thread, as they are given out.
        shared_bytes: of a block.
    """
    rounded = -(-threads // device.warp_size) * device.warp_size
    resident = np.minimum(
        device.max_threads_per_multi_processor // rounded,
        device.registers_per_multi_processor // (registers * rounded),
    )
    by_shared = device.shared_memory_per_multi_processor // (shared_bytes + _RESERVED)
    resident = np.minimum(np.minimum(resident, by_shared), _MOST_BLOCKS)
    too_large = (threads > device.max_threads_per_block) | (
        shared_bytes > device.memory(MemoryLevel.SHARED).capacity
    )
    return np.where(too_large, 0, resident)


def fitting_blocks(device: Device, threads: int, registers: int, shared_bytes: int) -> int:
    """:func:`occupancy` of one kernel."""
    sizes = (np.array([size], np.int64) for size in (threads, registers, shared_bytes))
    return int(occupancy(device, *sizes)[0])


def resident_blocks(device: Device, shared_bytes: int, registers: int, threads: int) -> int:
    """Blocks that share a multiprocessor at a time; at least one."""
    return max(1, fitting_blocks(device, threads, registers, shared_bytes))


def given_registers(registers: int) -> int:
    """What a thread is given that needs so many."""
    return -(-registers // _UNIT) * _UNIT


def shared_capacity(device: Device, blocks: int) -> int:
    """Bytes of shared memory for each of so many blocks; the driver keeps some of each's."""
    most = device.memory(MemoryLevel.SHARED).capacity
    return min(most, device.shared_memory_per_multi_processor // blocks - _RESERVED)


def launched_registers(device: Device, blocks: int, threads: int) -> int:
    """Registers of a thread where so many blocks of so many threads fit; 0 where none do."""
    if blocks * threads > device.max_threads_per_multi_processor:
        return 0
    each = device.registers_per_multi_processor // (blocks * threads)
    return min(each // _UNIT * _UNIT, _MOST)


def divide_registers(launched: int, blocks: int, consumers: int) -> tuple[int, int] | None:
    """What a producer's and a consumer's thread have after one warpgroup has given to the others.

    Args:
        launched: registers of every thread at first.
        blocks: that share the multiprocessor.
        consumers: warpgroups that take what one more gives.

    Returns:
        ``None`` where nothing is to be given, or needed.
    """
    producer = _PLENTY if blocks == 1 else _LEAST
    if not producer < launched < _MOST:
        return None
    each = launched + (launched - producer) // consumers
    return producer, min(each // _UNIT * _UNIT, _GIVEN)
