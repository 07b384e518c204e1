"""What each of the blocks that share a multiprocessor may have of its registers and memory.

A launch gives all threads of a kernel as many registers. A warp-specialised block then moves some
from its producer, which needs few, to its consumers (setmaxnreg), within what it was launched with.
"""

from __future__ import annotations

from tvm_tile.device.device import Device, MemoryLevel

_UNIT, _MOST = 8, 255  # registers are given out by eights; a thread can name 255
# A producer does with as few as may be kept; alone on its multiprocessor it need not.
_LEAST, _PLENTY, _GIVEN = 24, 40, 232


def resident_blocks(device: Device, shared_bytes: int, registers: int, threads: int) -> int:
    """Blocks that share a multiprocessor at a time; at least one.

    Args:
        device: whose multiprocessors they are.
        shared_bytes: of a block.
        registers: of a thread.
        threads: of a block.
    """
    whole = device.shared_memory_per_multi_processor
    kept = whole - device.memory(MemoryLevel.SHARED).capacity  # of each block's, by the driver
    return max(
        1,
        min(
            whole // max(1, shared_bytes + kept),
            device.registers_per_multi_processor // (registers * threads),
            device.max_threads_per_multi_processor // threads,
        ),
    )


def shared_capacity(device: Device, blocks: int) -> int:
    """Bytes of shared memory for each of so many blocks; the driver keeps some of each's."""
    most = device.memory(MemoryLevel.SHARED).capacity
    kept = device.shared_memory_per_multi_processor - most
    return min(most, device.shared_memory_per_multi_processor // blocks - kept)


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
