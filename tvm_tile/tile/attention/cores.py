"""Tiles of attention for units that take their operands from shared memory or registers.

As in ``chain.py``, a block holds some rows of queries and walks the keys, a tile at a time. Scores,
their weights, and what the weights add of the values never leave the chip (Welder, OSDI'23,
section 3). The running softmax is Milakov and Gimelshein's (2018), the walk that of Dao et al.
(2022).

On CUDA cores a block's threads lie in a grid, ``down`` the rows and ``across`` the keys. Each has
``rows / down`` rows by ``keys / across`` keys of the scores, and as many rows by ``columns /
across`` columns of the sums: what it loads of two operands for a step along the depth serves the
product of their numbers. Queries, keys, values and weights lie in shared memory, as float32.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.tile.attention.chain import Chain
from tvm_tile.tile.attention.rounds import WalkingTile, walked_steps
from tvm_tile.tile.attention.weighing import FLOAT, WeighingCounts
from tvm_tile.tile.banks import wavefronts
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.residency import given_blocks, nameable_registers
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work
from tvm_tile.tile.units.product import Operand
from tvm_tile.tile.units.slab import vector_width

VECTOR = 4  # float32 numbers that a thread loads at once
TOGETHER = 8  # vectors that a thread has on their way from global memory at a time
_ROWS_OF_THREAD, _KEYS_OF_THREAD = (1, 2, 4, 8), (1, 2, 4, 8)
_ACROSS, _THREADS = (4, 8, 16, 32), (64, 128, 256)
_FIXED_REGISTERS = 40  # of a thread, for addresses and loops
_DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreTile(WalkingTile):
    """How CUDA cores compute a chain.

    Attributes:
        down: threads along the rows.
        across: threads along the keys, and along the columns, both of which are multiples of it. It
            is a multiple of four itself, and so is the depth.
    """

    down: int
    across: int

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.down * self.across

    @property
    def thread_rows(self) -> int:
        """Rows of a thread, ``down`` apart."""
        return self.rows // self.down

    @property
    def thread_keys(self) -> int:
        """Keys of a thread, ``across`` apart."""
        return self.keys // self.across

    @property
    def thread_columns(self) -> int:
        """Columns of a thread, in vectors ``across`` vectors apart."""
        return self.columns // self.across

    @property
    def column_vector(self) -> int:
        """Neighbouring columns of a thread: 4, 2 or 1."""
        return math.gcd(self.thread_columns, VECTOR)

    @property
    def depth_pitch(self) -> int:
        """Numbers from one query, or key, to the next, such that neighbours' banks differ."""
        return self.depth + VECTOR

    @property
    def key_pitch(self) -> int:
        """Numbers from one row of weights to the next."""
        return self.keys + VECTOR

    def describe(self) -> str:
        """The tile in one line, for people."""
        return f"{WalkingTile.describe(self)}, {self.down} by {self.across} threads"


def construct_core_attention(
    chain: Chain, device: Device, count: int, scene: Scene = AMID
) -> tuple[CoreTile, ...]:
    """The best tiles for CUDA cores, at most ``count``, best first.

    None for element types that the device's matrix units multiply, of other types than floating
    point, and for operands farther than an address reaches. None without a softmax, either: of
    3,136 rows of 96 through 384 to 96, an H200 takes 34.8 us where two kernels take 24.8.

    ``scene`` is where the kernel runs.
    """
    if not chain.has_softmax:
        return ()
    dtypes = {operand.tensor.dtype for operand in chain.operands}
    multiplied = {i.in_dtype for i in device.matrix_instructions} - {"float32"}
    if len(dtypes) > 1 or not dtypes <= set(_DTYPES) or dtypes & multiplied:
        return ()
    if not all(o.is_within_reach for o in chain.operands) or len(chain.second.right.free) != 1:
        return ()
    shapes = itertools.product(_THREADS, _ACROSS, _ROWS_OF_THREAD, _KEYS_OF_THREAD)
    tiles = (_tile(chain, device, *shape) for shape in shapes)
    told = (replace(tile, work=_work(chain, device, tile)) for tile in tiles if tile)
    return ranked(told, device, scene, count)


