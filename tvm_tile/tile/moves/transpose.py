"""Tiles for copies whose output does not lie in memory as what they read does.

Memory moves sectors of 32 bytes. A warp whose threads take neighbouring outputs of a transpose
reads a sector for each and uses an element of it. Two ways use all of a sector:

* *vectors*: a thread takes neighbouring outputs, so that its own loads, and those of its
  neighbours, use it. That does for short runs: three channels padded to eight, a pixel shuffle.
* *staged*: a block takes a box of outputs, reads it in the order of what it reads, into shared
  memory, and stores it in the order of the output.

How many sectors each way moves is counted, for some warps or boxes, element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tvm_tile.device.device import STATIC_SHARED_LIMIT, Device
from tvm_tile.graph.tile_graph import Access, Axis
from tvm_tile.tile.asked import present_blocks
from tvm_tile.tile.cost import SECTOR
from tvm_tile.tile.moves.plain import widest_vector
from tvm_tile.tile.moves.sectors import (
    Ints,
    asked_sectors,
    count_sectors,
    pitches,
    positions,
    wavefronts,
)
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.time import AMID, Part, Scene, Work

_WASTE = 1.5  # of sectors, from which on a source is worth staging
_SAMPLES = 4  # warps or boxes whose sectors are counted
_RUNS = (16, 32, 64, 128)  # elements in a row that a box may have, on either side
_THREADS = 256
_REGISTERS = 10  # of a thread, besides those elements
_MOST_OWN = 32  # elements of a thread in a box: they wait in registers together
_DIVISION = 4  # instructions of a quotient by a constant and its rest


@dataclass(frozen=True, slots=True)
class Source:
    """A part of a copy's expression that reads: a load, or a choice among several.

    Attributes:
        reads: its accesses, of one index each: flat places.
        tested: axes that a choice depends on.
    """

    reads: tuple[Access, ...]
    tested: frozenset[str]

    @property
    def main(self) -> Access:
        """The access that matters most."""
        return max(self.reads, key=lambda read: read.tensor.size)

    def order(self, axes: Sequence[Axis]) -> tuple[Axis, ...]:
        """The axes as its main access walks through memory, the fastest last."""
        index = self.main.indices[0]
        return tuple(
            sorted(
                axes,
                key=lambda a: (index.coefficient(a.name) == 0, abs(index.coefficient(a.name))),
                reverse=True,
            )
        )


@dataclass(frozen=True, slots=True)
class Copy:
    """Axes in the order of the output, what is read, and where the output lies."""

    axes: tuple[Axis, ...]
    sources: tuple[Source, ...]
    write: Access

    @property
    def reads(self) -> tuple[Access, ...]:
        """All accesses of all sources."""
        return tuple(read for source in self.sources for read in source.reads)

    @property
    def points(self) -> int:
        """Elements of the output."""
        return math.prod(axis.extent for axis in self.axes)


@dataclass(frozen=True, slots=True)
class TransposeTile(Tile):
    """How a copy is shared out.

    Attributes:
        extents: extents of a block's box along each axis; empty where threads run through all
            outputs.
        block_size: threads of a block.
        vector: neighbouring outputs that a thread stores at once.
        loads: neighbouring outputs for which a thread reads of each source at once.
        staged: sources that go through shared memory.
        grid: blocks.
        asked: sectors that its blocks read, each for itself.
    """

    extents: tuple[int, ...]
    block_size: int = field()
    vector: int
    loads: tuple[int, ...]
    staged: tuple[bool, ...]
    grid: int = field()
    asked: float

    def describe(self) -> str:
        """The tile in one line, for people."""
        loads = "x".join(map(str, self.loads))
        if not self.extents:
            return f"block {self.block_size * self.vector}, store {self.vector}, load {loads}"
        box = "x".join(map(str, self.extents))
        return f"box {box} in shared memory, store {self.vector}, load {loads}"


def construct_transpose(
    copy: Copy, device: Device, count: int | None = None, scene: Scene = AMID
) -> tuple[TransposeTile, ...]:
    """Tiles of a copy, best first; at most ``count`` of them, if that is given.

    ``scene`` is where the kernel runs.
    """
    tiles = [
        construct_flat(copy, vector, device) for vector in _divisors(_vector_of_outputs(copy, {}))
    ]
    staged = tuple(_is_wasteful(copy, source, device) for source in copy.sources)
    if any(staged):
        boxes = dict.fromkeys(_boxes(copy, staged))
        tiles += [_boxed(copy, box, staged, device) for box in boxes]
    told = (replace(tile, work=work_of(tile, copy, device)) for tile in tiles)
    return ranked(told, device, scene, count)


def work_of(tile: TransposeTile, copy: Copy, device: Device) -> Work:
    """What a copy does: what is staged goes to shared memory, the rest straight to the output.

    All loads of a thread are on their way at once. An index is divided once for each load, by the
    extent of each axis.
    """
    warps, size = -(-tile.block_size // device.warp_size), copy.write.tensor.element_size
    elements = math.prod(tile.extents) if tile.extents else tile.block_size * tile.vector
    each = elements / device.warp_size  # instructions that move an element of each thread
    divided = _DIVISION * (len(copy.axes) - 1)
    moves, shares, banked = [0.0, 0.0], [0, 0], [0, 0]
    shared = 0
    box = [Axis(a.name, own) for a, own in zip(copy.axes, tile.extents, strict=False)]
    for source, load, is_staged in zip(copy.sources, tile.loads, tile.staged, strict=True):
        moves[is_staged] += len(source.reads) * each / load
        shares[is_staged] += len(source.reads)
        if is_staged:
            order, width = source.order(box), source.main.tensor.element_size
            strides, held = pitches(box, order[-1].name, width)
            banked[0] += wavefronts(order, load, strides, width, device.warp_size)
            banked[1] += wavefronts(box, tile.vector, strides, width, device.warp_size)
            shared += held * width
    fills, count = SECTOR * tile.asked / tile.grid / sum(shares), sum(tile.staged)
    stage = Part(
        repeats=min(1, count),
        fills=fills * shares[True],
        operations=moves[True] * divided,
        moves=moves[True] + count * each,
        wavefronts=each * banked[0],
        loads=1,
    )
    store = Part(
        fills=fills * shares[False],
        stores=min(elements, copy.points) * size,
        operations=(moves[False] + each / tile.vector) * divided,
        moves=moves[False] + each / tile.vector + count * each,
        wavefronts=each * banked[1],
        loads=min(1, shares[False]),
        barriers=min(1, count),
        exchanges=min(1, count),
    )
    read = {read.tensor: read.tensor.size for read in copy.reads}
    return Work(
        blocks=tile.grid,
        resident=present_blocks(device, tile, shared),
        warps=warps,
        parts=(stage, store),
        read=sum(read.values()),
        written=copy.points * size,
    )


def _is_wasteful(copy: Copy, source: Source, device: Device) -> bool:
    """Whether a warp of neighbouring outputs leaves most of the sectors unused that it reads."""
    order = source.order(copy.axes)
    if order == copy.axes:
        return False
    sample = positions(np.arange(min(device.warp_size, copy.points), dtype=np.int64), copy.axes)
    sectors, _, elements = count_sectors(source.main, sample)
    size = source.main.tensor.element_size
    return sectors * SECTOR > _WASTE * max(elements * size, SECTOR)


def _divisors(most: int) -> list[int]:
    """Lengths of vectors that divide ``most``, the longest first."""
    return [n for n in (16, 8, 4, 2, 1) if most % n == 0]


def _widest(copy: Copy) -> int:
    """Elements of the widest vector that all accesses along the output's last axis allow."""
    along = (read for read in copy.reads if copy.axes[-1].name in read.axes)
    return widest_vector([copy.write, *along])


