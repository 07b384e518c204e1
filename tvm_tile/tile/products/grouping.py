"""The kernel that puts the rows of a product's groups side by side, in a table."""

from __future__ import annotations

from tvm_tile.device.device import Device
from tvm_tile.graph.positions import Grouped
from tvm_tile.tile.powers import powers_of_two
from tvm_tile.tile.time import Part, Work

_INDEX = 8  # bytes of the number of a row's group, at most
_PLACE = 4  # bytes of the number of a row
_ROWS_EACH = 4  # of a thread, where threads suffice
TURN = 32  # threads whose rows are added up first
_OPERATIONS = 6  # for a row: two comparisons, and where it goes


def grouping_threads(groups: Grouped, device: Device) -> int:
    """Threads of a block, of which each counts some of the rows."""
    most = device.max_threads_per_block
    sizes = powers_of_two(2 * TURN, most)
    return next((size for size in sizes if size * _ROWS_EACH >= groups.count), most)


def grouping_work(groups: Grouped, threads: int, device: Device) -> Work:
    """What the kernel does: a block a group goes through the numbers of all rows, twice.

    Args:
        groups: the groups.
        threads: threads of a block.
        device: the device that it is made for.
    """
    warps, each = -(-threads // device.warp_size), -(-groups.count // threads)
    reading = Part(
        repeats=each,
        fills=threads * _INDEX,
        operations=warps * _OPERATIONS,
        moves=warps,
        loads=1 / _ROWS_EACH,
    )
    adding = Part(
        operations=2 * TURN * warps, moves=2 * TURN * warps, wavefronts=2 * TURN * warps, barriers=2
    )
    return Work(
        blocks=groups.axis.extent,
        resident=device.max_threads_per_multi_processor // threads,
        warps=warps,
        parts=(reading, adding, reading),
        read=groups.count * _INDEX,
        written=groups.count * _PLACE,
    )
