"""What the threads of a block touch in memory together where they run through all outputs in order.

Each thread has sums of its own, and neighbouring threads have neighbouring ones, along the last
spatial axes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.graph.tile_graph import Access, Operator
from tvm_tile.tile.cost import SECTOR, coalescing, elements, sectors_touched
from tvm_tile.tile.time import WAVEFRONT

# Instructions of a thread before its first load, counted in machine code: they find its place
# along each axis, and the addresses there.
START_OPERATIONS = 55


def block_bytes(
    accesses: Iterable[Access], operator: Operator, own: Mapping[str, int], threads: Sequence[int]
) -> list[float]:
    """Bytes that a block moves in whole sectors, what its threads have in common once.

    Args:
        accesses: accesses of the operator.
        operator: the operator, whose sums each belong to one thread.
        own: neighbouring outputs of a thread along spatial axes; one along others.
        threads: threads of a block, for each size of block that is asked about.
    """
    tiles = np.array([_region(operator, own, count) for count in threads])
    moved = sum(
        elements(access, operator, tiles)
        * access.tensor.element_size
        * coalescing(access, operator, tiles)
        for access in accesses
    )
    return np.asarray(moved, np.float64).tolist()


def _region(operator: Operator, own: Mapping[str, int], threads: int) -> list[int]:
    """Extents of what so many threads compute together, along each axis."""
    region, rest = operator.extents, threads
    for axis in reversed(operator.spatial_axes):
        outputs = own.get(axis.name, 1)
        places = -(-axis.extent // outputs)
        region[axis.name] = min(axis.extent, min(places, rest) * outputs)
        rest = -(-rest // places)
    return list(region.values())


def warp_sectors(
    access: Access, operator: Operator, own: Mapping[str, int], vector: int, device: Device
) -> float:
    """Sectors that a warp touches when its threads each move one vector.

    Args:
        access: access of the operator.
        operator: the operator.
        own: neighbouring outputs of a thread along spatial axes; one along others.
        vector: elements of a vector.
        device: device whose warp it is.
    """
    size, strides = access.tensor.element_size, access.strides
    rest = np.arange(device.warp_size)
    address = np.zeros(device.warp_size, np.int64)
    for axis in reversed(operator.spatial_axes):
        outputs = own.get(axis.name, 1)
        threads = -(-axis.extent // outputs)
        address += rest % threads * outputs * strides.get(axis.name, 0) * size
        rest //= threads
    return float(sectors_touched(np.sort(address), size * vector))


def warp_wavefronts(
    access: Access, operator: Operator, own: Mapping[str, int], vector: int, device: Device
) -> float:
    """Passes over the banks of the first-level cache in which a warp's load is answered.

    The arguments are those of :func:`warp_sectors`.
    """
    sectors = warp_sectors(access, operator, own, vector, device)
    return max(1.0, sectors * SECTOR / WAVEFRONT)