def neighbours(
    access: Access, order: Sequence[Axis], box: Mapping[str, int], tested: frozenset[str]
) -> int:
    """Elements that lie in a row in memory, aligned so, wherever one walks through a box.

    Args:
        access: access with one index, a flat place.
        order: how the box is walked through, the last axis fastest.
        box: its extents; whole axes, where not given.
        tested: axes along which one must not go on, as a choice depends on them.
    """
    index = access.indices[0]
    run = stride = 1
    rest = dict(index.terms)
    for axis in reversed(order):
        if axis.name in tested or index.coefficient(axis.name) != stride:
            break
        own = box.get(axis.name, axis.extent)
        del rest[axis.name]
        run = math.gcd(run * own, stride * axis.extent)
        stride *= axis.extent
        if own < axis.extent:
            break
    return math.gcd(run, index.offset, *rest.values())


def _vector_of_outputs(copy: Copy, box: Mapping[str, int]) -> int:
    """Elements that a thread can store at once."""
    return math.gcd(_widest(copy), neighbours(copy.write, copy.axes, box, frozenset()))


def _vector_of_loads(
    source: Source, copy: Copy, order: Sequence[Axis], box: Mapping[str, int]
) -> int:
    """Elements that a thread can load at once from a source."""
    own = (neighbours(read, order, box, source.tested) for read in source.reads)
    return math.gcd(_widest(copy), *own)


