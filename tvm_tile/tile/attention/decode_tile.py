"""Attention of few queries, and how blocks compute it: what :mod:`decode` ranks."""

from __future__ import annotations

from dataclasses import dataclass

from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.attention.weighing import FLOAT
from tvm_tile.tile.staging import Room
from tvm_tile.tile.tile import Tile

FRAGMENT, OCTET = 16, 8  # rows and depth of an instruction's left operand, columns of its right one
_NARROWEST = 4  # bytes of an asynchronous copy
_FLAGS = 32  # of tiles, in a register


@dataclass(frozen=True, slots=True)
class Cached:
    """The keys, or the values, that a group reads: rows of neighbouring elements.

    Attributes:
        columns: elements of a row.
        dtype: type of an element.
        vector: neighbours that may be loaded at once, wherever a row begins; divides ``columns``.
    """

    columns: int
    dtype: str
    vector: int

    @property
    def vectors(self) -> int:
        """Loads of a row."""
        return self.columns // self.vector

    @property
    def is_asynchronous(self) -> bool:
        """Whether vectors are wide enough for asynchronous copies."""
        return self.vector * element_size(self.dtype) >= _NARROWEST

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * element_size(self.dtype)

    @property
    def pitch(self) -> int:
        """Elements from a row to the next in shared memory, so that neighbours' banks differ.

        Threads load a vector each, of a row each: an odd number of vectors apart, no two of those
        that are served together lie on the same banks.
        """
        return self.columns + self.vector * (1 - self.vectors % 2)


@dataclass(frozen=True, slots=True)
class Decode:
    """Attention of few queries.

    Attributes:
        groups: sets of rows that read keys of their own.
        rows: rows of a group.
        key_count: keys of a group.
        keys: rows of the depth.
        values: rows of the output's columns.
        traffic: bytes that cross global memory at least.
        sums: sums along a query, or a new key, that it is made of, such as a norm's.
        appended: rows that are written to a group's keys, and to its values, first.
        is_narrow: whether queries and weights are numbers of the keys' and the values' type.
    """

    groups: int
    rows: int
    key_count: int
    keys: Cached
    values: Cached
    traffic: int
    sums: int = 0
    appended: int = 0
    is_narrow: bool = False

    @property
    def read_bytes(self) -> int:
        """Bytes of a group's keys and values."""
        return self.key_count * (self.keys.row_bytes + self.values.row_bytes)

    @property
    def written(self) -> int:
        """Bytes of all results, which are as wide as values, and of the rows that are appended."""
        rows = self.keys.row_bytes + self.values.row_bytes
        return self.groups * (self.rows * self.values.row_bytes + self.appended * rows)


@dataclass(frozen=True, slots=True)
class DecodeTile(Tile):
    """How blocks compute attention of few queries.

    Attributes:
        decode: the decode that is computed.
        lanes: threads of a worker, and keys of its tiles.
        workers: workers of a block.
        splits: blocks that share a group, a cluster.
        stages: tiles that a worker has on their way, or is at.
        on_matrices: whether tensor cores multiply.
    """

    decode: Decode
    lanes: int
    workers: int
    splits: int
    stages: int
    on_matrices: bool = False

    @property
    def grid(self) -> int:
        """Blocks, neighbours those of a group."""
        return self.decode.groups * self.splits

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.lanes * self.workers

    @property
    def tiles(self) -> int:
        """Tiles of keys of a group."""
        return -(-self.decode.key_count // self.lanes)

    @property
    def turns(self) -> int:
        """Tiles of a worker, at most."""
        return -(-self.tiles // (self.workers * self.splits))

    @property
    def chunk(self) -> int:
        """Tiles of a worker about which is asked at once, whether any of their keys is seen."""
        return min(self.turns, _FLAGS)

    @property
    def parts(self) -> int:
        """Threads of a worker that have the same columns, each for keys of its own."""
        if self.on_matrices:
            return 1
        return 1 << max(0, (self.lanes // self.decode.values.vectors).bit_length() - 1)

    @property
    def runs(self) -> int:
        """Vectors of columns of a thread."""
        return -(-self.decode.values.vectors // self.lanes)

    @property
    def row_pitch(self) -> int:
        """Numbers from one key's weights, one a row, to the next one's: whole vectors."""
        rows = self.decode.rows
        return rows if rows < FLOAT else -(-rows // 4) * 4

    @property
    def octets(self) -> int:
        """Instructions side by side that all rows take."""
        return -(-self.decode.rows // OCTET)

    @property
    def weight_pitch(self) -> int:
        """Numbers of a row's weights until those of the next one, which lie on other banks."""
        return self.lanes + OCTET

    @property
    def query_pitch(self) -> int:
        """Numbers from one query to the next."""
        if self.on_matrices:
            return self.decode.keys.pitch
        return -(-self.decode.keys.columns // 4) * 4

    @property
    def stage_elements(self) -> tuple[int, int]:
        """Elements of a stage of one worker: of keys, of values."""
        return self.lanes * self.decode.keys.pitch, self.lanes * self.decode.values.pitch

    @property
    def share(self) -> int:
        """Results that a block of a cluster adds up, of those of the group."""
        return -(-self.decode.rows * self.decode.values.columns // self.splits)

    @property
    def sums(self) -> int:
        """Numbers of all workers' sums, which lie where the stages were."""
        decode = self.decode
        return self.workers * self.parts * decode.rows * decode.values.columns

    def describe(self) -> str:
        """The tile in one line, for people."""
        own = f"{self.workers} by {self.lanes} keys a step, {self.stages} stages"
        split = f", {self.splits} blocks a group" if self.splits > 1 else ""
        unit = ", mma" if self.on_matrices else ""
        return f"{self.decode.rows} rows a block, {own}{split}{unit}"


def rooms_of(tile: DecodeTile) -> tuple[tuple[Room, ...], tuple[Room, ...]]:
    """Layout of a block's shared memory, during the walk through the keys and behind it.

    Both begin with what stays: if blocks share a group, a barrier, and what all of them hand to
    this one, its share of their sums, then their maxima and sums of weights; and the rows that are
    appended to keys and to values, if any. Then queries by rows, the stages of keys, those of
    values, and each worker's weights, for each of its keys those of all rows, or scores so and
    weights by rows, as tensor cores leave and take them; behind the walk each worker's parts of
    sums, and for each row its maximum and its sum of weights.
    """
    decode, stages = tile.decode, tile.workers * tile.stages
    keys, values = (stages * own for own in tile.stage_elements)
    appended = (decode.keys, decode.values) if decode.appended else ()
    stay = [Room(rows.dtype, decode.appended * rows.columns) for rows in appended]
    if tile.splits > 1:
        handed = Room("float32", tile.splits * (tile.share + 2 * decode.rows))
        stay = [Room("uint64", 1), handed, *stay]
    by_keys = Room("float32", tile.workers * tile.lanes * tile.row_pitch)
    by_rows = Room(decode.values.dtype, tile.workers * decode.rows * tile.weight_pitch)
    walk = (
        Room(decode.keys.dtype if tile.on_matrices else "float32", decode.rows * tile.query_pitch),
        Room(decode.keys.dtype, keys),
        Room(decode.values.dtype, values),
        *((by_rows, by_keys) if tile.on_matrices else (by_keys,)),
    )
    sums = tile.sums, tile.workers * decode.rows * 2
    return (*stay, *walk), (*stay, *(Room("float32", size) for size in sums))
