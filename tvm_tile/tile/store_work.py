"""How long a block is busy with what becomes of its sums, while its tensor cores idle."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device

# Fitted to 106 tiles of 7 kernels with up to 6 blocks a multiprocessor, measured on an H200: the
# first choice is 8 % slower than the fastest tile, 16 % at most. Bare sums, stored with their
# neighbours, are as good as free.
_OPERATION_SLOTS = 0.9  # issue slots of a warp for an operation
_SINGLE_SLOTS = 36.0  # for a store of its own, with its place


@dataclass(frozen=True, slots=True)
class StoreWork:
    """What is done for each sum before it is stored.

    Attributes:
        operations: arithmetic in floating point; a function counts as several.
        is_wide: whether four neighbours are stored at once.
    """

    operations: int = 0
    is_wide: bool = True


BARE = StoreWork()


def store_seconds(work: StoreWork, device: Device, sums: int, warps: int) -> float:
    """Seconds until a thread's sums are stored: all warps of a scheduler issue one by one.

    Args:
        work: for a sum.
        device: whose clock it is.
        sums: of a thread, one after the other.
        warps: that store and share a scheduler, those of other blocks, too.
    """
    slots = work.operations * _OPERATION_SLOTS + (0 if work.is_wide else _SINGLE_SLOTS)
    return sums * warps * slots / device.clock
