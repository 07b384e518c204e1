"""How long a block is busy with what becomes of its sums, while its tensor cores idle."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device

# Guessed from twelve kernels, each with one block a multiprocessor, on an H200: to be fitted. Bare
# sums, stored with their neighbours, are as good as free next to 900 others.
_OPERATION_SECONDS = 2.3e-9  # for one of a thread's sums, if no other warp takes its turn
_SINGLE_SECONDS = 100e-9  # the same of a store of its own, with its place
_OPERATION_SLOTS, _SINGLE_SLOTS = 1, 40  # instructions that a warp issues for these


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
    """Seconds until a thread's sums are stored.

    Either each takes its latency, or all warps of a scheduler issue one after the other.

    Args:
        work: for a sum.
        device: whose clock it is.
        sums: of a thread, one after the other.
        warps: that store and share a scheduler, those of other blocks, too.
    """
    single = not work.is_wide
    latency = work.operations * _OPERATION_SECONDS + single * _SINGLE_SECONDS
    slots = work.operations * _OPERATION_SLOTS + single * _SINGLE_SLOTS
    return sums * max(latency, warps * slots / device.clock)
