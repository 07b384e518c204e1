"""How staged tiles lie in shared memory: so that the threads of a warp meet different banks.

Shared memory serves a warp's load in wavefronts, each at most one word of every bank (Roller
aligns tiles to the banks for that, OSDI'22, section 3.1). A tile that keeps the order its tensor
has in global memory may put what neighbouring threads read into one bank: the weights of a 1 x 1
convolution or of a transposed product do. Then another order of its dimensions, or padded rows,
cost fewer wavefronts, the stores of staging included.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.tile_graph import Access
from tvm_tile.tile.rtile import RProgram, Spread

Ints = npt.NDArray[np.int64]

_WORD = 4  # bytes of a bank
_MOST_PADDING = 0.25  # of a tile's own size
# A vector along a summed dimension brings what only later multiply-adds need, and holds registers
# until then: it must save a third of the wavefronts.
_SUMMED_PENALTY = 1.5


@dataclass(frozen=True, slots=True)
class StagedLayout:
    """Order and padding of a tile in shared memory.

    Attributes:
        order: the tensor's dimensions, outermost first.
        alignment: (factor, offset) in elements: rows are padded until their pitch leaves this
            remainder; None: no padding.
        wavefronts: wavefronts of shared memory for a block's reads of a step's operand and for
            storing it before.
        loads: instructions with which one thread reads its part of the operand in a step.
        stores: instructions with which a block's warps stage the operand in a step.
        padding: bytes of a block's shared memory that hold nothing.
    """

    order: tuple[int, ...]
    alignment: tuple[int, int] | None
    wavefronts: int
    loads: int = 0
    stores: int = 0
    padding: int = 0

    @property
    def is_plain(self) -> bool:
        """Whether elements lie as in global memory, without padding."""
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
    threads = _Threads.of(program, device.warp_size)
    region = read.region(threads.staged)
    if rank < 2 or not read.is_exact:
        return StagedLayout(plain, None, *_reading(read, threads, device, plain, None))
    # A pitch of an odd number of vectors: eight rows begin at eight different vectors of the banks.
    vector = VECTOR_BYTES // read.tensor.element_size
    candidates = [
        StagedLayout(
            order,
            alignment,
            *_reading(read, threads, device, order, alignment),
            _padding(region, order, alignment) * read.tensor.element_size,
        )
        for order in (plain, *_other_orders(read, program))
        for alignment in (None, (2 * vector, vector))[: 1 + may_pad]
    ]
    size = math.prod(region) * read.tensor.element_size
    affordable = [c for c in candidates if c.padding <= _MOST_PADDING * size]
    return min(affordable, key=lambda layout: _layout_cost(layout, read, region, program))


def _layout_cost(
    layout: StagedLayout, read: Access, region: Sequence[int], program: RProgram
) -> tuple[float, int]:
    """Wavefronts, more if the summed axis is innermost, then loads: the least is best."""
    spatial = {axis.name for axis in program.operator.spatial_axes}
    innermost = next((d for d in reversed(layout.order) if region[d] > 1), layout.order[-1])
    is_summed = not any(axis in spatial for axis, _ in read.indices[innermost].terms)
    return layout.wavefronts * (_SUMMED_PENALTY if is_summed else 1.0), layout.loads


def _other_orders(read: Access, program: RProgram) -> Iterator[tuple[int, ...]]:
    """Orders with another innermost dimension: one along which threads' tiles lie."""
    spatial = {axis.name for axis in program.operator.spatial_axes}
    rank = len(read.indices)
    for dimension, index in enumerate(read.indices[:-1]):
        if len(index.terms) == 1 and index.terms[0][0] in spatial and index.terms[0][1] == 1:
            yield (*(d for d in range(rank) if d != dimension), dimension)


