"""How staged tiles lie in shared memory: so that the threads of a warp meet different banks.

Shared memory serves a warp's load in wavefronts, each at most one word of every bank (Roller
aligns tiles to the banks for that, OSDI'22, section 3.1). A tile that keeps the order its tensor
has in global memory may put what neighbouring threads read into one bank: the weights of a 1 x 1
convolution or of a transposed product do. Then another order of its dimensions, or padded rows,
cost fewer wavefronts, the stores of staging included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.tile_graph import Access
from tvm_tile.tile.rtile import RProgram

_WORD = 4  # bytes of a bank
_MOST_PADDING = 0.25  # of a tile's own size


@dataclass(frozen=True, slots=True)
class StagedLayout:
    """Order and padding of a tile in shared memory.

    Attributes:
        order: the tensor's dimensions, outermost first.
        alignment: (factor, offset) in elements: rows are padded until their pitch leaves this
            remainder; None: no padding.
        wavefronts: what reading a step's operand and storing it before cost one block.
        padding: bytes of a block's shared memory that hold nothing.
    """

    order: tuple[int, ...]
    alignment: tuple[int, int] | None
    wavefronts: int
    padding: int = 0

    @property
    def is_plain(self) -> bool:
        """As in global memory."""
        return self.order == tuple(range(len(self.order))) and self.alignment is None


def staged_layouts(program: RProgram, footprint: int, device: Device) -> tuple[StagedLayout, ...]:
    """A layout for each operand; none is padded if with padding they would not fit.

    ``footprint`` is the bytes of a block's shared memory without padding.
    """
    reads = program.operator.reads
    padded = tuple(staged_layout(read, program, device) for read in reads)
    capacity = device.memory(MemoryLevel.SHARED).capacity
    if footprint + sum(layout.padding for layout in padded) <= capacity:
        return padded
    return tuple(staged_layout(read, program, device, may_pad=False) for read in reads)


def staged_layout(
    read: Access, program: RProgram, device: Device, *, may_pad: bool = True
) -> StagedLayout:
    """The layout of one operand with the fewest wavefronts; the plain one of equals."""
    rank = len(read.indices)
    plain = tuple(range(rank))
    if rank < 2 or not read.is_exact:
        return StagedLayout(plain, None, 0)
    # A pitch of an odd number of vectors: eight rows begin at eight different vectors of the banks.
    vector = VECTOR_BYTES // read.tensor.element_size
    candidates = [
        StagedLayout(
            order,
            alignment,
            _wavefronts(read, program, device, order, alignment),
            _padding(read, program, order, alignment),
        )
        for order in (plain, *_other_orders(read, program))
        for alignment in (None, (2 * vector, vector))[: 1 + may_pad]
    ]
    size = math.prod(_region(read, program.staged)) * read.tensor.element_size
    affordable = [c for c in candidates if c.padding <= _MOST_PADDING * size]
    return min(affordable, key=lambda layout: layout.wavefronts)


def _other_orders(read: Access, program: RProgram) -> Iterator[tuple[int, ...]]:
    """Orders with another innermost dimension: one along which threads' tiles lie."""
    spatial = {axis.name for axis in program.operator.spatial_axes}
    rank = len(read.indices)
    for dimension, index in enumerate(read.indices[:-1]):
        if len(index.terms) == 1 and index.terms[0][0] in spatial and index.terms[0][1] == 1:
            yield (*(d for d in range(rank) if d != dimension), dimension)