def _tile(
    chain: Chain, device: Device, threads: int, across: int, each_rows: int, each_keys: int
) -> CoreTile | None:
    """The tile of these extents; ``None`` if it is too large."""
    down = threads // across
    rows, keys = down * each_rows, across * each_keys
    # A tile of half the size would hold everything.
    if rows >= 2 * max(chain.first.left.extent, down) or keys >= 2 * max(chain.keys.extent, across):
        return None
    depth = -(-chain.first.depth.extent // VECTOR) * VECTOR
    columns = -(-chain.second.right.extent // across) * across
    rounds = chain.rounds((rows, keys))
    tile = CoreTile(
        rows=rows,
        keys=keys,
        down=down,
        across=across,
        depth=depth,
        columns=columns,
        rounds=rounds,
        seekers=chain.seekers(rows, threads, rounds),
    )
    operands = (rows + keys) * tile.depth_pitch + keys * columns
    shared = (operands + rows * (tile.key_pitch + across)) * FLOAT + tile.seen_bytes
    tile = replace(tile, shared_bytes=shared, registers=_registers(tile))
    return tile if tile.registers <= nameable_registers(device) else None


def _registers(tile: CoreTile) -> int:
    """Scores, sums, vectors of the operands, what is known of rows, addresses."""
    rows = tile.thread_rows
    held = rows * (tile.thread_keys + tile.thread_columns)
    # Single columns are loaded for several keys at once.
    ahead = VECTOR * tile.thread_columns if tile.column_vector == 1 else 0
    return held + ahead + VECTOR * (rows + 2) + 4 * rows + _FIXED_REGISTERS


def copied_vector(operand: Operand, depth: Axis, is_by_rows: bool) -> int:
    """Elements of an operand that a thread copies at once.

    Args:
        operand: the operand in global memory.
        depth: axis that the operand's product sums along.
        is_by_rows: whether the rows that are copied are contiguous.
    """
    widest = min(VECTOR, VECTOR_BYTES // operand.tensor.element_size)
    return min(widest, vector_width(operand, depth)) if is_by_rows else 1


def _work(chain: Chain, device: Device, tile: CoreTile) -> Work:
    """What a block does: queries, then step by step of the keys both products, and its sums.

    Keys, and then values, are asked for, stored and waited for before they are used.
    """
    warp, threads = device.warp_size, tile.block_size
    own = WeighingCounts(chain, tile, tile.across, warp)
    (rows, keys), (depth, columns, result) = own.sizes, own.row_bytes
    steps, first, values = walked_steps(tile, device), chain.first, chain.second.right
    sizes = tile.rows * tile.depth, tile.keys * tile.depth, tile.keys * tile.columns
    copies = [
        sizes[0] / copied_vector(first.left, first.depth, first.left.is_depth_major),
        sizes[1] / copied_vector(first.right, first.depth, first.right.is_depth_major),
        sizes[2] / copied_vector(values, chain.keys, not values.is_depth_major),
    ]
    trips = [-(-size // (threads * TOGETHER)) for size in copies]
    converted = sum(sizes[1:]) / warp if first.left.tensor.element_size < FLOAT else 0
    products = tile.rows * tile.keys * (tile.depth + tile.columns) / warp
    moves, passes = _shared_accesses(tile, device)
    # What threads tell each other of rows: stores and loads, and how they combine it.
    known, combined = (
        threads * tile.thread_rows * each / warp for each in (1 + tile.across / VECTOR, tile.across)
    )
    weighed = own.operations + own.scaling + combined
    asked = Part(
        fills=rows * depth,
        moves=2 * copies[0] / warp,
        wavefronts=sizes[0] * FLOAT / WAVEFRONT,
        loads=trips[0],
    )
    step = Part(
        repeats=steps,
        fills=keys * (depth + columns),
        operations=products * arithmetic_slots(device) + weighed + converted,
        moves=moves + 2 * sum(copies[1:]) / warp + known,
        wavefronts=passes + sum(sizes[1:]) * FLOAT / WAVEFRONT + known,
        loads=sum(trips[1:]),
        barriers=3,
        exchanges=1,
    )
    stored = tile.rows * tile.columns / tile.column_vector
    leaving = Part(
        stores=rows * result,
        operations=own.division + combined,
        moves=stored / warp + known,
        wavefronts=known,
        barriers=1,
        exchanges=1,
    )
    return Work(
        blocks=tile.grid,
        resident=given_blocks(device, tile),
        warps=-(-threads // warp),
        parts=(asked, step, leaving, *own.beside(steps)),
        read=chain.traffic - chain.written,
        written=chain.written,
    )


def _shared_accesses(tile: CoreTile, device: Device) -> tuple[float, float]:
    """Instructions and wavefronts of all warps, for a step's operands and weights."""
    rows, vector = tile.thread_rows, tile.column_vector
    lane = range(device.warp_size)

    def passes(width: int, pitches: tuple[int, int]) -> int:
        """Wavefronts of a warp, whose threads down and across read so many bytes apart."""
        down, across = pitches
        places = tuple(i // tile.across * down + i % tile.across * across for i in lane)
        return wavefronts(places, width, device.bank_count)

    depth, key = tile.depth_pitch * FLOAT, tile.key_pitch * FLOAT
    four, wide = VECTOR * FLOAT, vector * FLOAT
    # Of a thread: its queries, keys, weights and values, as it loads them, and weights it stores.
    accesses = (
        (rows * tile.depth / VECTOR, passes(four, (depth, 0))),
        (tile.thread_keys * tile.depth / VECTOR, passes(four, (0, depth))),
        (rows * tile.keys / VECTOR, passes(four, (key, 0))),
        (tile.keys * tile.thread_columns / vector, passes(wide, (0, wide))),
        (rows * tile.thread_keys, passes(FLOAT, (key, FLOAT))),
    )
    warps = tile.block_size / device.warp_size
    moves = sum(count for count, _ in accesses)
    return warps * moves, warps * sum(count * each for count, each in accesses)
