"""Tiles of two products, one behind the other, whose matrix in between never leaves the chip.

Attention is such a chain: scores, a softmax along their rows, and the product with the values. A
block holds some rows. It walks the keys, the columns of the first product and the depth of the
second one, a tile at a time: the tile of scores stays in registers, becomes weights there, and is
the left operand of the second product (Welder, OSDI'23, section 3: tiles connected at the level of
registers). What a softmax needs of a whole row, its maximum and its sum, runs along; sums so far
are scaled when the maximum grows (Milakov and Gimelshein, 2018; Dao et al., 2022).

A feed-forward network is such a chain, too, with an activation in place of the softmax: what is
called keys here are its hidden channels, scores and weights their values before and behind it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device, MemoryLevel
from tvm_tile.device.times import needed
from tvm_tile.graph.tile_graph import Access, Axis, Operator
from tvm_tile.tile.attention.band import EVERYWHERE, Band
from tvm_tile.tile.attention.rounds import Rounds, WalkingTile, balanced
from tvm_tile.tile.cost import SCHEDULERS
from tvm_tile.tile.limits import norm
from tvm_tile.tile.products.warpgroup import is_copyable, matrix_rate, warpgroup_dtypes
from tvm_tile.tile.products.warpgroup_tile import BARRIER_BYTES, LINE, ROWS, WARPGROUP
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.units.product import Operand, Product, find_product
from tvm_tile.tile.units.sum_layout import CORNER_PITCH, CORNER_ROWS

_KEY_STEP = 16  # the depth of an instruction
_MOST_KEYS = 192
_CONSUMERS = (1, 2, 3)
_MOST_STAGES = 4
# Registers of a producer's and of a consumer's thread, by the number of consumers: how a
# multiprocessor's 65536 are shared out. One consumer has enough of those it is launched with.
_DIVISIONS = {2: (40, 232), 3: (32, 160)}
_MOST_REGISTERS = 232
_OTHER_REGISTERS = 36  # addresses, barriers, a row's maximum and sum
_CORNER_BYTES = 4 * CORNER_ROWS * CORNER_PITCH * 4  # of a warpgroup
_WIDEST = 256  # columns of the second product, and depth of the first one


@dataclass(frozen=True, slots=True)
class Chain:
    """``scores = left @ right`` and ``write = f(scores) @ values``, with the same axes' names.

    Attributes:
        first: rows times keys.
        second: rows times columns, summed over the keys; its left operand is made on chip.
        band: the rows' keys outside of it weigh nothing.
        beside: bytes of what else weights are made of, such as a mask or a bias.
        operations: operations that make a weight of a score where there is no softmax; else
            ``None``.
    """

    first: Product
    second: Product
    band: Band = EVERYWHERE
    beside: int = 0
    operations: int | None = None

    @property
    def keys(self) -> Axis:
        """Columns of the first product, depth of the second."""
        return self.second.depth

    @property
    def operands(self) -> tuple[Operand, Operand, Operand]:
        """Queries, keys and values."""
        return self.first.left, self.first.right, self.second.right

    @property
    def is_whole(self) -> bool:
        """Whether no values lie behind those of the last key: what is copied there is zero."""
        values = self.second.right
        sizes = zip(values.indices, values.tensor.shape, strict=True)
        end = next((i.offset, extent) for i, extent in sizes if i.coefficient(self.keys.name))
        return end[0] + self.keys.extent >= end[1]

    def rounds(self, size: tuple[int, int], most: int | None = None) -> Rounds:
        """Order in which blocks take tiles of rows, each of which walks through tiles of keys.

        Args:
            size: rows and keys of a tile.
            most: blocks; ``None``: one for each tile of rows of each batch.
        """
        lengths = self.band.kept_tiles((self.first.left.extent, self.keys.extent), size)
        items = len(lengths) * self.first.batches
        return Rounds(lengths, self.first.batches, min(items, most or items))

    @property
    def has_softmax(self) -> bool:
        """Whether weights are the softmax of a row's scores."""
        return self.operations is None

    def made_cycles(self, device: Device, size: tuple[int, int], warps: int) -> float:
        """Cycles of a multiprocessor for the operations that make weights of a tile's scores.

        A scheduler issues an instruction each cycle if it has two warps or more.

        Args:
            device: device that has the multiprocessor.
            size: rows and keys of the tiles that are at work together.
            warps: warps that share the operations.
        """
        slots = math.prod(size) * (self.operations or 0) / device.lanes_per_multi_processor
        return slots * max(1.0, 2 * SCHEDULERS / max(1, warps))

    @property
    def flops(self) -> int:
        """Floating-point operations of both products."""
        return self.first.flops + self.second.flops

    @property
    def traffic(self) -> int:
        """Bytes that cross global memory at least."""
        read = sum(operand.read_size for operand in self.operands) + self.beside
        return read + self.second.write.tensor.size


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


