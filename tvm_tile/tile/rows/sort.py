"""How the rows of a sort are shared out: chunks in shared memory, then merges of chunks.

The constants here are chosen for occupancy, not from measurements.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.graph.rowwise import Sort
from tvm_tile.tile.rows.rows import RowTile

_LONGEST_CHUNK = 4096
_THREADS = 128  # of a block, where rows are short


@dataclass(frozen=True, slots=True)
class Runs:
    """Sorted runs of one row, before a merge.

    Attributes:
        count: their number.
        size: elements of each but the last; also the distance of their beginnings.
        last: elements of the last one.
    """

    count: int
    size: int
    last: int

    def merged(self, kept: int) -> Runs:
        """The runs after each pair has become one, of which only the first ``kept`` are wanted."""
        size = min(2 * self.size, kept)
        last = self.last if self.count % 2 else min(self.size + self.last, kept)
        return Runs(-(-self.count // 2), size, last)


@dataclass(frozen=True, slots=True)
class SortTile(RowTile):
    """Launch shape of the kernel that sorts chunks, and the merges behind it.

    A power of two of threads share a row.

    Attributes:
        chunk: elements of a row that a block sorts at once: a power of two. Of a longer row each
            block has one.
        merges: the runs that each further kernel merges.
    """

    chunk: int
    merges: tuple[Runs, ...]

    @property
    def elements(self) -> int:
        """Elements of a chunk that a thread holds."""
        return self.chunk // self.threads_per_row

    def describe(self) -> str:
        """The tile in one line, for people."""
        own = RowTile.describe(self)
        return f"{own}, chunks of {self.chunk}, {len(self.merges)} merges"


def construct_sort(sort: Sort, device: Device) -> SortTile:
    """The tile of a sort of one element or more."""
    length, count = sort.rows.length, sort.rows.count
    chunk = max(2, min(_LONGEST_CHUNK, 1 << (length - 1).bit_length()))
    chunks = -(-length // chunk)
    elements = 8 if chunk >= 2048 else 4 if chunk >= 256 else 1
    threads = chunk // elements
    merges = []
    size = min(chunk, sort.kept)
    runs = Runs(chunks, size, size)
    while runs.count > 1:
        merges.append(runs)
        runs = runs.merged(sort.kept)
    per_block = max(1, _THREADS // threads)
    waves = -(-count * chunks // (per_block * device.multi_processor_count))
    moved = sort.traffic / device.memory(MemoryLevel.GLOBAL).bandwidth
    times = device.times.sort
    steps = waves * chunk.bit_length() * (times.step_cycles / device.clock)
    seconds = max(moved, steps) + len(merges) * (times.merge_cycles / device.clock)
    seconds += (1 + len(merges)) * device.launch_latency
    tile = (count, per_block, threads, chunk, tuple(merges))
    return SortTile(*tile, parts=chunks, seconds=seconds)
