"""How the rows of a scan are shared out among threads and blocks.

Where the elements of a row are neighbours in memory, the threads of a block share it: each scans
vectors of its own, and what is before them comes from the others by shuffles, or through shared
memory. Where the rows are neighbours, each thread scans one. Where there are too few rows to fill
the device, parts of a row go to different blocks, which first find the totals of the parts before
theirs.

The constants here are from how much a memory must be asked for at once, not from measurements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.rowwise import Combine, Scan
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.asked import FEW_IN_FLIGHT, MOST_IN_FLIGHT, WORD, in_sectors, present_blocks
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.rows.rows import RowTile
from tvm_tile.tile.tile import priced
from tvm_tile.tile.time import AMID, Part, Scene, Work

_ELEMENTS = 16  # of a thread, at most, in registers
_MOST_TURNS = 4  # more of one element each are slow to compile for the emulated device
_THREADS = 256
_COLUMN_THREADS = 128
_LOADS_IN_FLIGHT = 8
_BUSY_THREADS = 512  # of a multiprocessor, with so many loads in flight
_BUSY_BLOCKS = 4  # of a multiprocessor, whose threads hold so many elements
_MOST_PARTS_OF_COLUMN = 256  # each thread adds up all before its own
# Instructions that combine two states: an addition; a comparison and two selections, of two words;
# or the larger of two, two exponentials and a logarithm, of four instructions each.
_SIMPLE, _OF_KEYS, _OF_LOGARITHMS = 1, 4, 16


@dataclass(frozen=True, slots=True)
class ScanTile(RowTile):
    """Threads that share rows whose elements are neighbours, a power of two of them each row.

    Or, where rows are neighbours, a thread for each of them, or for each part of one.

    Attributes:
        vector: neighbouring elements that a thread loads at once.
        turns: vectors of a thread in one chunk of a row, on their way together.
        chunks: chunks of each part, one after another.
        lanes: neighbouring threads of a row that read each other's registers; one where a tree in
            shared memory stands in for that.
    """

    vector: int
    turns: int
    chunks: int
    lanes: int = field(default=1, kw_only=True)

    @property
    def chunk(self) -> int:
        """Elements of a row that its threads hold at once."""
        return self.vector * self.turns * self.threads_per_row

    @property
    def warps_per_row(self) -> int:
        """Groups of so many lanes that share a row."""
        return self.threads_per_row // self.lanes

    @property
    def shared_states(self) -> int:
        """States that a block holds in shared memory."""
        if self.are_neighbours or self.warps_per_row == 1:
            return 0
        if self.lanes > 1:
            return self.rows_per_block * self.turns * self.warps_per_row
        return 2 * self.block_size * self.turns

    def describe(self) -> str:
        """The tile in one line, for people."""
        if self.are_neighbours:
            own = f"{self.block_size} a block, {self.turns} loads"
            return f"a thread a row, {own}, {self.parts} parts"
        return f"{RowTile.describe(self)}, thread {self.turns} x {self.vector}, {self.parts} parts"


def construct_scan(scan: Scan, device: Device, scene: Scene = AMID) -> ScanTile:
    """The tile of a scan of one element or more, whose kernels run in ``scene``."""
    tile = _rows(scan, device) if scan.rows.inner == 1 else _columns(scan, device)
    return priced((replace(tile, work=work_of(tile, scan, device)),), device, scene)[0]


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
    lanes = min(device.warp_size, threads) if device.has_shuffles else 1
    return ScanTile(*tile, parts=parts, lanes=lanes)


def _columns(scan: Scan, device: Device) -> ScanTile:
    """The tile of a scan whose rows are neighbours."""
    busy = device.multi_processor_count * _BUSY_THREADS
    unroll = min(_LOADS_IN_FLIGHT, scan.rows.length)
    steps = -(-scan.rows.length // unroll)
    parts = max(1, min(busy // scan.rows.count, steps // 2, _MOST_PARTS_OF_COLUMN))
    steps = -(-steps // parts)
    parts = -(-scan.rows.length // (unroll * steps))
    tile = ScanTile(scan.rows.count, _COLUMN_THREADS, 1, 1, unroll, steps, are_neighbours=True)
    return replace(tile, parts=parts)


def work_of(tile: ScanTile, scan: Scan, device: Device) -> Work:
    """What a scan does: where rows are in parts, first a kernel of their totals."""
    walk = _ScanBlocks(tile, scan, device)
    if tile.parts == 1:
        return walk.scanned(0)
    totals = tile.rows * tile.parts * walk.state_bytes
    return replace(walk.added_up(totals), then=(walk.scanned(totals),))


@dataclass(frozen=True, slots=True)
class _ScanBlocks:
    """How a block's threads go along its rows.

    All properties are of one chunk of all of a block's rows.
    """

    tile: ScanTile
    scan: Scan
    device: Device

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.tile.block_size // self.device.warp_size)

    @property
    def is_extreme(self) -> bool:
        """Whether a state is a key, with its place in one word or beside it."""
        return self.scan.combine in (Combine.LARGEST, Combine.SMALLEST)

    @property
    def state_bytes(self) -> int:
        """Bytes of a state."""
        if self.is_extreme:
            return 8 if element_size(self.scan.source) <= 4 else 12
        return max(4, element_size(self.scan.result))

    @property
    def combining(self) -> float:
        """Instructions that combine two states."""
        is_log = self.scan.combine is Combine.LOG_SUM_EXP
        count = _OF_LOGARITHMS if is_log else _OF_KEYS if self.is_extreme else _SIMPLE
        return count * arithmetic_slots(self.device)

    @property
    def elements(self) -> int:
        """Elements of a thread."""
        return self.tile.turns * self.tile.vector

    def asked(self, size: int) -> int:
        """Bytes in whole sectors of elements of ``size`` bytes."""
        tile = self.tile
        rows = min(tile.rows, tile.rows_per_block)
        if tile.are_neighbours:
            return tile.turns * in_sectors(rows * size)
        return rows * in_sectors(min(tile.chunk, self.scan.rows.length) * size)

    def moves(self, size: int) -> int:
        """Instructions that move elements of ``size`` bytes."""
        return self.warps * self.tile.turns * -(-self.tile.vector * size // VECTOR_BYTES)

    def load(self) -> Part:
        """Load elements, and combine those of a vector.

        Where threads do not share rows, nothing is between chunks but tests of whether they end.
        """
        tile, size = self.tile, element_size(self.scan.source)
        is_whole = self.scan.rows.length == tile.parts * tile.chunks * tile.chunk
        together = max(1, MOST_IN_FLIGHT // tile.turns)
        return Part(
            repeats=tile.chunks,
            fills=self.asked(size),
            operations=self.warps * self.elements * self.combining,
            moves=self.moves(size),
            loads=1,
            ahead=min(tile.chunks, together) if tile.are_neighbours and is_whole else 1,
        )

    def shared(self, repeats: int, turns: int) -> Part:
        """Steps after each of which a thread knows the states of twice as many before it.

        A state is written, and in each step two are read and one is written.
        """
        if self.tile.lanes > 1:
            return self._shuffled(repeats, turns)
        steps = self.tile.threads_per_row.bit_length() - 1
        moves = (2 + 1) * self.warps * turns
        return Part(
            repeats=repeats * steps,
            operations=self.warps * turns * self.combining,
            moves=moves,
            wavefronts=moves * self.state_bytes / WORD,
            barriers=1,
            exchanges=1,
        )

    def _shuffled(self, repeats: int, turns: int) -> Part:
        """What it takes by shuffles, each an instruction and a wavefront for each word.

        Where several warps share a row, the last lane of each stores its state, and all wait.
        """
        steps, words = self.tile.lanes.bit_length() - 1, self.state_bytes // WORD
        are_many = self.tile.warps_per_row > 1
        each = self.warps * turns
        return Part(
            repeats=repeats,
            operations=steps * each * (self.combining + words),
            moves=are_many * each,
            wavefronts=(steps + are_many) * each * words,
            barriers=are_many,
            exchanges=steps + are_many,
        )

    def store(self) -> Part:
        """Combine elements with what is before them, and store results."""
        tile = self.tile
        sizes = [element_size(self.scan.result), *([8] if self.scan.has_places else [])]
        shares = tile.threads_per_row > 1
        # Where threads share a row, each reads the states before its vector and of all.
        groups = tile.warps_per_row if tile.lanes > 1 else 1
        read = shares * (1 + groups) * self.warps * tile.turns
        is_shuffled = tile.lanes > 1 and groups == 1
        return Part(
            repeats=tile.chunks,
            stores=sum(map(self.asked, sizes)),
            operations=self.warps * (self.elements + shares * (1 + groups)) * self.combining
            + is_shuffled * read,
            moves=(not is_shuffled) * read + sum(map(self.moves, sizes)),
            wavefronts=read * self.state_bytes / WORD,
            barriers=shares * (0 if is_shuffled else 1 if tile.lanes > 1 else 2),
            exchanges=shares,
        )

    def before(self) -> Part:
        """Load the totals of the parts before a block's own, and combine them.

        The threads of a row share them; each thread of neighbouring rows has all of them, some on
        their way at once. That of the last block is described, which the others wait for.
        """
        tile = self.tile
        laps = -(-tile.parts // tile.threads_per_row)
        ahead = min(laps, FEW_IN_FLIGHT) if tile.are_neighbours else 1
        rows = min(tile.rows, tile.rows_per_block)
        each = min(tile.parts, tile.threads_per_row)
        runs, run = (1, rows) if tile.are_neighbours else (rows, each)
        return Part(
            repeats=laps / ahead,
            fills=ahead * runs * in_sectors(run * self.state_bytes),
            operations=self.warps * ahead * self.combining,
            moves=self.warps * ahead,
            loads=1,
        )

    def added_up(self, totals: int) -> Work:
        """The kernel that writes ``totals`` bytes, one state for each part of a row."""
        each = in_sectors(self.state_bytes)
        rows = min(self.tile.rows, self.tile.rows_per_block)
        count = in_sectors(rows * self.state_bytes) if self.tile.are_neighbours else rows * each
        end = Part(stores=count, moves=self.warps)
        read = self.scan.traffic - self.scan.written
        return self._work((self.load(), self.shared(1, 1), end), read, totals)

    def scanned(self, totals: int) -> Work:
        """The kernel that writes results; ``totals`` bytes of totals come from one before."""
        tile, scan = self.tile, self.scan
        before = (self.before(), self.shared(1, 1)) if totals else ()
        parts = (*before, self.load(), self.shared(tile.chunks, tile.turns), self.store())
        return self._work(parts, scan.traffic - scan.written + totals, scan.written)

    def _work(self, parts: tuple[Part, ...], read: int, written: int) -> Work:
        """The work of a kernel of these parts."""
        held = self.tile.shared_states * self.state_bytes
        return Work(
            blocks=self.tile.grid,
            resident=present_blocks(self.device, self.tile, held),
            warps=self.warps,
            parts=parts,
            read=read,
            written=written,
        )
