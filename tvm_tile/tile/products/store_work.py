"""Time for which a block is busy with the work on its sums before the store."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device


@dataclass(frozen=True, slots=True)
class StoreWork:
    """Work of a kernel on each sum before it is stored.

    Attributes:
        operations: arithmetic in floating point; a function counts as several.
        is_wide: whether four neighbours are stored at once.
        read_bytes: bytes of the tensors that are read beside the operands, such as residuals and
            biases, once.
    """

    operations: int = 0
    is_wide: bool = True
    read_bytes: int = 0


BARE = StoreWork()


def store_seconds(work: StoreWork, device: Device, sums: int, warps: int) -> float:
    """Seconds until a thread's sums are stored.

    All warps of a scheduler issue one by one, and each waits for its own instructions.

    Args:
        work: work on one sum.
        device: device whose clock the seconds are of.
        sums: sums of a thread, one after the other.
        warps: warps that store and share a scheduler, those of other blocks, too.
    """
    times = device.times.store
    own = work.operations * times.operation_slots + times.wide_slots
    single = 0 if work.is_wide else times.single_slots
    slots = own * (warps + times.waiting_warps) + single * warps
    return sums * slots / device.clock