def construct_flat(copy: Copy, vector: int, device: Device) -> TransposeTile:
    """The tile whose threads run through all outputs, ``vector`` of them each."""
    threads = _THREADS if copy.points >= _THREADS * vector * device.multi_processor_count else 64
    grid = -(-copy.points // (threads * vector))
    unit = device.warp_size * vector
    units = -(-copy.points // unit)
    starts = [units * n // _SAMPLES * unit for n in range(_SAMPLES)]
    sampled = [np.arange(start, min(start + unit, copy.points), dtype=np.int64) for start in starts]
    places = [positions(flat, copy.axes) for flat in sampled]
    loads = tuple(_direct_load(source, copy, {}, vector) for source in copy.sources)
    staged = (False,) * len(copy.sources)
    asked = asked_sectors(copy.reads, places, units)
    tile = TransposeTile((), threads, vector, loads, staged, grid, asked)
    return _with_registers(tile, device)


def _direct_load(source: Source, copy: Copy, box: Mapping[str, int], vector: int) -> int:
    """A thread's outputs are loaded at once, or one by one."""
    is_wide = _vector_of_loads(source, copy, copy.axes, box) % vector == 0
    return vector if is_wide or is_same_for(vector, source, copy.axes, box) else 1


def is_same_for(
    vector: int, source: Source, axes: Sequence[Axis], box: Mapping[str, int] | None = None
) -> bool:
    """Whether as many neighbouring outputs, aligned so, are made of one element of a source.

    Args:
        vector: how many.
        source: the source.
        axes: axes of the output, the last one fastest.
        box: extents of what a block makes along them; whole axes, where not given.
    """
    run = 1
    for axis in reversed(axes):
        if axis.name in source.tested or any(axis.name in read.axes for read in source.reads):
            break
        run *= (box or {}).get(axis.name, axis.extent)
    return run % vector == 0


def _with_registers(tile: TransposeTile, device: Device, held: int = 0) -> TransposeTile:
    """A tile with a thread's registers, ``held`` of them for elements on their way."""
    return replace(tile, registers=max(register_use(device).least, _REGISTERS + held))


def _boxes(copy: Copy, staged: Sequence[bool]) -> Iterator[tuple[int, ...]]:
    """Boxes with runs along the output and along each source that is staged."""
    sources = [s for s, is_staged in zip(copy.sources, staged, strict=True) if is_staged]
    sizes = [read.tensor.element_size for source in sources for read in source.reads]
    for out in _RUNS:
        for run in _RUNS:
            box = dict.fromkeys((axis.name for axis in copy.axes), 1)
            _extend(box, copy.axes, out)
            for source in sources:
                _extend(box, source.order(copy.axes), run)
            elements = math.prod(box.values())
            # Rows are padded; a choice may be wider than what it chooses from.
            footprint = len(sources) * elements * (max(sizes) + 1)
            if elements <= _THREADS * _MOST_OWN and footprint <= STATIC_SHARED_LIMIT:
                yield tuple(box.values())


def _extend(box: dict[str, int], order: Sequence[Axis], wanted: int) -> None:
    """Let a box have ``wanted`` elements in a row along ``order``."""
    for axis in reversed(order):
        if axis.extent > wanted:
            # Parts of one size, so that the last one is not nearly empty.
            even = -(-axis.extent // -(-axis.extent // wanted))
            own = even if axis.extent % even == 0 else min(wanted, -(-even // 8) * 8)
            box[axis.name] = max(box[axis.name], own)
            return
        box[axis.name] = axis.extent
        wanted = -(-wanted // axis.extent)
        if wanted == 1:
            return


def _boxed(
    copy: Copy, box: tuple[int, ...], staged: tuple[bool, ...], device: Device
) -> TransposeTile:
    """The tile with this box, these staged sources, and vectors."""
    own = {axis.name: extent for axis, extent in zip(copy.axes, box, strict=True)}
    vector = _vector_of_outputs(copy, own)
    loads = tuple(
        _vector_of_loads(source, copy, source.order(copy.axes), own)
        if is_staged
        else _direct_load(source, copy, own, vector)
        for source, is_staged in zip(copy.sources, staged, strict=True)
    )
    elements = math.prod(box)
    threads = min(_THREADS, max(device.warp_size, 1 << (elements // 8).bit_length() - 1))
    grid = math.prod(-(-axis.extent // own[axis.name]) for axis in copy.axes)
    samples = [_box(copy, box, grid * n // _SAMPLES) for n in range(_SAMPLES)]
    # What is to go through shared memory is loaded at once.
    held = -(-elements * copy.write.tensor.element_size // (4 * threads))
    asked = asked_sectors(copy.reads, samples, grid)
    tile = TransposeTile(box, threads, vector, loads, staged, grid, asked)
    return _with_registers(tile, device, held)


def _box(copy: Copy, box: tuple[int, ...], block: int) -> dict[str, Ints]:
    """The outputs of a block: values of the axes, each along a dimension of its own."""
    pairs = list(zip(copy.axes, box, strict=True))
    at = positions(np.array([block]), [Axis(a.name, -(-a.extent // own)) for a, own in pairs])
    places = (
        np.arange(first, min(first + own, axis.extent), dtype=np.int64)
        for axis, own in pairs
        for first in (at[axis.name] * own).tolist()
    )
    return dict(zip((axis.name for axis in copy.axes), np.ix_(*places), strict=True))
