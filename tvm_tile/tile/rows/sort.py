"""How the rows of a sort are shared out: chunks in registers, then merges of chunks.

The constants here are chosen for occupancy, not from measurements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.graph.rowwise import Sort
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.asked import WORD, in_sectors, present_blocks
from tvm_tile.tile.cost import SECTOR
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.rows.network import Network
from tvm_tile.tile.rows.rows import RowTile
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, Part, Scene, Work

_LONGEST_CHUNK = 4096
_MOST_ELEMENTS = 16  # of a thread, in registers
_THREADS = 128  # of a block, where rows are short
_MERGE_THREADS = 256  # of a block of a merge
# Instructions of a search's step: a comparison of two words and of the place, two selections, and
# the next place; and of an element: its key, its place among its own and among all.
_OF_A_STEP, _OF_AN_ELEMENT = 8, 8
# Instructions that compare two elements, by the words that stand for each: a word, two words, or
# two that may be equal and then the place.
_COMPARING = {1: 1, 2: 2, 3: 6}


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
        network: which of them are compared.
        merges: the runs that each further kernel merges.
    """

    chunk: int
    network: Network
    merges: tuple[Runs, ...]

    @property
    def elements(self) -> int:
        """Elements of a chunk that a thread holds."""
        return self.chunk // self.threads_per_row

    @property
    def exchanged(self) -> int:
        """Elements of a row that warps show one another at once in shared memory."""
        network = self.network
        if not network.warps:
            return 0
        each = self.elements if network.run > network.near else len(network.left)
        return self.threads_per_row * each

    def describe(self) -> str:
        """The tile in one line, for people."""
        network = self.network
        own = f"{RowTile.describe(self)}, chunks of {self.chunk} in runs of {1 << network.run}"
        bits = f"bits {network.low} + {network.lanes} + {network.high} + {network.warps}"
        return f"{own}, {bits}, {len(self.merges)} merges"


def construct_sort(sort: Sort, device: Device, scene: Scene = AMID) -> SortTile:
    """The fastest tile of a sort of one element or more, whose kernels run in ``scene``."""
    told = (replace(tile, work=work_of(tile, sort, device)) for tile in _tiles(sort, device))
    return ranked(told, device, scene, 1)[0]


def _tiles(sort: Sort, device: Device) -> Iterator[SortTile]:
    """Tiles of any number of elements a thread, which say nothing of their work yet."""
    length, count = sort.rows.length, sort.rows.count
    chunk = max(2, min(_LONGEST_CHUNK, 1 << (length - 1).bit_length()))
    chunks = -(-length // chunk)
    merges = []
    size = min(chunk, sort.kept)
    runs = Runs(chunks, size, size)
    while runs.count > 1:
        merges.append(runs)
        runs = runs.merged(sort.kept)
    use = register_use(device)
    bits, warp = chunk.bit_length() - 1, device.warp_size.bit_length() - 1
    for registers in range(_MOST_ELEMENTS.bit_length()):
        threads = chunk >> registers
        if not 0 < threads <= device.max_threads_per_block:
            continue
        per_block = max(1, _THREADS // threads)
        used = max(use.least, use.beside_rows + (sort.words << registers))
        lanes = min(warp, bits - registers) if device.has_shuffles else 0
        for low in range(registers + 1 if lanes else 1):
            own = (low, lanes, registers - low, bits - registers - lanes)
            network = Network(*own, run=(size - 1).bit_length())
            tile = (count, per_block, threads, chunk, network, tuple(merges))
            yield SortTile(*tile, parts=chunks, registers=used)


def work_of(tile: SortTile, sort: Sort, device: Device) -> Work:
    """What a sort does: its blocks sort chunks, and a kernel for each merge follows."""
    key = sort.words * WORD
    warps = -(-tile.block_size // device.warp_size)
    rows = min(tile.rows, tile.rows_per_block)
    size = element_size(sort.source)
    load = Part(
        fills=rows * in_sectors(min(tile.chunk, sort.rows.length) * size),
        operations=_OF_AN_ELEMENT * warps * tile.elements,
        moves=warps * tile.elements,
        loads=1,
    )
    # Values are read once more, from the cache that the first load has left them in.
    kept = min(tile.chunk, sort.kept)
    written = sort.written / sort.result.elements
    each = warps * -(-kept // tile.threads_per_row)
    passes = key if tile.merges else written
    # Neighbours in a thread's registers go to the same sector one after another.
    pieces = min(1 << tile.network.low, -(-SECTOR // int(passes)))
    store = Part(
        stores=rows * pieces * in_sectors(int(kept * passes)),
        operations=_OF_AN_ELEMENT * each,
        moves=3 * each,
        exchanges=1,
    )
    runs = (*(tile.rows * own.count * own.size * key for own in tile.merges), sort.written)
    return Work(
        blocks=tile.grid,
        resident=present_blocks(device, tile, tile.rows_per_block * tile.exchanged * key),
        warps=warps,
        parts=(load, *_sorting(tile.network, warps, sort.words), store),
        read=sort.traffic - sort.written,
        written=runs[0],
        then=tuple(
            _merging(own, sort, device, runs[place + 1]) for place, own in enumerate(tile.merges)
        ),
    )


def _sorting(network: Network, warps: int, words: int) -> tuple[Part, Part, Part]:
    """What a block does between loads and stores: in registers, between lanes, and between warps.

    A shuffle is an instruction, and takes its way through shared memory, for each word.

    Args:
        network: bits of positions, and the turns that follow from them.
        warps: warps of a block.
        words: words that stand for an element.
    """
    comparing, pairs = _COMPARING[words], 0.0
    kept = shuffled = shown = shuffles = meetings = 0
    for halved, turn in (*((None, turn) for turn in network.sorting), *network.halving):
        live = len(turn.live)
        between_warps, between_lanes, own = network.steps(turn.first)
        if halved is not None and network.place(halved)[0]:
            kept += live
        elif halved is not None:
            between_lanes += halved < network.near
            between_warps += halved >= network.near
        pairs += live * own / 2
        shuffled, shown = shuffled + live * between_lanes, shown + live * between_warps
        shuffles, meetings = shuffles + between_lanes, meetings + between_warps
    one = comparing + words  # to keep one of two
    return (
        Part(operations=warps * (pairs * (comparing + 2 * words) + kept * one)),
        Part(
            repeats=shuffles,
            operations=warps * shuffled * (words + one) / max(1, shuffles),
            wavefronts=warps * shuffled * words / max(1, shuffles),
            exchanges=1,
        ),
        Part(
            repeats=meetings,
            operations=warps * shown * one / max(1, meetings),
            moves=warps * 2 * shown / max(1, meetings),
            wavefronts=warps * 2 * shown * words / max(1, meetings),
            barriers=2,
            exchanges=1,
        ),
    )


def _merging(runs: Runs, sort: Sort, device: Device, written: int) -> Work:
    """What a merge of runs in global memory does, a thread for each element.

    Each step of its search waits for a load. What a step loads is shared by few neighbours.

    Args:
        runs: the runs, of which pairs are merged.
        sort: the sort that they are of.
        device: the device that it is made for.
        written: bytes that the kernel writes.
    """
    key, warps = sort.words * WORD, _MERGE_THREADS // device.warp_size
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
