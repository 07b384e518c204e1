"""Tiles of a chain of two products for Hopper's warpgroups, whose operands a producer copies.

As ``chain.py`` says, a block holds some rows and walks the keys. Its consumers, warpgroups of 64
rows each, multiply what its producer has copied to a ring; blocks stay for several items.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.tile.attention.chain import WIDEST, Chain
from tvm_tile.tile.attention.rounds import Rounds, WalkingTile, balanced
from tvm_tile.tile.attention.weighing import WeighingCounts
from tvm_tile.tile.products.copyable import is_copyable
from tvm_tile.tile.products.warpgroup import warpgroup_dtypes
from tvm_tile.tile.products.warpgroup_tile import BARRIER_BYTES, LINE, ROWS, WARPGROUP
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, Part, Scene, Unit, Work
from tvm_tile.tile.units.sum_layout import CORNER_PITCH, CORNER_ROWS, MMA_SUMS

_KEY_STEP = 16  # the depth of an instruction
_MOST_KEYS = 192
_CONSUMERS = (1, 2, 3)
_MOST_STAGES = 4
# Registers of a producer's and of a consumer's thread, by the number of consumers: how a
# multiprocessor's 65536 are shared out. One consumer has enough of those it is launched with.
_DIVISIONS = {2: (40, 232), 3: (32, 160)}
_MOST_REGISTERS = 232
_OTHER_REGISTERS = 36  # addresses, barriers, a row's maximum and sum
_ASKING_REGISTERS = 48  # while a mask is asked for keys one by one, in tiles that a table lists
_CORNER_BYTES = 4 * CORNER_ROWS * CORNER_PITCH * 4  # of a warpgroup


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainTile(WalkingTile):
    """How a chain is computed.

    Attributes:
        consumers: warpgroups of 64 rows each. For these the depth is in whole lines, and the
            columns are in eights.
        stages: tiles of keys that the ring holds, and of values.
        ring_bytes: bytes of shared memory for the queries and the stages of a block.
    """

    consumers: int
    stages: int
    ring_bytes: int

    @property
    def block_size(self) -> int:
        """Threads: the consumers' and the producer's warpgroup."""
        return WARPGROUP * (self.consumers + 1)

    @property
    def division(self) -> tuple[int, int] | None:
        """Registers of a producer's and a consumer's thread; ``None`` for those of the launch."""
        return _DIVISIONS.get(self.consumers)

    def describe(self) -> str:
        """The tile in one line, for people."""
        ring = f"{self.stages} stages, {self.consumers} warpgroups"
        return f"{WalkingTile.describe(self)}, {ring}"


def construct_chain(
    chain: Chain, device: Device, count: int, scene: Scene = AMID
) -> tuple[ChainTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the copies refuse.

    ``scene`` is where the kernel runs.
    """
    dtype = chain.first.left.tensor.dtype
    if any(operand.tensor.dtype != dtype for operand in chain.operands):
        return ()
    if dtype not in warpgroup_dtypes(device) or chain.first.left.tensor.element_size != 2:
        return ()
    if not _can_be_copied(chain) or len(chain.second.right.free) != 1:
        return ()
    tiles = _tiles(chain, device)
    told = (replace(tile, work=_work(chain, device, tile)) for tile in tiles if tile)
    return ranked(told, device, scene, count)


def _can_be_copied(chain: Chain) -> bool:
    """Whether queries lie with their depth contiguous, and the copy engine takes all operands."""
    first, values = chain.first, chain.second.right
    if not first.left.is_depth_major:
        return False
    keys = replace(chain.keys, extent=LINE)  # ragged keys are masked
    own = all(is_copyable(operand, first.depth) for operand in (first.left, first.right))
    return own and is_copyable(values, keys)


