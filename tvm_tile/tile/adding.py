"""The kernel that adds the parts of sums, which blocks have summed up each for itself."""

from __future__ import annotations

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.tile.asked import MOST_IN_FLIGHT
from tvm_tile.tile.time import Part, Quantity, Work


def adding_work(parts: Quantity, size: int, device: Device) -> Work:
    """What a kernel does that adds the parts of sums, a thread each output's.

    Args:
        parts: parts of each sum, a number or an array of shape (tiles,).
        size: bytes of all outputs.
        device: the device that it is made for.
    """
    warps = _ADDING_THREADS // device.warp_size
    held = _ADDING_THREADS * _SUM_BYTES  # bytes of a block's outputs
    vectors = held / (device.warp_size * _SUM_BYTES)
    adding = Part(
        fills=parts * held,
        stores=held,
        operations=parts * vectors,
        moves=(parts + 1) * vectors,
        loads=np.ceil(np.asarray(parts) / MOST_IN_FLIGHT),
    )
    return Work(
        blocks=-(-size // held),
        resident=device.max_threads_per_multi_processor // _ADDING_THREADS,
        warps=warps,
        parts=(adding,),
        read=parts * size,
        written=size,
    )


_ADDING_THREADS, _SUM_BYTES = 64, 4
