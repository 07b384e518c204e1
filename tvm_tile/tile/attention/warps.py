"""Tiles of attention for the matrix instructions of a warp: NVIDIA's mma, AMD's MFMA and WMMA.

As in ``cores.py``, a block holds some rows of queries and walks the keys. Each of its warps has
some rows, all keys of a tile and all columns: a tile's weights go from the registers of the first
product's sums to those of the second one's left operand, and what is known of a row is few lanes'.
Queries, a tile of keys and one of values lie in shared memory; keys of the next tile are on their
way while values are multiplied, values while scores are.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.tile.attention.chain import Chain
from tvm_tile.tile.attention.rounds import WalkingTile, walked_steps
from tvm_tile.tile.attention.weighing import WeighingCounts
from tvm_tile.tile.residency import given_blocks
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work
from tvm_tile.tile.time import Unit as TimedUnit
from tvm_tile.tile.units.panel import Panel
from tvm_tile.tile.units.slab import UNIT_BYTES, Chunk
from tvm_tile.tile.units.unit import MmaUnit, Unit, WaveUnit, one_behind_the_other, units_of

_WARPS, _KEYS = (2, 4, 8), (16, 32, 64, 128)
_FRAGMENTS = (1, 2)  # of a warp's rows, where an instruction leaves a lane few sums
_HALF = 2  # bytes of an operand's element
_WIDEST = 256  # depth of the first product, and columns of the second one


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpAttentionTile(WalkingTile):
    """How warps compute a chain.

    Attributes:
        unit: the unit that multiplies.
        warp_rows: rows of a warp.
        warps: warps of a block; keys of a step are a power of two and a multiple of the unit's
            depth.
        chunks: how queries, keys and values lie in shared memory.
    """

    unit: Unit
    warp_rows: int
    warps: int
    chunks: tuple[Chunk, ...] = ()

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.unit.warp * self.warps

    @property
    def operand_bytes(self) -> int:
        """Bytes of shared memory for operands, and for sums on their way out."""
        return self.shared_bytes - self.seen_bytes

    @property
    def store_shape(self) -> tuple[int, int, int]:
        """Floats through which sums go out, a corner a warp, where operands were."""
        layout = self.unit.sum_layout(self.columns)
        return (self.warps, layout.rows, layout.pitch)

    @property
    def reaches_values(self) -> bool:
        """Whether sums go out through memory where values are."""
        return math.prod(self.store_shape) * 4 > self.chunks[-1].start

    def describe(self) -> str:
        """The tile in one line, for people."""
        return f"{WalkingTile.describe(self)}, {self.unit}"


def construct_warp_attention(
    chain: Chain, device: Device, count: int, scene: Scene = AMID
) -> tuple[WarpAttentionTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the operands refuse.

    ``scene`` is where the kernel runs.
    """
    dtypes = {operand.tensor.dtype for operand in chain.operands}
    if len(dtypes) > 1 or any(o.tensor.element_size != _HALF for o in chain.operands):
        return ()
    if not all(o.is_within_reach for o in chain.operands) or len(chain.second.right.free) != 1:
        return ()
    if max(chain.first.depth.extent, chain.second.right.extent) > _WIDEST:
        return ()
    units = units_of(device, chain.first.left.tensor.dtype)
    shapes = itertools.product(units, _FRAGMENTS, _WARPS, _KEYS)
    tiles = (_tile(chain, device, *shape) for shape in shapes)
    told = (replace(tile, work=_work(chain, device, tile)) for tile in tiles if tile)
    return ranked(told, device, scene, count)


