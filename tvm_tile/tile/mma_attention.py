"""Tiles of attention for the tensor cores' warp instructions (mma), fed by asynchronous copies.

As in ``attention.py``, a block holds some rows of queries and walks the keys. Each of its warps has
16 rows, all keys of a tile and all columns: a tile's weights go from the registers of the first
product's sums to those of the second one's left operand, and what is known of a row is four lanes'.
Queries, a tile of keys and one of values lie in shared memory; keys of the next tile are on their
way while values are multiplied, values while scores are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.device.matrix_times import MmaAttentionTimes
from tvm_tile.device.times import needed
from tvm_tile.tile.attention import fill_cycles
from tvm_tile.tile.chain import Chain
from tvm_tile.tile.limits import norm
from tvm_tile.tile.mma import WARP, matrix_rate, mma_dtypes
from tvm_tile.tile.residency import fitting_blocks, given_registers
from tvm_tile.tile.rounds import Rounds
from tvm_tile.tile.slab import ELEMENT, FRAGMENT, Slab, vector_width
from tvm_tile.tile.sum_layout import CORNER_PITCH, CORNER_ROWS

WARP_ROWS = FRAGMENT
_WARPS, _KEYS = (2, 4, 8), (16, 32, 64, 128)
_WIDEST = 256  # depth of the first product, and columns of the second one
_FARTHEST = 1 << 31  # elements that an address reaches


@dataclass(frozen=True, slots=True)
class MmaAttentionTile:
    """How warps compute a chain.

    Attributes:
        warps: of a block, with 16 rows each.
        keys: of a step, a power of two of at least 16.
        depth: of the first product, up to a multiple of 16.
        columns: of the second product, up to a multiple of 16.
        rounds: which tile of rows, of which batch, a block takes.
        slabs: how queries, keys and values lie in shared memory.
        shared_bytes: of a block.
        registers: of a thread, as the model reckons.
        seconds: predicted time.
    """

    warps: int
    keys: int
    depth: int
    columns: int
    rounds: Rounds
    slabs: tuple[Slab, Slab, Slab]
    shared_bytes: int
    registers: int
    seconds: float

    @property
    def rows(self) -> int:
        """Of a block."""
        return WARP_ROWS * self.warps

    @property
    def grid(self) -> int:
        """Blocks, one for each tile of rows of each batch."""
        return self.rounds.items

    @property
    def block_size(self) -> int:
        """Threads."""
        return WARP * self.warps

    @property
    def store_shape(self) -> tuple[int, int, int]:
        """Floats through which sums go out, a corner a warp, where operands were."""
        return (self.warps, CORNER_ROWS, CORNER_PITCH)

    @property
    def reaches_values(self) -> bool:
        """Whether sums go out through memory where values are."""
        return math.prod(self.store_shape) * 4 > self.slabs[-1].start

    def describe(self) -> str:
        """One line for people."""
        return f"block {self.rows} rows by {self.columns}, {self.keys} keys a step, mma"


def construct_mma_attention(
    chain: Chain, device: Device, count: int
) -> tuple[MmaAttentionTile, ...]:
    """At most ``count`` tiles, best first; none if the device or the operands refuse."""
    dtypes = {operand.tensor.dtype for operand in chain.operands}
    if len(dtypes) > 1 or not dtypes <= mma_dtypes(device):
        return ()
    if any(o.size // ELEMENT >= _FARTHEST for o in chain.operands):
        return ()
    if len(chain.second.right.free) != 1:
        return ()
    if max(chain.first.depth.extent, chain.second.right.extent) > _WIDEST:
        return ()
    tiles = sorted(_tiles(chain, device), key=lambda tile: tile.seconds)
    return tuple(tiles[:count])


def _tiles(chain: Chain, device: Device) -> Iterator[MmaAttentionTile]:
    rows, keys = chain.first.left.extent, chain.keys.extent
    for warps, step in itertools.product(_WARPS, _KEYS):
        # A tile of half the size would hold everything.
        if WARP_ROWS * warps >= 2 * max(rows, WARP_ROWS) or step >= 2 * max(keys, FRAGMENT):
            continue
        tile = _tile(chain, warps, step)
        fits = tile.shared_bytes <= device.memory(MemoryLevel.SHARED).capacity
        if not fits or tile.registers > _MOST_REGISTERS:
            continue
        seconds = _seconds(chain, device, tile)
        if not math.isinf(seconds):
            yield replace(tile, seconds=seconds)


def _tile(chain: Chain, warps: int, keys: int) -> MmaAttentionTile:
    depth, columns = (
        -(-extent // FRAGMENT) * FRAGMENT
        for extent in (chain.first.depth.extent, chain.second.right.extent)
    )
    rows = WARP_ROWS * warps
    lengths = chain.band.kept_tiles((chain.first.left.extent, chain.keys.extent), (rows, keys))
    batches = chain.first.batches
    slabs = _slabs(chain, rows, keys)
    corners = warps * CORNER_ROWS * CORNER_PITCH * 4
    sums = (keys + columns) // 2  # of a thread: 16 rows of 32 lanes
    return MmaAttentionTile(
        warps=warps,
        keys=keys,
        depth=depth,
        columns=columns,
        rounds=Rounds(lengths, batches, len(lengths) * batches),
        slabs=slabs,
        shared_bytes=max(slabs[-1].start + slabs[-1].size, corners),
        registers=_FIXED_REGISTERS + int(sums * _OF_A_SUM),
        seconds=0.0,
    )


def _slabs(chain: Chain, rows: int, keys: int) -> tuple[Slab, Slab, Slab]:
    """Queries, keys and values one behind the other, each from where 16 of its lines may begin."""
    depth, columns = (
        max(FRAGMENT, 1 << (extent - 1).bit_length())
        for extent in (chain.first.depth.extent, chain.second.right.extent)
    )
    left, right, values = chain.operands
    sizes = ((rows, depth), (keys, depth), (columns, keys))
    summed = (chain.first.depth, chain.first.depth, chain.keys)
    found: list[Slab] = []
    end = 0
    for operand, (own, deep), axis in zip((left, right, values), sizes, summed, strict=True):
        slab = Slab(own, deep, not operand.is_depth_major, vector_width(operand, axis))
        lines = slab.size // slab.lines * FRAGMENT
        found.append(replace(slab, start=-(-end // lines) * lines))
        end = found[-1].start + slab.size
    return found[0], found[1], found[2]


# Registers of a thread: for addresses, rows and loops; for each sum of either product, with a share
# of the operands; those that a tile may need before a compiler spills some.
_FIXED_REGISTERS, _OF_A_SUM, _MOST_REGISTERS = 30, 1.25, 240


def _seconds(chain: Chain, device: Device, tile: MmaAttentionTile) -> float:
    """Rounds of blocks, each as long as its multiprocessors' blocks take together; the memory.

    Returns:
        Infinity where no block fits.
    """
    given = given_registers(device, tile.registers)
    most = fitting_blocks(device, tile.block_size, given, tile.shared_bytes)
    if not most:
        return math.inf
    units, times = device.multi_processor_count, _times(device)
    full, rest = divmod(tile.grid, units * most)
    steps = sum(tile.rounds.lengths) / len(tile.rounds.lengths)
    busy = _busy_cycles(chain, device, tile)
    cycles = times.start_cycles
    for turns, resident in ((full, most), (rest > 0, -(-rest // units))):
        step = resident * busy + times.step_cycles / max(1, resident) ** times.hiding_power
        cycles += turns * (times.block_cycles + steps * step)
    stream = chain.traffic / (device.read_bandwidth * times.memory_share)
    return device.launch_latency + max(cycles / device.clock, stream)


def _busy_cycles(chain: Chain, device: Device, tile: MmaAttentionTile) -> float:
    """What a step of one block takes of a multiprocessor."""
    times, cycle = _times(device), device.clock * device.multi_processor_count
    rate = matrix_rate(device, chain.first.left.tensor.dtype) * times.rate_share
    products = 2 * tile.rows * tile.keys * (tile.depth + tile.columns) / (rate / cycle)
    weights = tile.rows * tile.keys * times.weight_slots
    # Each warp loads all keys and values, and its queries.
    loaded = tile.keys * (tile.depth + tile.columns) + WARP_ROWS * tile.depth
    fragments = tile.warps * loaded * ELEMENT * cycle / device.memory(MemoryLevel.SHARED).bandwidth
    copies = sum(
        slab.size / (slab.width * ELEMENT) * (times.copy_by_element if slab.is_by_element else 2)
        for slab in tile.slabs[1:]
    )
    issued = (weights + copies) / device.lanes_per_multi_processor
    fill = fill_cycles(device, tile.keys * (tile.depth + tile.columns) * ELEMENT)
    return norm(times.step_power, products, issued, fragments, fill)


def _times(device: Device) -> MmaAttentionTimes:
    return needed(device.times.mma_attention, "matrix instructions of a warp")
