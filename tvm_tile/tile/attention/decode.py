"""Tiles of attention of few queries: a decode step, whose time is that of reading keys and values.

All queries that read the same keys are the rows of one group: some positions of all heads that
share a head of keys (grouped queries). A group's keys are cut into tiles, as many keys each as a
worker has threads, and tiles are dealt in turn to the workers of all blocks that share the group.
So a cache that is filled to a prefix is as much work for each of them (Dao et al., Flash-Decoding,
2023). Workers do not wait for one another until all have read what is theirs: a worker is a warp,
where there are any, and the blocks of a group are a cluster, where there are any.

A thread has one key of a tile for the first product, and for the second one a few neighbouring
columns of the values of some of its keys.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.attention.weighing import DIVISION, EXPONENTIAL, FLOAT
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.residency import given_blocks, nameable_registers
from tvm_tile.tile.staging import Room, shared_bytes
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work

MOST_ROWS = 16
DTYPES = ("float32", "float16", "bfloat16")
_LANGUAGES = ("cuda", "opencl")  # in others no worker is known
_NARROWEST = 4  # bytes of an asynchronous copy
_FLAGS = 32  # of tiles, in a register
_MOST_WORKERS, _STAGES, _SPLITS = 8, (3, 2, 1), (8, 4, 2, 1)
_FIXED_REGISTERS = 48  # of a thread, for addresses and loops


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
    """

    groups: int
    rows: int
    key_count: int
    keys: Cached
    values: Cached
    traffic: int
    sums: int = 0
    appended: int = 0

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
    """

    decode: Decode
    lanes: int
    workers: int
    splits: int
    stages: int

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
    def query_pitch(self) -> int:
        """Numbers from one query to the next."""
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
        return f"{self.decode.rows} rows a block, {own}{split}"


def rooms_of(tile: DecodeTile) -> tuple[tuple[Room, ...], tuple[Room, ...]]:
    """Layout of a block's shared memory, during the walk through the keys and behind it.

    Both begin with what stays: if blocks share a group, what all of them hand to this one, its
    share of their sums, then their maxima and sums of weights; and the rows that are appended to
    keys and to values, if any. Then queries by rows, the stages of keys, those of values, and each
    worker's weights, for each of its keys those of all rows; behind the walk each worker's parts of
    sums, and for each row its maximum and its sum of weights.
    """
    decode, stages = tile.decode, tile.workers * tile.stages
    keys, values = (stages * own for own in tile.stage_elements)
    appended = (decode.keys, decode.values) if decode.appended else ()
    stay = [Room(rows.dtype, decode.appended * rows.columns) for rows in appended]
    if tile.splits > 1:
        stay.insert(0, Room("float32", tile.splits * (tile.share + 2 * decode.rows)))
    walk = (
        Room("float32", decode.rows * tile.query_pitch),
        Room(decode.keys.dtype, keys),
        Room(decode.values.dtype, values),
        Room("float32", tile.workers * tile.lanes * tile.row_pitch),
    )
    sums = tile.sums, tile.workers * decode.rows * 2
    return (*stay, *walk), (*stay, *(Room("float32", size) for size in sums))


def vector_of(dtype: str, distances: Iterator[int]) -> int:
    """Neighbours that may be loaded at once: a power of two that divides all ``distances``."""
    vector = VECTOR_BYTES // element_size(dtype)
    for distance in distances:
        vector = math.gcd(vector, distance)
    return vector


def construct_decode(
    decode: Decode, device: Device, count: int, scene: Scene = AMID
) -> tuple[DecodeTile, ...]:
    """The best tiles, at most ``count``, best first; there are none of more rows than a thread can
    hold, of other types than floating point, and for devices whose threads are no workers yet.

    ``scene`` is where the kernel runs.
    """
    dtypes = {decode.keys.dtype, decode.values.dtype}
    if decode.rows > MOST_ROWS or dtypes - set(DTYPES) or device.kernel_language not in _LANGUAGES:
        return ()
    tiles = _tiles(decode, device)
    told = (replace(tile, work=_work(tile, device)) for tile in tiles if tile)
    return ranked(told, device, scene, count)


def _tiles(decode: Decode, device: Device) -> Iterator[DecodeTile | None]:
    """All tiles of decode attention, ``None`` for those that leave workers idle or do not fit."""
    # Threads that do not run in lock step are one worker: all of a block.
    is_warp = device.kernel_language == "cuda"
    most = _MOST_WORKERS if is_warp else 1
    stages = _STAGES if device.has_asynchronous_copies else (1,)
    vector = decode.values.vector
    # Many rows have no registers for wide vectors of sums.
    for own in (vector, *([vector // 2] if vector > 1 else [])):
        narrowed = replace(decode, values=replace(decode.values, vector=own))
        one = DecodeTile(narrowed, device.warp_size, 1, 1, 1)
        for splits, own_stages in itertools.product(_SPLITS, stages):
            fits = splits <= min(device.cluster_size, decode.values.columns)
            for workers in _workers(one.tiles, splits, most) if fits else ():
                tile = replace(one, workers=workers, splits=splits, stages=own_stages)
                if tile.stages <= tile.turns:
                    yield _fitted(tile, device)


def _workers(tiles: int, splits: int, most: int) -> list[int]:
    """Numbers of workers of which each takes as many turns and with one fewer some take more; most
    workers first. There are none where half of the blocks would have no tile."""
    if splits >= 2 * tiles:
        return []
    turns = range(1, -(-tiles // splits) + 1)
    own = {-(-tiles // (splits * number)) for number in turns}
    return sorted((number for number in own if number <= most), reverse=True)


def _fitted(tile: DecodeTile, device: Device) -> DecodeTile | None:
    """The tile with what it takes; ``None`` where no block has as much."""
    decode = tile.decode
    rows, vector = decode.rows, max(decode.keys.vector, decode.values.vector)
    held = rows * (tile.runs * decode.values.vector + 5)
    registers = held + 3 * vector + _FIXED_REGISTERS
    shared = max(map(shared_bytes, rooms_of(tile)))
    if registers > nameable_registers(device):
        return None
    return replace(tile, shared_bytes=shared, registers=registers)


# Instructions of a thread. A row of a tile: its element and whether that is there (three), its
# maximum, what that grew by, the weight, with their exponentials, and the sum. A tile about which
# is asked: whether its key is there, kept as a bit, a vote, and the bit for all.
_OF_A_ROW, _OF_A_FLAG, _OF_A_PART = 9 + 2 * EXPONENTIAL, 7, 4 + EXPONENTIAL


def _work(tile: DecodeTile, device: Device) -> Work:
    """What a block does: queries, its workers' tiles, their sums, and those of its cluster."""
    decode, workers = tile.decode, tile.workers
    outputs = decode.rows * decode.values.columns / tile.lanes  # instructions, one each
    shuffles = (tile.lanes - 1).bit_length()
    queries = decode.rows * decode.keys.columns / tile.lanes
    asked = workers * -(-tile.turns // tile.chunk) * tile.chunk
    # Of the blocks of a group one makes the rows that are appended, at places that it loads first.
    made = queries + decode.appended * (decode.keys.columns + decode.values.columns) / tile.lanes
    begun = Part(
        fills=decode.rows * decode.keys.row_bytes,
        operations=made * (1 + 2 * decode.sums) + asked * _OF_A_FLAG,
        moves=made * (2 + decode.sums),
        wavefronts=made,
        loads=1 + decode.sums + min(1, decode.appended),
        barriers=1,
        exchanges=shuffles * decode.sums,
    )
    own = workers * decode.rows * tile.runs * decode.values.vector  # of all threads' sums
    merged = Part(
        stores=decode.written / tile.grid,
        operations=outputs * (workers * (tile.parts + _OF_A_PART) + DIVISION),
        moves=own + outputs * (workers * (tile.parts + 2) + 1),
        wavefronts=own + outputs * workers * (tile.parts + 2),
        barriers=2,
        exchanges=shuffles + 2,
    )
    # Each block adds up its share of what all blocks of the cluster have handed to it.
    joined = Part(
        operations=outputs / tile.splits * (tile.splits * _OF_A_PART + DIVISION),
        moves=4 * outputs,
        wavefronts=4 * outputs,
        meetings=1,
    )
    return Work(
        blocks=tile.grid,
        resident=given_blocks(device, tile),
        warps=workers,
        parts=(begun, _walk(tile, device), merged, *((joined,) if tile.splits > 1 else ())),
        read=decode.traffic - decode.written,
        written=decode.written,
        asked=min(1.0, tile.stages / tile.turns) * decode.groups * decode.read_bytes,
    )


def _walk(tile: DecodeTile, device: Device) -> Part:
    """A step of all workers of a block, each of which has a tile of keys."""
    decode, rows, lanes = tile.decode, tile.decode.rows, tile.lanes
    depth, columns = decode.keys.columns, tile.runs * decode.values.vector
    keys = lanes // tile.parts
    products = rows * (depth + columns * keys) * arithmetic_slots(device)
    sizes = [element_size(own.dtype) for own in (decode.keys, decode.values)]
    read = zip((depth, columns * keys), sizes, strict=True)
    converted = sum(count for count, size in read if size < FLOAT)
    shuffles = (lanes - 1).bit_length()
    weighing = rows * (_OF_A_ROW + 2 * shuffles + columns)
    # Of keys a vector, and queries by fours; then for each of the thread's keys weights and values.
    loads = decode.keys.vectors, keys * tile.runs
    shared = decode.keys.vectors * rows * max(1, decode.keys.vector // 4)
    shared += keys * -(-tile.row_pitch // 4)
    copies = decode.keys.vectors + decode.values.vectors
    vectors = [
        own.vector * size for own, size in zip((decode.keys, decode.values), sizes, strict=True)
    ]
    passes = sum(n * max(1.0, v * lanes / WAVEFRONT) for n, v in zip(loads, vectors, strict=True))
    stored = lanes * (decode.keys.row_bytes + decode.values.row_bytes) / WAVEFRONT
    is_wide = decode.keys.is_asynchronous and decode.values.is_asynchronous
    is_asynchronous = device.has_asynchronous_copies and is_wide
    # Workers that have no tile in the last turn are none.
    workers = tile.tiles / (tile.splits * tile.turns)
    return Part(
        repeats=tile.turns,
        fills=decode.read_bytes / (tile.splits * tile.turns),
        operations=workers * (products + converted + weighing),
        moves=workers * (sum(loads) + shared + rows + copies * (1 if is_asynchronous else 2)),
        wavefronts=workers * (passes + shared + rows * math.gcd(tile.row_pitch, lanes) + stored),
        loads=1,
        # Workers that are no warps meet three times, and twice where they look for maxima.
        barriers=0 if device.kernel_language == "cuda" else 5,
        exchanges=shuffles + 1,
        ahead=tile.stages if is_asynchronous else 1,
    )