def is_narrow(first: Operator) -> bool:
    """Whether kernels of chains hold the depth of a first product, as far as its sums tell."""
    return math.prod(axis.extent for axis in first.reduce_axes) <= _WIDEST


def connect(first: Operator, second: Operator) -> Chain | None:
    """Two products as a chain; ``None`` unless the second one takes the first one's output.

    Args:
        first: a product.
        second: product that reads the output of ``first`` and one other tensor, of whose dtype the
            output is taken to be; its axes are named by :func:`with_axes_of`.
    """
    handed = [read for read in second.reads if read.tensor == first.write.tensor]
    others = [read for read in second.reads if read.tensor != first.write.tensor]
    if len(handed) != 1 or len(others) != 1:
        return None
    weights = replace(handed[0].tensor, dtype=others[0].tensor.dtype)
    reads = (replace(handed[0], tensor=weights, is_computed=False), others[0])
    left, right = find_product(first), find_product(replace(second, reads=reads))
    if left is None or right is None or not left.left.free:
        return None
    rows = max(left.left.free, key=lambda axis: axis.extent)
    left, right = (_along(product, rows) for product in (left, right))
    return Chain(left, right) if _are_linked(left, right) else None


def _along(product: Product, rows: Axis) -> Product:
    """A product whose left operand's other axes are its batch's: each makes rows of its own."""
    others = tuple(axis for axis in product.left.free if axis != rows)
    left = replace(product.left, free=tuple(axis for axis in product.left.free if axis == rows))
    return replace(product, left=left, batch=(*others, *product.batch))


def with_axes_of(first: Operator, second: Operator) -> Operator | None:
    """``second``, its axes named as in ``first`` where both walk through the same elements.

    Returns:
        ``None`` unless each dimension of the output of ``first`` is read along one axis.
    """
    handed = [read for read in second.reads if read.tensor == first.write.tensor]
    names = _same_axes(first, second, handed[0]) if len(handed) == 1 else None
    return None if names is None else _renamed(second, names)


def _same_axes(first: Operator, second: Operator, handed: Access) -> dict[str, str] | None:
    """Name of an axis of ``second`` -> of the axis of ``first`` that wrote what it reads."""
    extents = first.extents | second.extents
    names = {}
    for wrote, reads in zip(first.write.indices, handed.indices, strict=True):
        long = [[t for t in index.terms if extents[t[0]] > 1] for index in (wrote, reads)]
        if wrote.offset or reads.offset or any(len(terms) > 1 for terms in long):
            return None
        if len(long[0]) != len(long[1]) or any(c != 1 for terms in long for _, c in terms):
            return None
        if long[0]:
            names[long[1][0][0]] = long[0][0][0]
    used = {axis.name for axis in first.axes}
    free = [axis.name for axis in second.axes if axis.name not in names]
    # Names of its own may be names of the first one's, too.
    return names | {name: name if name not in used else f"{name}.second" for name in free}


def _renamed(operator: Operator, names: dict[str, str]) -> Operator:
    """The operator with other names of its axes."""
    return replace(
        operator,
        axes=tuple(replace(axis, name=names[axis.name]) for axis in operator.axes),
        reads=tuple(read.renamed(names) for read in operator.reads),
        write=operator.write.renamed(names),
    )


def _are_linked(first: Product, second: Product) -> bool:
    """Whether rows are rows, the keys are the depth, all of them, and nothing else is summed."""
    rows, keys = first.left.free, first.right.free
    is_row = second.left.free == rows and len(rows) == 1
    is_key = len(keys) == 1 and second.depth == replace(keys[0], is_reduce=True)
    same_batch = set(first.batch) == set(second.batch)
    return is_row and is_key and same_batch and not first.steps and not second.steps


