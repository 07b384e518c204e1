"""Shared memory: what lies there, what of a tile is contiguous, how threads share copies to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.graph.tile_graph import element_size

# A part that leaves no rest is taken, if it needs at most this many times the rounds.
_MORE_ROUNDS = 1.25
ALIGNED = 128  # bytes; where vectors and descriptors may begin


@dataclass(frozen=True, slots=True)
class Room:
    """Elements of one type in shared memory, behind which the next room is aligned."""

    dtype: str
    elements: int
    align: int = ALIGNED


def shared_bytes(rooms: Sequence[Room]) -> int:
    """Bytes of shared memory, each room where vectors may begin."""
    return sum(
        -(-room.elements * element_size(room.dtype) // room.align) * room.align for room in rooms
    )


def share_copy(extents: tuple[int, ...], threads: int) -> tuple[int, int]:
    """The part of a region that the threads of a block copy in one round.

    A thread's place in a round is the same in every round, but for a constant: so it needs its
    divisions, by the extents, only once.

    Returns:
        A dimension and a part of its extent: a round copies that part and all of the dimensions
        behind it, an element a thread, at most ``threads`` of them. Rounds are of one size, but
        for the last of a dimension where no whole number of them covers it.
    """
    inner = 1
    dimension = len(extents) - 1
    while dimension > 0 and inner * extents[dimension] <= threads:
        # Where the rest is all ones, threads run along the outermost dimension that is not.
        if math.prod(extents[:dimension]) == 1:
            break
        inner *= extents[dimension]
        dimension -= 1
    if inner * 2 > threads and dimension < len(extents) - 1:
        # One place of this dimension a round: then threads end with the dimension behind it.
        return dimension + 1, extents[dimension + 1]
    extent = extents[dimension]
    rounds = -(-extent // max(1, threads // inner))
    part = -(-extent // rounds)
    exact = max(n for n in range(1, part + 1) if extent % n == 0)
    return dimension, exact if extent // exact <= _MORE_ROUNDS * rounds else part


def run_dimension(region: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """The dimension from which on a region of a tensor of ``shape`` is contiguous in memory."""
    first = len(region) - 1
    while first > 0 and region[first] == shape[first]:
        first -= 1
    return first
