"""Tiles of attention of few queries: a decode step, whose time is that of reading keys and values.

All queries that read the same keys are the rows of one group: some positions of all heads that
share a head of keys (grouped queries). A group's keys are cut into tiles, as many keys each as a
worker has threads, and tiles are dealt in turn to the workers of all blocks that share the group.
So a cache that is filled to a prefix is as much work for each of them (Dao et al., Flash-Decoding,
2023). Workers do not wait for one another until all have read what is theirs: a worker is a warp,
where there are any, and the blocks of a group are a cluster, where there are any.

A thread has one key of a tile for the first product, and for the second one a few neighbouring
columns of the values of some of its keys. Or, where all are of 16 bits, a warp's tensor core
multiplies a tile: keys by queries, and columns of values by weights, eight rows at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import element_size
from tvm_tile.tile.attention.decode_tile import FRAGMENT, OCTET, Decode, DecodeTile, rooms_of
from tvm_tile.tile.attention.weighing import DIVISION, EXPONENTIAL, FLOAT
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.residency import given_blocks, nameable_registers
from tvm_tile.tile.staging import shared_bytes
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Unit, Work

MOST_ROWS = 16
DTYPES = ("float32", "float16", "bfloat16")
_LANGUAGES = ("cuda", "opencl")  # in others no worker is known
_MOST_WORKERS, _STAGES, _SPLITS = 8, (3, 2, 1), (8, 4, 2, 1)
_FIXED_REGISTERS = 48  # of a thread, for addresses and loops


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
        units = (False, True) if own == vector and _fits_matrices(decode, device) else (False,)
        for splits, own_stages, unit in itertools.product(_SPLITS, stages, units):
            one = DecodeTile(narrowed, device.warp_size, 1, 1, 1, unit)
            fits = splits <= min(device.cluster_size, decode.values.columns)
            for workers in _workers(one.tiles, splits, most) if fits else ():
                tile = replace(one, workers=workers, splits=splits, stages=own_stages)
                if tile.stages <= tile.turns:
                    yield _fitted(tile, device)


def _fits_matrices(decode: Decode, device: Device) -> bool:
    """Whether a warp's tensor core takes what is multiplied as it lies in shared memory."""
    both = decode.keys, decode.values
    is_known = decode.is_narrow and {own.dtype for own in both} <= mma_dtypes(device)
    is_whole = all(own.vector == OCTET and own.columns % FRAGMENT == 0 for own in both)
    return is_known and is_whole and device.kernel_language == "cuda"


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
    sums = rows * tile.runs * decode.values.vector
    if tile.on_matrices:  # 16 columns of eight rows are four of a thread's; and two fragments
        sums = tile.octets * decode.values.columns // FRAGMENT * 4 + 2 * 4
    held = sums + rows * 5
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
    # A worker makes one row after the other, each from what it has loaded at once.
    each = -(-(decode.rows + 2 * decode.appended) // workers)
    made = queries + decode.appended * (decode.keys.columns + decode.values.columns) / tile.lanes
    begun = Part(
        fills=decode.rows * decode.keys.row_bytes,
        operations=made * (1 + 2 * decode.sums) + asked * _OF_A_FLAG,
        moves=made * (2 + decode.sums),
        wavefronts=made,
        loads=each + min(1, decode.appended),
        barriers=1,
        exchanges=each * shuffles * decode.sums,
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
    walk = _walk_on_matrices(tile) if tile.on_matrices else _walk(tile, device)
    return Work(
        unit=Unit.WARP if tile.on_matrices else Unit.CORES,
        dtype=decode.keys.dtype if tile.on_matrices else "",
        blocks=tile.grid,
        resident=given_blocks(device, tile),
        warps=workers,
        parts=(begun, walk, merged, *((joined,) if tile.splits > 1 else ())),
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


def _walk_on_matrices(tile: DecodeTile) -> Part:
    """A step of all workers of a block, each of whose warps multiplies a tile of keys."""
    decode, rows, lanes = tile.decode, tile.decode.rows, tile.lanes
    depth, columns = (own.columns // FRAGMENT for own in (decode.keys, decode.values))
    tall = lanes // FRAGMENT  # fragments of a tile's keys
    fragments, products = tall * (depth + columns), tall * (depth + columns) * tile.octets
    shuffles = (lanes - 1).bit_length()
    weighing = rows * (_OF_A_ROW + 2 * shuffles) + columns * tile.octets * 4
    # Queries, of two depths at once, and weights are fragments, too; scores change hands.
    short = tile.octets * (-(-depth // 2) + 1)
    moved = tall * tile.octets * 4 + -(-rows // 4) + rows
    copies = decode.keys.vectors + decode.values.vectors
    stored = lanes * (decode.keys.row_bytes + decode.values.row_bytes) / WAVEFRONT
    workers = tile.tiles / (tile.splits * tile.turns)
    return Part(
        repeats=tile.turns,
        fills=decode.read_bytes / (tile.splits * tile.turns),
        operations=workers * (products + weighing),
        moves=workers * (fragments + short + moved + copies),
        wavefronts=workers * (4 * (fragments + short) + moved + stored),
        flops=workers * 2 * products * FRAGMENT * FRAGMENT * OCTET,
        loads=1,
        # Two chains of each product's sums.
        steps=-(-depth // 2) + tall,
        exchanges=shuffles + 2,
        ahead=tile.stages,
    )