def is_along_rows(keys: Axis, operators: Sequence[Operator]) -> bool:
    """Whether results between two products are of a row's keys, all of them, and used in that row.

    Args:
        keys: the axis, as of the first product or of the second one's depth.
        operators: the operators between the products, and the second product, in order; their axes
            are named by :func:`with_axes_of`.
    """
    for place, operator in enumerate(operators[:-1]):
        if [axis.name for axis in operator.reduce_axes if axis.extent > 1] != [keys.name]:
            return False
        own = operator.write.along(operator.long_axes).indices
        for later in operators[place + 1 :]:
            reads = [read for read in later.reads if read.tensor == operator.write.tensor]
            if any(read.along(later.long_axes).indices != own for read in reads):
                return False
    return True


def construct_chain(chain: Chain, device: Device, count: int) -> tuple[ChainTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the copies refuse."""
    dtype = chain.first.left.tensor.dtype
    if any(operand.tensor.dtype != dtype for operand in chain.operands):
        return ()
    if dtype not in warpgroup_dtypes(device) or chain.first.left.tensor.element_size != 2:
        return ()
    if not _can_be_copied(chain) or len(chain.second.right.free) != 1:
        return ()
    return ranked(_tiles(chain, device), count)


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
    if max(depth, columns) > _WIDEST:
        return
    # Where keys are contiguous they are copied by lines.
    is_by_lines = not chain.first.right.is_depth_major or chain.second.right.is_depth_major
    least = line if is_by_lines else _KEY_STEP
    widest = min(_MOST_KEYS, -(-keys // least) * least)
    for consumers, step in itertools.product(_CONSUMERS, range(least, widest + 1, least)):
        if -(-keys // step) == -(-keys // (step - least)) if step > least else False:
            continue  # a smaller one takes as many steps
        if consumers > 1 and rows <= ROWS * (consumers - 1):
            continue
        if keys % step and not chain.is_whole:
            continue  # zero times whatever lies behind may be no number
        registers = step // 2 + step // 4 + columns // 2 + _OTHER_REGISTERS
        _, given = _DIVISIONS.get(consumers, (0, _MOST_REGISTERS))
        if registers > given:
            continue
        yield _tile(chain, device, (consumers, step, depth, columns, registers))


def _tile(chain: Chain, device: Device, shape: tuple[int, int, int, int, int]) -> ChainTile | None:
    """The tile of this shape with its predicted time; ``None`` if it does not fit."""
    consumers, step, depth, columns, registers = shape
    element = chain.first.left.tensor.element_size
    rows = ROWS * consumers
    lines = -(-columns // (LINE // element)) * LINE
    stage = step * (depth * element + lines)
    left, beside = rows * depth * element, _CORNER_BYTES * consumers + BARRIER_BYTES
    capacity = device.memory(MemoryLevel.SHARED).capacity
    stages = min(_MOST_STAGES, (capacity - left - beside) // stage)
    if stages < 2:
        return None
    tile = ChainTile(
        rows=rows,
        keys=step,
        consumers=consumers,
        depth=depth,
        columns=columns,
        stages=stages,
        rounds=_rounds(chain, device, rows, step),
        ring_bytes=left + stages * stage,
        shared_bytes=left + stages * stage + beside,
        registers=registers,
    )
    return replace(tile, seconds=_seconds(chain, device, tile))


def _rounds(chain: Chain, device: Device, rows: int, keys: int) -> Rounds:
    """Blocks' turns: what keys and values of a few batches need is half of the cache."""
    rounds = chain.rounds((rows, keys), device.multi_processor_count)
    shared = (chain.first.right.read_size + chain.second.right.read_size) // rounds.batches
    return balanced(rounds, shared, device.l2_capacity // 2)


def _seconds(chain: Chain, device: Device, tile: ChainTile) -> float:
    """The time of the busiest multiprocessor, and of the memory."""
    times = needed(device.times.chain, "warpgroup instructions")
    rate = matrix_rate(device, chain.first.left.tensor.dtype) / device.multi_processor_count
    multiply = 2 * tile.rows * tile.keys * (tile.depth + tile.columns) / rate
    weigh = tile.rows * tile.keys * times.weight_cycles
    weigh += chain.made_cycles(device, (tile.rows, tile.keys), SCHEDULERS * tile.consumers)
    step = times.step_cycles / device.clock + norm(times.step_power, multiply, weigh / device.clock)
    turns, steps = -(-tile.rounds.items // tile.grid), tile.rounds.longest
    stream = chain.traffic / (device.read_bandwidth * times.memory_share)
    item = times.item_cycles / device.clock
    return times.start_cycles / device.clock + max(turns * item + steps * step, stream)