def _wavefronts(
    read: Access,
    program: RProgram,
    device: Device,
    order: tuple[int, ...],
    alignment: tuple[int, int] | None,
) -> int:
    size = read.tensor.element_size
    region = _region(read, program.staged)
    strides = _strides(region, order, alignment)
    tile = program.register.extents(program.operator)
    summed = [axis.name for axis in program.operator.reduce_axes]
    chunk = tile | dict(zip(summed, program.chunk, strict=True))
    vector = _read_vector(read, chunk, strides, order[-1])
    addresses = [_address(read, lane, strides) * size for lane in _lanes(program, device.warp_size)]
    once = wavefronts(addresses, vector * size, device.bank_count)
    warps = -(-program.block_size // device.warp_size)
    loads = read.elements(chunk) // vector
    return warps * loads * once + _store_wavefronts(read, region, strides, order, device)


def _padding(
    read: Access, program: RProgram, order: tuple[int, ...], alignment: tuple[int, int] | None
) -> int:
    if alignment is None:
        return 0
    region = _region(read, program.staged)
    strides = _strides(region, order, alignment)
    padded = strides[order[0]] * region[order[0]]
    return (padded - math.prod(region)) * read.tensor.element_size


def _region(read: Access, tile: dict[str, int]) -> tuple[int, ...]:
    pairs = zip(read.indices, read.tensor.shape, strict=True)
    return tuple(min(index.span(tile), extent) for index, extent in pairs)


def _strides(
    region: Sequence[int], order: Sequence[int], alignment: tuple[int, int] | None
) -> tuple[int, ...]:
    """Elements from one position of each dimension to the next, in the staged layout."""
    strides = [0] * len(region)
    stride = 1
    for place, dimension in enumerate(reversed(order)):
        if place == 1 and alignment is not None:
            factor, offset = alignment
            stride += (offset - stride) % factor
        strides[dimension] = stride
        stride *= region[dimension]
    return tuple(strides)


def _lanes(program: RProgram, warp_size: int) -> Iterator[dict[str, int]]:
    """Where the tile of each thread of the first warp begins: axis -> position."""
    axes = program.operator.spatial_axes
    threads = [block // thread for block, thread in program.spatial]
    shared = program.operator.reduce_axes[program.group_axis].name
    for lane in range(min(warp_size, program.block_size)):
        rest = lane
        position = {}
        for axis, count, (_, thread) in reversed(
            list(zip(axes, threads, program.spatial, strict=True))
        ):
            position[axis.name] = rest % count * thread
            rest //= count
        position[shared] = rest * program.chunk[program.group_axis]
        yield position


def _address(read: Access, position: dict[str, int], strides: Sequence[int]) -> int:
    return sum(
        stride * sum(coefficient * position.get(axis, 0) for axis, coefficient in index.terms)
        for index, stride in zip(read.indices, strides, strict=True)
    )


def _read_vector(read: Access, tile: dict[str, int], strides: Sequence[int], innermost: int) -> int:
    """Elements that one load takes: neighbours along the innermost dimension, aligned."""
    index = read.indices[innermost]
    run = tile[index.terms[0][0]] if len(index.terms) == 1 and index.terms[0][1] == 1 else 1
    others = (stride for dimension, stride in enumerate(strides) if dimension != innermost)
    return math.gcd(run, VECTOR_BYTES // read.tensor.element_size, *others)


def wavefronts(addresses: Sequence[int], width: int, bank_count: int) -> int:
    """Passes over the banks that a warp's load of ``width`` bytes at each address takes.

    Args:
        addresses: bytes, of each thread; equal ones are served together.
        width: bytes of one thread's load.
        bank_count: banks, a word of four bytes wide.
    """
    distinct = list(dict.fromkeys(addresses))
    together = max(1, bank_count * _WORD // max(width, _WORD))
    total = 0
    for first in range(0, len(distinct), together):
        words = {
            word
            for address in distinct[first : first + together]
            for word in range(address // _WORD, -(-(address + width) // _WORD))
        }
        banks = [word % bank_count for word in words]
        total += max(banks.count(bank) for bank in set(banks))
    return total


def _store_wavefronts(
    read: Access,
    region: Sequence[int],
    strides: Sequence[int],
    order: Sequence[int],
    device: Device,
) -> int:
    """Of staging: neighbouring threads store neighbouring elements, or vectors of them."""
    size = read.tensor.element_size
    count = math.prod(region)
    vector = math.gcd(VECTOR_BYTES // size, region[-1])
    is_vector = order[-1] == len(region) - 1 and all(s % vector == 0 for s in strides if s != 1)
    addresses = []
    for lane in range(device.warp_size):
        rest = lane * vector % count
        address = 0
        for extent, stride in zip(reversed(region), reversed(strides), strict=True):
            address += rest % extent * stride
            rest //= extent
        addresses.append(address * size)
    stores = -(-count // (vector * device.warp_size))
    if is_vector:
        return stores * wavefronts(addresses, vector * size, device.bank_count)
    return stores * vector * wavefronts(addresses, size, device.bank_count)
