"""What blocks ask of caches, and of each other's threads, where nothing is staged.

These are counts for :mod:`tvm_tile.tile.time` that the kernels of rows and of copies share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Access, Axis, Operator
from tvm_tile.tile.cost import SECTOR, arithmetic_slots, widening
from tvm_tile.tile.residency import fitting_blocks, given_registers
from tvm_tile.tile.tile import Tile
from tvm_tile.tile.time import Part

WORD = 4  # bytes of a bank of shared memory
BANKS = 32  # words that shared memory moves at once
# Iterations of a loop whose loads go together, as NVRTC 13 compiles TVM's loops for sm_90: of one
# that has tests or whose length is not known, and loads of a word each of one without.
FEW_IN_FLIGHT, MOST_IN_FLIGHT = 4, 16


def box_of(axes: Iterable[Axis], count: int) -> dict[str, int]:
    """Extents, by an axis's name, of the box around ``count`` neighbours, the last axis fastest."""
    box = {}
    for axis in reversed(tuple(axes)):
        box[axis.name] = min(axis.extent, count)
        count = -(-count // axis.extent)
    return box


def asked_bytes(access: Access, box: Mapping[str, int]) -> int:
    """Bytes in whole sectors that hold what an access touches where its axes run over a box.

    Of an index that is no sum of axes only an outline is known; then it counts that no point of the
    box touches more than an element.
    """
    size, region = access.tensor.element_size, access.region(dict(box))
    run = 1
    for index, span, extent in zip(
        access.indices[::-1], region[::-1], access.tensor.shape[::-1], strict=True
    ):
        if not index.is_exact:
            break
        run *= span
        if span < extent:
            break
    asked = math.prod(region) // run * in_sectors(run * size)
    if all(index.is_exact for index in access.indices):
        return asked
    return min(asked, in_sectors(math.prod(box.values()) * size))


def in_flight(pieces: int, vector: int, *, is_tested: bool) -> int:
    """Iterations of a thread's loop over pieces whose loads are on their way together.

    Args:
        pieces: iterations; a loop of few is unrolled whole.
        vector: words of each load.
        is_tested: whether each iteration has a test for the end of what it goes along.
    """
    if pieces <= MOST_IN_FLIGHT // vector:
        return pieces
    return min(pieces, FEW_IN_FLIGHT if is_tested else max(FEW_IN_FLIGHT, MOST_IN_FLIGHT // vector))


def in_sectors(size: int) -> int:
    """Bytes of whole sectors that hold ``size`` neighbouring bytes."""
    return -(-size // SECTOR) * SECTOR


def loads_of(access: Access, box: Mapping[str, int], vector: int) -> int:
    """Instructions with which a thread moves its box of an access, given how many at once."""
    width = max(1, min(vector, VECTOR_BYTES // access.tensor.element_size))
    return -(-access.elements(dict(box)) // width)


def operations_of(operator: Operator, device: Device) -> float:
    """Instructions of a thread at one point of an operator's loops.

    A sum's addition is one with the product that it adds, if there is one. A number of less than
    four bytes is converted, where arithmetic is done with it.
    """
    flops = max(1, operator.flops - 1) if operator.reduce_axes else operator.flops
    widened = sum(widening(read.tensor) for read in operator.reads)
    written = operator.write.tensor.element_size < WORD and not operator.reduce_axes
    return flops * arithmetic_slots(device) + widened + written


def present_blocks(device: Device, tile: Tile, shared_bytes: int = 0) -> int:
    """Blocks that share a multiprocessor, bounded by what is known of a tile; 0 if none fits.

    Args:
        device: the device that it is made for.
        tile: the tile; where it names no registers, these are no bound.
        shared_bytes: bytes of shared memory of a block.
    """
    given = given_registers(device, max(1, tile.registers))
    return fitting_blocks(device, tile.block_size, given, shared_bytes)


def meeting(tile: Tile, threads: int, device: Device, *, is_across: bool = False) -> Part:
    """What a block does for one result that several of its threads share, each a part of it.

    TVM writes it in one of three ways: shuffles, where all threads are of one warp; shuffles, a
    staging area and shuffles again, where they are whole warps; and a tree in shared memory where
    neighbours in a warp are of different results.

    Args:
        tile: the tile of the block.
        threads: threads that share a result, a power of two; nothing is done for one.
        device: the device that it is made for.
        is_across: whether neighbours in a warp are of different results.
    """
    warps, levels = -(-tile.block_size // device.warp_size), threads.bit_length() - 1
    if threads == 1:
        return Part(repeats=0)
    if is_across:
        # First all store, then ever fewer add: as many together as there are. Neighbours of a
        # warp are so many words apart as threads share a result.
        moves = (1 + 2 + 1) * warps  # each stores, loads two, stores
        return Part(
            operations=warps,
            moves=moves,
            wavefronts=moves * min(threads, BANKS),
            barriers=levels + 2,
            exchanges=levels + 1,
        )
    if threads <= device.warp_size:
        # At each level a shuffle and an addition; at last a shuffle that tells all.
        return Part(operations=(2 * levels + 1) * warps, exchanges=levels + 1)
    # A warp's result goes to shared memory and back, and so does that of all.
    moves = (1 + 1 + 1) * warps
    return Part(
        operations=2 * levels * warps,
        moves=moves,
        wavefronts=moves,
        barriers=2,
        exchanges=levels + 2,
    )
