"""How the rows of a scan are shared out among threads and blocks.

Where the elements of a row are neighbours in memory, the threads of a block share it: each scans
vectors of its own, and what is before them comes from the others through shared memory. Where the
rows are neighbours, each thread scans one. Where there are too few rows to fill the device, parts
of a row go to different blocks, which first find the totals of the parts before theirs.

The constants here are from how much a memory must be asked for at once, not from measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.graph.rowwise import Scan
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.rows.rows import RowTile

_ELEMENTS = 16  # of a thread, at most, in registers
_MOST_TURNS = 4  # more of one element each are slow to compile for the emulated device
_THREADS = 256
_COLUMN_THREADS = 128
_LOADS_IN_FLIGHT = 8
_BUSY_THREADS = 512  # of a multiprocessor, with so many loads in flight
_BUSY_BLOCKS = 4  # of a multiprocessor, whose threads hold so many elements
_MOST_PARTS_OF_COLUMN = 256  # each thread adds up all before its own


@dataclass(frozen=True, slots=True)
class ScanTile(RowTile):
    """Threads that share rows whose elements are neighbours, a power of two of them each row.

    Or, where rows are neighbours, a thread for each of them, or for each part of one.

    Attributes:
        vector: neighbouring elements that a thread loads at once.
        turns: vectors of a thread in one chunk of a row, on their way together.
        chunks: chunks of each part, one after another.
    """

    vector: int
    turns: int
    chunks: int

    @property
    def chunk(self) -> int:
        """Elements of a row that its threads hold at once."""
        return self.vector * self.turns * self.threads_per_row

    def describe(self) -> str:
        """The tile in one line, for people."""
        if self.are_neighbours:
            own = f"{self.block_size} a block, {self.turns} loads"
            return f"a thread a row, {own}, {self.parts} parts"
        return f"{RowTile.describe(self)}, thread {self.turns} x {self.vector}, {self.parts} parts"


def construct_scan(scan: Scan, device: Device) -> ScanTile:
    """The tile of a scan of one element or more."""
    return _rows(scan, device) if scan.rows.inner == 1 else _columns(scan, device)


def _rows(scan: Scan, device: Device) -> ScanTile:
    """The tile of a scan along neighbouring elements."""
    widest = max(element_size(scan.source), element_size(scan.result), 8 * scan.has_places)
    # OpenCL has no vectors of truth values.
    widths = (1,) if scan.source == "bool" else (8, 4, 2, 1)
    vector = next(v for v in widths if scan.rows.length % v == 0 and v * widest <= VECTOR_BYTES)
    count = scan.rows.length // vector
    most_turns = min(_MOST_TURNS, _ELEMENTS // vector)
    threads = 1
    while threads < _THREADS and threads * most_turns < count:
        threads *= 2
    # Short rows: more threads with fewer elements each, as long as each has a vector.
    busy = device.multi_processor_count * _BUSY_THREADS
    while threads < min(_THREADS, count) and threads * scan.rows.count < busy:
        threads *= 2
    turns = min(most_turns, -(-count // threads))
    chunks = -(-count // (turns * threads))
    per_block = 1 if threads >= _THREADS else max(1, _COLUMN_THREADS // threads)
    wanted = device.multi_processor_count * _BUSY_BLOCKS
    parts = 1
    if scan.rows.count < wanted // 2 and chunks > 1:
        parts = min(chunks, -(-wanted // scan.rows.count))
        chunks = -(-chunks // parts)
        parts = -(-count // (turns * threads * chunks))
    tile = (scan.rows.count, per_block, threads, vector, turns, chunks)
    return ScanTile(*tile, parts=parts, seconds=_seconds(scan, device, parts))


def _columns(scan: Scan, device: Device) -> ScanTile:
    """The tile of a scan whose rows are neighbours."""
    busy = device.multi_processor_count * _BUSY_THREADS
    unroll = min(_LOADS_IN_FLIGHT, scan.rows.length)
    steps = -(-scan.rows.length // unroll)
    parts = max(1, min(busy // scan.rows.count, steps // 2, _MOST_PARTS_OF_COLUMN))
    steps = -(-steps // parts)
    parts = -(-scan.rows.length // (unroll * steps))
    tile = ScanTile(scan.rows.count, _COLUMN_THREADS, 1, 1, unroll, steps, are_neighbours=True)
    return replace(tile, parts=parts, seconds=_seconds(scan, device, parts))


def _seconds(scan: Scan, device: Device, parts: int) -> float:
    """Elements go through memory once, and are read once more where totals come first."""
    again = scan.traffic - scan.written if parts > 1 else 0
    moved = (scan.traffic + again) / device.memory(MemoryLevel.GLOBAL).bandwidth
    kernels = 2 if parts > 1 else 1
    stage = device.times.scan.kernel_cycles / device.clock
    return max(moved, kernels * stage) + kernels * device.launch_latency
