"""rTiles and rPrograms: Roller's description of one kernel (OSDI'22, sections 3.1 and 3.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tvm_tile.device.device import VECTOR_BYTES
from tvm_tile.graph.tile_graph import Operator
from tvm_tile.tile.tile import Tile


@dataclass(frozen=True, slots=True)
class RTile:
    """Extents of a tile, one for each axis of an operator, in the order of its loops."""

    shape: tuple[int, ...]

    def extents(self, operator: Operator) -> dict[str, int]:
        """The tile as axis name -> extent."""
        return dict(zip((axis.name for axis in operator.axes), self.shape, strict=True))


def longest_reduce_axis(operator: Operator) -> int:
    """Place of the longest reduce axis among the reduce axes; the first of equals."""
    extents = [axis.extent for axis in operator.reduce_axes]
    return extents.index(max(extents))


def run_length(operator: Operator, thread: int, *, is_whole: bool) -> int:
    """Neighbouring outputs of a thread along a spatial axis, of ``thread`` in all.

    A longer register tile is several runs, as far apart as the block has threads: then neighbouring
    threads read and store neighbouring vectors. A window that slides stays ``is_whole``, since what
    neighbouring outputs share is read once.
    """
    if is_whole:
        return thread
    widest = VECTOR_BYTES // max(read.tensor.element_size for read in operator.reads)
    return math.gcd(thread, widest)


@dataclass(frozen=True, slots=True)
class Spread:
    """One axis of a block tile: ``pieces`` rounds of ``threads`` threads with ``run`` outputs."""

    pieces: int
    threads: int
    run: int


@dataclass(frozen=True, slots=True)
class RProgram(Tile):
    """An operator and its tile on each memory level.

    Shared memory is without what layouts there leave empty.

    Attributes:
        operator: the operator that is computed.
        register: one thread's tile: spatial extents it accumulates; reduce extents are one.
        shared: one block's tile: spatial extents, and the reduce extents one group of threads
            consumes between two barriers.
        groups: groups of threads in a block, each with its own part of the reduction; their
            partial sums meet in shared memory. One: no split.
        is_prefetched: whether a step's operands are on their way, in registers, while the step
            before is computed.
        parts: parts of the longest sum, each with blocks of its own; a second kernel adds their
            sums. One: no split.
    """

    operator: Operator
    register: RTile = field()  # or it would have a class' method as its default
    shared: RTile
    groups: int = 1
    is_prefetched: bool = False
    parts: int = 1

    @property
    def group_axis(self) -> int:
        """The reduce axis that groups, and parts, share, by its place among these: the longest."""
        return longest_reduce_axis(self.operator)

    @property
    def part(self) -> int:
        """Extent of one part of the longest sum, in whole steps; the last one may be shorter."""
        longest = self.operator.reduce_axes[self.group_axis]
        staged = self.staged[longest.name]
        return -(-longest.extent // (staged * self.parts)) * staged

    @property
    def spatial(self) -> tuple[tuple[int, int], ...]:
        """Block extent and thread extent of each spatial axis."""
        pairs = zip(self.operator.axes, self.shared.shape, self.register.shape, strict=True)
        return tuple((block, thread) for axis, block, thread in pairs if not axis.is_reduce)

    @property
    def chunk(self) -> tuple[int, ...]:
        """Extent of each reduce axis that one group consumes between two barriers."""
        pairs = zip(self.operator.axes, self.shared.shape, strict=True)
        return tuple(extent for axis, extent in pairs if axis.is_reduce)

    @property
    def staged(self) -> dict[str, int]:
        """Extents of the block's tile in shared memory, with all groups' chunks."""
        extents = self.shared.extents(self.operator)
        if self.groups > 1:
            extents[self.operator.reduce_axes[self.group_axis].name] *= self.groups
        return extents

    @property
    def thread_step(self) -> dict[str, int]:
        """Extents of what a thread works through between two barriers."""
        axes = (axis.name for axis in self.operator.reduce_axes)
        return self.register.extents(self.operator) | dict(zip(axes, self.chunk, strict=True))

    @property
    def spread(self) -> dict[str, Spread]:
        """How each spatial axis of a block is shared out among its threads."""
        found = {}
        sliding = self.operator.sliding_axes
        for axis, (block, thread) in zip(self.operator.spatial_axes, self.spatial, strict=True):
            # TVM cannot write several runs where groups of threads share the sum.
            whole = self.groups > 1 or axis.name in sliding
            run = run_length(self.operator, thread, is_whole=whole)
            found[axis.name] = Spread(thread // run, block // thread, run)
        return found

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.groups * math.prod(block // thread for block, thread in self.spatial)

    @property
    def exchanged(self) -> int:
        """Bytes of shared memory in which groups leave their sums."""
        outputs = math.prod(block for block, _ in self.spatial)
        return outputs * self.groups * 4 if self.groups > 1 else 0

    @property
    def grid(self) -> int:
        """Blocks of the kernel."""
        tiles = zip(self.operator.spatial_axes, self.spatial, strict=True)
        return self.parts * math.prod(-(-axis.extent // block) for axis, (block, _) in tiles)

    @property
    def steps(self) -> int:
        """Barrier-separated steps of a block's reduction."""
        staged = self.staged
        summed = {axis.name: axis.extent for axis in self.operator.reduce_axes}
        summed[self.operator.reduce_axes[self.group_axis].name] = self.part
        return math.prod(-(-extent // staged[name]) for name, extent in summed.items())

    def describe(self) -> str:
        """The tile in one line: ``block 1x64x7x7, thread 1x4x1x1, chunk 8x3x3, groups 4``."""
        block = "x".join(str(b) for b, _ in self.spatial)
        thread = "x".join(str(t) for _, t in self.spatial)
        chunk = "x".join(str(c) for c in self.chunk)
        split = f", groups {self.groups}" if self.groups > 1 else ""
        parts = f", parts {self.parts}" if self.parts > 1 else ""
        ahead = ", prefetched" if self.is_prefetched else ""
        return f"block {block}, thread {thread}, chunk {chunk}{split}{parts}{ahead}"
