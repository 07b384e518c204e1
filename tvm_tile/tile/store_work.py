"""How long a block is busy with what becomes of its sums, while its tensor cores idle."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device


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
    # Bare sums, stored with their neighbours, are as good as free.
    times = device.times.store
    slots = work.operations * times.operation_slots + (0 if work.is_wide else times.single_slots)
    return sums * warps * slots / device.clock