def _tile(
    chain: Chain, device: Device, unit: Unit, fragments: int, warps: int, keys: int
) -> WarpAttentionTile | None:
    """A tile; ``None`` for one that makes no sense.

    Args:
        chain: the chain that is computed.
        device: the device that computes it.
        unit: the unit that multiplies.
        fragments: fragments of the rows of a warp.
        warps: warps of a block.
        keys: keys of a step.
    """
    warp_rows = fragments * unit.rows
    rows = warp_rows * warps
    # Of NVIDIA's, a lane has sums of two rows, and all columns, as it is.
    if keys % unit.least_keys or (isinstance(unit, MmaUnit) and fragments > 1):
        return None
    # A tile of half the size would hold everything.
    most_rows, most_keys = chain.first.left.extent, chain.keys.extent
    if rows >= 2 * max(most_rows, unit.rows) or keys >= 2 * max(most_keys, unit.least_keys):
        return None
    depth = -(-chain.first.depth.extent // unit.depth) * unit.depth
    columns = -(-chain.second.right.extent // unit.rows) * unit.rows
    rounds = chain.rounds((rows, keys))
    tile = WarpAttentionTile(
        unit=unit,
        rows=rows,
        warp_rows=warp_rows,
        warps=warps,
        keys=keys,
        depth=depth,
        columns=columns,
        rounds=rounds,
        seekers=chain.seekers(rows, unit.warp * warps, rounds),
    )
    tile = replace(tile, chunks=_chunks(chain, tile))
    end = tile.chunks[-1].start + tile.chunks[-1].size
    operands = max(end, math.prod(tile.store_shape) * 4)
    shared = operands + tile.seen_bytes
    tile = replace(tile, shared_bytes=shared, registers=_registers(chain, tile))
    most = _MOST_REGISTERS if isinstance(unit, MmaUnit) else _MOST_OF_WAVES
    return tile if tile.registers <= most else None


def _chunks(chain: Chain, tile: WarpAttentionTile) -> tuple[Chunk, ...]:
    """How queries, keys and values lie in shared memory, one behind the other."""
    unit, threads, first = tile.unit, tile.block_size, chain.first
    queries = unit.lay(first, first.left, tile.rows, tile.depth, threads)
    keys = unit.lay(first, first.right, tile.keys, tile.depth, threads)
    values = unit.lay(chain.second, chain.second.right, tile.columns, tile.keys, threads)
    if isinstance(keys, Panel) and isinstance(unit, WaveUnit):
        # Scores of keys that are neighbours are then what the second product takes at once.
        keys = replace(keys, handed_on=unit.layout)
    return one_behind_the_other((queries, keys, values))


def _registers(chain: Chain, tile: WarpAttentionTile) -> int:
    """Sums of both products, weights, a step's fragments, what is on its way, addresses.

    Before there are any sums, all operands may be on their way together.
    """
    unit = tile.unit
    scores, sums = (tile.warp_rows * size // unit.warp for size in (tile.keys, tile.columns))
    if isinstance(unit, MmaUnit):
        return _FIXED_REGISTERS + int((scores + sums) * _OF_A_SUM)
    panels = [chunk for chunk in tile.chunks if isinstance(chunk, Panel)]
    queries, keys, values = (panel.registers(tile.block_size) for panel in panels)
    fragments = (tile.keys + tile.warp_rows) // unit.rows * unit.layout.units
    loaded = max(fragments, tile.columns // unit.rows) * UNIT_BYTES // 4
    weights = scores * unit.layout.copies * _HALF // 4
    made = 0 if chain.has_softmax else _OF_AN_ELEMENT
    walk = scores + weights + sums + loaded + max(keys, values) + made
    return max(walk, queries + keys + values) + _FIXED_OF_WAVES * unit.layout.copies


# Registers of a thread: for addresses, rows and loops; for each sum of either product, with a share
# of the operands; those that a tile may need before a compiler spills some. Then AMD's, of which
# the fixed ones are twice as many where two lanes hold the same of an operand.
_FIXED_REGISTERS, _OF_A_SUM, _MOST_REGISTERS = 30, 1.25, 240
_FIXED_OF_WAVES, _MOST_OF_WAVES = 50, 246
_OF_AN_ELEMENT = 16  # while an activation is computed


def _work(chain: Chain, device: Device, tile: WarpAttentionTile) -> Work:
    """What a block does: its queries, then step by step of the keys both products, and its sums.

    Keys are on their way while values are multiplied, values while scores are.
    """
    unit, warp = tile.unit, tile.unit.warp
    layout, is_wave = unit.sum_layout(tile.columns), isinstance(unit, WaveUnit)
    lanes = layout.columns // (layout.registers if is_wave else layout.run)
    own = WeighingCounts(chain, tile, lanes, warp)
    (rows, keys), (depth, columns, _) = own.sizes, own.row_bytes
    steps = walked_steps(tile, device)
    queries, *others = (_copy_moves(chunk, warp) for chunk in tile.chunks)
    asked = Part(
        fills=rows * depth, moves=queries, wavefronts=tile.chunks[0].size / WAVEFRONT, loads=1
    )
    # A warp loads all keys and values, and its queries, in each step.
    along, deep = tile.depth // unit.depth, tile.keys // unit.depth
    fragments = along * (tile.warp_rows + tile.keys) + deep * tile.columns
    fragments = fragments // unit.rows * tile.warps
    copied = sum(chunk.size for chunk in tile.chunks[1:])
    loaded = fragments * unit.rows * unit.depth * unit.element
    step = Part(
        repeats=steps,
        fills=keys * (depth + columns),
        operations=own.operations + own.scaling,
        moves=sum(others) + fragments * (unit.layout.units if isinstance(unit, WaveUnit) else 1),
        wavefronts=(copied + loaded) / WAVEFRONT,
        flops=2 * tile.rows * tile.keys * (tile.depth + tile.columns),
        loads=2,
        barriers=2,
        exchanges=own.exchanges,
        steps=(tile.depth + tile.keys) / _instruction_depth(unit),
        ahead=2,
    )
    return Work(
        blocks=tile.grid,
        resident=given_blocks(device, tile),
        warps=tile.warps,
        parts=(asked, step, own.leaving(1, layout.run), *own.beside(steps)),
        read=chain.traffic - chain.written,
        written=chain.written,
        unit=TimedUnit.WAVE if is_wave else TimedUnit.WARP,
        dtype=chain.first.left.tensor.dtype,
    )


def _instruction_depth(unit: Unit) -> int:
    """Depth of one instruction."""
    return unit.layout.depth if isinstance(unit, WaveUnit) else unit.depth


def _copy_moves(chunk: Chunk, warp: int) -> float:
    """Instructions of all warps that bring a chunk to shared memory."""
    copies = chunk.size / (chunk.width * _HALF)
    # What comes through registers is stored from there, a unit at a time.
    is_through = isinstance(chunk, Panel) or chunk.is_by_element
    return (copies + (chunk.size / UNIT_BYTES if is_through else 0)) / warp
