"""How the rows of a sort are shared out: chunks in shared memory, then merges of chunks.

The constants here are chosen for occupancy, not from measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.graph.rowwise import Sort
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.asked import WORD, in_sectors, present_blocks
from tvm_tile.tile.cost import SECTOR
from tvm_tile.tile.rows.rows import RowTile
from tvm_tile.tile.tile import priced
from tvm_tile.tile.time import AMID, Part, Scene, Work

_LONGEST_CHUNK = 4096
_THREADS = 128  # of a block, where rows are short
_MERGE_THREADS = 256  # of a block of a merge
# Instructions of a search's step: a comparison of two words and of the place, two selections, and
# the next place; and of an element: its key, its place among its own and among all.
_OF_A_STEP, _OF_AN_ELEMENT = 8, 8


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


def construct_sort(sort: Sort, device: Device, scene: Scene = AMID) -> SortTile:
    """The tile of a sort of one element or more, whose kernels run in ``scene``."""
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
    tile = (count, per_block, threads, chunk, tuple(merges))
    found = SortTile(*tile, parts=chunks)
    return priced((replace(found, work=work_of(found, sort, device)),), device, scene)[0]


def work_of(tile: SortTile, sort: Sort, device: Device) -> Work:
    """What a sort does: its blocks sort chunks, and a kernel for each merge follows.

    Each of a chunk's turns merges pairs of runs of twice the length of those before. An element
    finds its place by a search, whose steps wait for one another; a thread's own elements do not.
    """
    warps, key = -(-tile.block_size // device.warp_size), _key_bytes(sort)
    rows = min(tile.rows, tile.rows_per_block)
    turns, most = tile.chunk.bit_length() - 1, (sort.kept - 1).bit_length()
    bits = [min(turn, most) for turn in range(turns)]
    # Of longer runs only the first elements go on, by the number that is kept.
    active = [1 / (1 << turn - own) for turn, own in enumerate(bits)]
    steps = sum(bits) / turns + 1
    searched = sum(share * (own + 1) for share, own in zip(active, bits, strict=True)) / turns
    passed = sum(active) / turns  # an element's load before the search; behind it, its store
    touched = warps * tile.elements * (searched + 2 * passed)
    size = element_size(sort.source)
    load = Part(
        fills=rows * in_sectors(min(tile.chunk, sort.rows.length) * size),
        operations=_OF_AN_ELEMENT * warps * tile.elements,
        moves=2 * warps * tile.elements,
        wavefronts=warps * tile.elements * key / WORD,
        loads=1,
    )
    turn = Part(
        repeats=turns,
        operations=warps * tile.elements * (searched * _OF_A_STEP + passed * _OF_AN_ELEMENT),
        moves=touched,
        wavefronts=touched * key / WORD,
        barriers=2,
        exchanges=steps + 2,
    )
    # Values are read once more, from the cache that the first load has left them in.
    kept = min(tile.chunk, sort.kept)
    written = sort.written / sort.result.elements
    each = warps * -(-kept // tile.threads_per_row)
    passes = key if tile.merges else written
    store = Part(
        stores=rows * in_sectors(int(kept * passes)),
        operations=_OF_AN_ELEMENT * each,
        moves=3 * each,
        wavefronts=each * key / WORD,
        barriers=1,
        exchanges=2,
    )
    runs = (*(tile.rows * own.count * own.size * key for own in tile.merges), sort.written)
    return Work(
        blocks=tile.grid,
        resident=present_blocks(device, tile, tile.rows_per_block * tile.chunk * key),
        warps=warps,
        parts=(load, turn, store),
        read=sort.traffic - sort.written,
        written=runs[0],
        then=tuple(
            _merging(own, sort, device, runs[place + 1]) for place, own in enumerate(tile.merges)
        ),
    )


def _key_bytes(sort: Sort) -> int:
    """Bytes of what stands for an element: a key and its place, in one word or in two."""
    return 8 if element_size(sort.source) <= WORD else 12


def _merging(runs: Runs, sort: Sort, device: Device, written: int) -> Work:
    """What a merge of runs in global memory does, a thread for each element.

    Each step of its search waits for a load. What a step loads is shared by few neighbours.

    Args:
        runs: the runs, of which pairs are merged.
        sort: the sort that they are of.
        device: the device that it is made for.
        written: bytes that the kernel writes.
    """
    key, warps = _key_bytes(sort), _MERGE_THREADS // device.warp_size
    count = sort.rows.count * ((runs.count - 1) * runs.size + runs.last)
    is_last = runs.merged(sort.kept).count == 1
    steps = runs.size.bit_length()
    own = in_sectors(_MERGE_THREADS * key)
    blocks = -(-count // _MERGE_THREADS)
    load = Part(fills=own, operations=_OF_AN_ELEMENT * warps, moves=warps * key / WORD / 2, loads=1)
    step = Part(repeats=steps, fills=own, operations=_OF_A_STEP * warps, moves=warps, loads=1)
    # The last one stores values, which it reads where they were, each of another sector.
    store = Part(
        fills=_MERGE_THREADS * SECTOR if is_last else 0,
        stores=written / blocks,
        operations=_OF_AN_ELEMENT * warps,
        moves=(1 + is_last) * warps,
        loads=1 if is_last else 0,
    )
    return Work(
        blocks=blocks,
        resident=device.max_threads_per_multi_processor // _MERGE_THREADS,
        warps=warps,
        parts=(load, step, store),
        read=count * key,
        written=written,
    )