@dataclass(frozen=True, slots=True)
class _Threads:
    """Places on which the threads of a program work in a step, for all layouts that are compared.

    Attributes:
        staged: extents of the tile in shared memory, by axis.
        tile: extents of the tile that one thread works through, by axis.
        spread: how each spatial axis is shared out.
        apart: least distance from one thread's tile, or piece of it, to another's, by axis.
        lanes: positions at which the tiles of the first warp's threads begin, by axis.
        warps: warps of a block.
    """

    staged: dict[str, int]
    tile: dict[str, int]
    spread: dict[str, Spread]
    apart: dict[str, int]
    lanes: dict[str, Ints]
    warps: int

    @classmethod
    def of(cls, program: RProgram, warp_size: int) -> _Threads:
        """The threads of a program."""
        spread, count = program.spread, program.block_size
        apart = {axis: own.run for axis, own in spread.items() if own.pieces * own.threads > 1}
        if program.groups > 1:
            shared = program.operator.reduce_axes[program.group_axis].name
            apart[shared] = program.chunk[program.group_axis]
        lanes, warps = _lanes(program, warp_size), -(-count // warp_size)
        return cls(program.staged, program.thread_step, spread, apart, lanes, warps)


def _reading(
    read: Access,
    threads: _Threads,
    device: Device,
    order: tuple[int, ...],
    alignment: tuple[int, int] | None,
) -> tuple[int, int, int]:
    """Wavefronts of a block's step, staging included, loads of one thread, stores of all warps."""
    size = read.tensor.element_size
    region = read.region(threads.staged)
    strides = _strides(region, order, alignment)
    loads = _loads(_steps(read, threads, strides), _read_vector(read, threads, strides))
    addresses = _addresses(read, threads.lanes, strides)
    once = sum(
        count * wavefronts(addresses, width * size, device.bank_count)
        for width, count in loads.items()
    )
    chip = device.warp_size, device.bank_count
    stores, stored = _staging(size, region, strides, order, *chip)
    return threads.warps * once + stored, sum(loads.values()), stores


def _padding(
    region: Sequence[int], order: tuple[int, ...], alignment: tuple[int, int] | None
) -> int:
    """Elements that hold nothing."""
    if alignment is None:
        return 0
    padded = _strides(region, order, alignment)[order[0]] * region[order[0]]
    return padded - math.prod(region)


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


def _lanes(program: RProgram, warp_size: int) -> dict[str, Ints]:
    """Positions at which the tiles of the first warp's threads begin, by axis."""
    rest = np.arange(min(warp_size, program.block_size))
    found = {}
    for axis, spread in reversed(program.spread.items()):
        found[axis] = rest % spread.threads * spread.run
        rest = rest // spread.threads
    shared = program.operator.reduce_axes[program.group_axis].name
    found[shared] = rest * program.chunk[program.group_axis]
    return found


def _addresses(read: Access, lanes: dict[str, Ints], strides: Sequence[int]) -> tuple[int, ...]:
    """Bytes from the tile's begin to what each of ``lanes`` reads first."""
    found = np.zeros(len(next(iter(lanes.values()))), np.int64)
    for index, stride in zip(read.indices, strides, strict=True):
        for axis, coefficient in index.terms:
            if axis in lanes:
                found = found + stride * coefficient * lanes[axis]
    return tuple((found * read.tensor.element_size).tolist())


def _steps(
    read: Access, threads: _Threads, strides: Sequence[int]
) -> tuple[tuple[Spread, int], ...]:
    """How a thread goes through what it reads in a step: each axis, and its places' distance."""
    return tuple(
        (threads.spread.get(axis, Spread(1, 1, threads.tile[axis])), abs(coefficient) * stride)
        for index, stride in zip(read.indices, strides, strict=True)
        for axis, coefficient in index.terms
        if threads.tile[axis] > 1
    )


@functools.lru_cache(maxsize=1 << 12)
def _loads(steps: tuple[tuple[Spread, int], ...], vector: int) -> dict[int, int]:
    """Loads of one thread in a step, as :func:`read_widths` tells them."""
    offsets = np.zeros(1, np.int64)
    for spread, distance in steps:
        offsets = np.unique(np.add.outer(_own_places(spread) * distance, offsets))
    return read_widths(offsets, vector)


def _own_places(spread: Spread) -> Ints:
    """Positions along an axis, from the first one, of the elements that a thread has."""
    pieces = np.arange(spread.pieces) * spread.threads * spread.run
    return np.add.outer(pieces, np.arange(spread.run)).ravel()


def _read_vector(read: Access, threads: _Threads, strides: Sequence[int]) -> int:
    """Elements that one load can take: every thread's first element is aligned to as many."""
    apart = (
        stride * coefficient * threads.apart.get(axis, 0)
        for index, stride in zip(read.indices, strides, strict=True)
        for axis, coefficient in index.terms
    )
    return math.gcd(VECTOR_BYTES // read.tensor.element_size, *apart)


def read_widths(offsets: Ints, vector: int) -> dict[int, int]:
    """Loads that take the elements at ``offsets``: width -> count.

    The compiler merges neighbours into the widest aligned load, of at most ``vector`` elements;
    this counts what it does (of 232 compiled kernels' loads, 199 exactly, the others within 16%).
    """
    cuts = np.flatnonzero(np.diff(offsets) != 1) + 1
    first = offsets[np.concatenate(([0], cuts))]
    length = np.diff(np.concatenate(([0], cuts, [len(offsets)])))
    found = {}
    width = 1
    while width < vector:
        # Narrow loads lead up to an aligned place.
        leads = (first & width != 0) & (length >= width)
        first, length = first + width * leads, length - width * leads
        found[width] = int(leads.sum())
        width *= 2
    while width:
        aligned = first % width == 0
        taken = length // width * aligned
        first, length = first + width * taken, length - width * taken
        found[width] = found.get(width, 0) + int(taken.sum())
        width //= 2
    return {width: count for width, count in found.items() if count}


@functools.lru_cache(maxsize=1 << 14)
def wavefronts(addresses: tuple[int, ...], width: int, bank_count: int) -> int:
    """Passes over the banks that a warp's load of ``width`` bytes at each address takes.

    As many threads as can fill the banks are served at a time, equal addresses of these together;
    twice as many where each thread's neighbour, or next but one, has the same address.

    Args:
        addresses: bytes, of each thread.
        width: bytes of one thread's load.
        bank_count: banks, a word of four bytes wide.
    """
    together = max(1, bank_count * _WORD // max(width, _WORD))
    total = 0
    for first in range(0, len(addresses), 2 * together):
        pair = addresses[first : first + 2 * together]
        if together >= len(addresses) or _is_shared(pair, 1) or _is_shared(pair, 2):
            total += _passes(pair, width, bank_count)
        else:
            total += _passes(pair[:together], width, bank_count)
            total += _passes(pair[together:], width, bank_count)
    return total


def _is_shared(addresses: Sequence[int], distance: int) -> bool:
    """Whether threads whose numbers differ in this one bit have equal addresses."""
    count = len(addresses)
    return all(
        addresses[i] == addresses[i ^ distance] for i in range(count) if i ^ distance < count
    )


def _passes(addresses: Sequence[int], width: int, bank_count: int) -> int:
    """Wavefronts of an access of ``width`` bytes by each address: the most words in one bank."""
    words = {
        word
        for address in set(addresses)
        for word in range(address // _WORD, -(-(address + width) // _WORD))
    }
    return max(Counter(word % bank_count for word in words).values(), default=0)


@functools.lru_cache(maxsize=1 << 12)
def _staging(
    size: int,
    region: tuple[int, ...],
    strides: tuple[int, ...],
    order: tuple[int, ...],
    warp_size: int,
    bank_count: int,
) -> tuple[int, int]:
    """Stores with which a block's warps stage a tile of elements of a size, and wavefronts."""
    count = math.prod(region)
    vector = math.gcd(VECTOR_BYTES // size, region[-1])
    is_vector = order[-1] == len(region) - 1 and all(s % vector == 0 for s in strides if s != 1)
    rest = np.arange(warp_size) * vector % count
    places = np.zeros(warp_size, np.int64)
    for extent, stride in zip(reversed(region), reversed(strides), strict=True):
        places += rest % extent * stride
        rest //= extent
    addresses = tuple((places * size).tolist())
    stores = -(-count // (vector * warp_size))
    if not is_vector:
        stores, vector = stores * vector, 1
    return stores, stores * wavefronts(addresses, vector * size, bank_count)