def _tiles(chain: Chain, device: Device) -> Iterator[ChainTile | None]:
    """All tiles of a chain, ``None`` for those that do not fit."""
    rows, keys = chain.first.left.extent, chain.keys.extent
    line = LINE // chain.first.left.tensor.element_size
    depth = -(-chain.first.depth.extent // line) * line
    columns = -(-chain.second.right.extent // 8) * 8
    if max(depth, columns) > WIDEST:
        return
    # Where keys are contiguous they are copied by lines.
    is_by_lines = not chain.first.right.is_depth_major or chain.second.right.is_depth_major
    least = line if is_by_lines else _KEY_STEP
    widest = min(_MOST_KEYS, -(-keys // least) * least)
    listed = chain.listed
    for consumers, step in itertools.product(_CONSUMERS, range(least, widest + 1, least)):
        if listed:
            if (listed.rows, listed.keys) != (ROWS * consumers, step):
                continue  # the table is of other tiles
        elif step > least and -(-keys // step) == -(-keys // (step - least)):
            continue  # a smaller one takes as many steps
        if consumers > 1 and rows <= ROWS * (consumers - 1):
            continue
        if keys % step and not chain.is_whole:
            continue  # zero times whatever lies behind may be no number
        registers = step // 2 + step // 4 + columns // 2 + _OTHER_REGISTERS
        registers += _ASKING_REGISTERS if listed and listed.parts else 0
        _, given = _DIVISIONS.get(consumers, (0, _MOST_REGISTERS))
        if registers > given:
            continue
        yield _tile(chain, device, (consumers, step, depth, columns, registers))


def _tile(chain: Chain, device: Device, shape: tuple[int, int, int, int, int]) -> ChainTile | None:
    """The tile of this shape; ``None`` if it does not fit."""
    consumers, step, depth, columns, registers = shape
    element = chain.first.left.tensor.element_size
    rows = ROWS * consumers
    lines = -(-columns // (LINE // element)) * LINE
    stage = step * (depth * element + lines)
    left, beside = rows * depth * element, _CORNER_BYTES * consumers + BARRIER_BYTES
    capacity = device.memory(MemoryLevel.SHARED).capacity
    rounds, threads = _rounds(chain, device, rows, step), WARPGROUP * (consumers + 1)
    if chain.expected is not None and rounds.most_turns > threads:
        return None  # a thread an item at least looks for its keys
    tile = ChainTile(
        rows=rows,
        keys=step,
        consumers=consumers,
        depth=depth,
        columns=columns,
        stages=0,
        rounds=rounds,
        seekers=chain.seekers(rows, threads, rounds),
        ring_bytes=0,
        registers=registers,
    )
    beside += tile.seen_bytes
    stages = min(_MOST_STAGES, (capacity - left - beside) // stage)
    ring = left + stages * stage
    own = replace(tile, stages=stages, ring_bytes=ring, shared_bytes=ring + beside)
    return own if stages >= 2 else None


def _rounds(chain: Chain, device: Device, rows: int, keys: int) -> Rounds:
    """Blocks' turns: what keys and values of a few batches need is half of the cache."""
    rounds = chain.rounds((rows, keys), device.multi_processor_count)
    shared = (chain.first.right.read_size + chain.second.right.read_size) // rounds.batches
    return balanced(rounds, shared, device.l2_capacity // 2)


def _work(chain: Chain, device: Device, tile: ChainTile) -> Work:
    """What the busiest block does: a producer's copies, and consumers' products and weights.

    An item's first scores are waited for, and weighed, with nothing beside them, and its last
    weights are multiplied so; in between, products go on while scores are weighed.
    """
    lanes = MMA_SUMS.columns // MMA_SUMS.run
    own = WeighingCounts(chain, tile, lanes, device.warp_size)
    (rows, keys), (depth, columns, _) = own.sizes, own.row_bytes
    items, steps = -(-tile.rounds.items // tile.grid), tile.rounds.longest
    lines = [-(-size // LINE) for size in (depth, columns)]
    one = 2 * tile.rows * tile.keys  # operations of a step for each unit of depth, or column
    score = Part(
        repeats=items,
        fills=(rows + keys) * depth,
        moves=2 * lines[0],
        flops=one * tile.depth,
        loads=1,
        steps=1,
        arrivals=1,
    )
    weigh = Part(repeats=items, operations=own.operations, exchanges=own.exchanges)
    walk = Part(
        repeats=steps - items,
        fills=keys * (depth + columns),
        operations=own.operations + own.scaling,
        moves=sum(lines),
        flops=one * (tile.depth + tile.columns),
        loads=1,
        exchanges=own.exchanges,
        steps=2,
        arrivals=2,
        ahead=tile.stages,
    )
    add = Part(
        repeats=items, fills=keys * columns, moves=lines[1], flops=one * tile.columns, steps=1
    )
    return Work(
        blocks=tile.grid,
        resident=1,  # as many blocks as multiprocessors, which stay
        warps=WARPGROUP // device.warp_size * tile.consumers,  # a producer is one thread
        parts=(score, weigh, walk, add, own.leaving(items, MMA_SUMS.run), *own.beside(steps)),
        read=chain.traffic - chain.written,
        written=chain.written,
        unit=Unit.GROUP,
        dtype=chain.first.left.tensor.dtype,
    )
