"""Shared memory that blocks ask for so that a kernel which starts early lies evenly.

A kernel that starts while the one before it runs finds some multiprocessors idle and others full.
Its blocks would all go to the idle ones, several on one, and share what these can do, though each
could have had a multiprocessor of its own a moment later. Blocks that ask for so much shared memory
that no more of them fit on a multiprocessor than an even share wait for their place instead.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import STATIC_SHARED_LIMIT, Device, MemoryLevel
from tvm_tile.tile.residency import fitting_blocks

_UNIT = 128  # bytes in which a block gets shared memory


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks that a kernel is launched with.

    Attributes:
        count: blocks of the launch.
        threads: threads of a block.
        declared: bytes of shared memory that the kernel's text declares.
        given: bytes that each gets at the launch.
    """

    count: int
    threads: int
    declared: int = 0
    given: int = 0


def spread_bytes(blocks: Blocks, device: Device) -> int:
    """Bytes of shared memory to give each block, so that a multiprocessor holds an even share.

    They are as many as before where more than a half of the blocks that a multiprocessor holds are
    an even share: then those that lie uneven lose little, and the cache of the first level, which
    is of the same memory, would lose more.
    """
    share = -(-blocks.count // device.multi_processor_count)
    held = fitting_blocks(device, blocks.threads, 1, blocks.declared + blocks.given)
    if 2 * share > held:
        return blocks.given
    beyond = device.shared_memory_per_multi_processor // (share + 1) + 1  # of share + 1, each
    least = beyond - device.reserved_shared_memory - blocks.declared
    # More than that, with what is declared, launches ask for only where they give it alone.
    if least + blocks.declared > STATIC_SHARED_LIMIT:
        least = max(least, STATIC_SHARED_LIMIT)
    bytes_ = -(-least // _UNIT) * _UNIT
    most = device.memory(MemoryLevel.SHARED).capacity - blocks.declared
    return bytes_ if bytes_ <= most else blocks.given
