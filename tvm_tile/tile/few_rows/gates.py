"""Several products of few rows and what becomes of their sums, by units: how many a block, by whom.

A recurrent cell is one: an LSTM's unit needs eight sums, of four rows of two matrices. All sums of
some units are one block's, so that these meet in its shared memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import VECTOR_BYTES, Device, MemoryLevel
from tvm_tile.tile.cost import SCHEDULERS, arithmetic_slots
from tvm_tile.tile.powers import powers_of_two
from tvm_tile.tile.residency import given_blocks, given_registers
from tvm_tile.tile.tile import Tile, ranked

MOST_VECTORS = 16  # each has a sum in registers for every row that a thread works on
_MOST_SUMS = 64  # of a thread, in registers
_MOST_LOADS = 8  # of weights, of a thread in a step
_MOST_WARPS = 16
_MOST_PRODUCTS = 8
_REGISTERS_BESIDES = 28  # addresses, loop state, what the last part reads beforehand
_REGISTER_LIMIT = 128


@dataclass(frozen=True, slots=True)
class GateProduct:
    """One of the products that a recurrent cell sums up.

    Attributes:
        gates: sums that a unit needs of it: rows of its weights.
        depth: elements of a sum.
        element: bytes of an operand's element.
    """

    gates: int
    depth: int
    element: int

    @property
    def vector(self) -> int:
        """Neighbouring elements that one aligned load can fetch of every row."""
        return math.gcd(self.depth, VECTOR_BYTES // self.element)


@dataclass(frozen=True, slots=True)
class Gates:
    """A recurrent cell, or another function of several sums for each unit.

    Attributes:
        products: the products, at least one.
        units: columns of every output.
        vectors: rows of every output, and of the products' short operands.
        operations: operations of arithmetic on a unit's sums, for one vector.
        others: bytes read and written besides the weights.
    """

    products: tuple[GateProduct, ...]
    units: int
    vectors: int
    operations: int
    others: int

    @property
    def weights(self) -> int:
        """Bytes of the weights, those that are read."""
        return self.units * sum(p.gates * p.depth * p.element for p in self.products)


@dataclass(frozen=True, slots=True)
class ProductTile:
    """How the warps of one product add up a block's sums.

    Attributes:
        warp: threads of a warp.
        warps: warps of the block that work on the product.
        lanes: threads that share a sum, a power of two, at most a warp.
        rows: rows of the weights that such a group adds up at once.
        loads: loads of each of these rows that a thread has on their way at once.
        steps: steps along the depth, one behind the other.
        turns: turns, in each of which a group adds up that many rows.
    """

    warp: int
    warps: int
    lanes: int
    rows: int
    loads: int
    steps: int
    turns: int

    @property
    def threads(self) -> int:
        """Threads of the block that work on this product."""
        return self.warps * self.warp


@dataclass(frozen=True, slots=True)
class GatesTile(Tile):
    """Launch shape and loops.

    Attributes:
        units: units of a block; the last may have fewer.
        products: one tile each.
        grid: blocks of the kernel.
        block_size: threads of a block; its shared memory is for its sums.
        resident_bytes: bytes of a block's weights that stay, each product's at a multiple of 16.
    """

    units: int
    products: tuple[ProductTile, ...]
    grid: int = field()
    block_size: int = field()
    resident_bytes: int

    def describe(self) -> str:
        """The tile in one line, for people."""
        each = ", ".join(
            f"{p.warps} warps with {p.lanes} lanes a sum, {p.rows} rows and {p.loads} loads each"
            for p in self.products
        )
        return f"{self.units} units a block; {each}"


def construct_gates(gates: Gates, device: Device, count: int) -> tuple[GatesTile, ...]:
    """The best tiles, at most ``count``, no two with equal numbers of blocks and threads."""
    if gates.vectors > MOST_VECTORS or len(gates.products) > _MOST_PRODUCTS:
        return ()
    best: dict[tuple[int, int], GatesTile] = {}
    for tile in _tiles(gates, device):
        key = tile.grid, tile.block_size
        if key not in best or tile.seconds < best[key].seconds:
            best[key] = tile
    return ranked(best.values(), count)


def _tiles(gates: Gates, device: Device) -> Iterator[GatesTile]:
    """All tiles that fit: by units of a block, as far as these change the grid, and by warps."""
    most = device.max_threads_per_block
    units = dict.fromkeys(
        -(-gates.units // -(-gates.units // n)) for n in range(1, min(gates.units, most) + 1)
    )
    for own, warps in itertools.product(units, powers_of_two(1, _MOST_WARPS)):
        threads = warps * device.warp_size
        if own * gates.vectors > threads or warps < len(gates.products):
            continue
        shares = _shares([p.gates * p.depth * p.element for p in gates.products], warps)
        parts = zip(gates.products, shares, strict=True)
        products = tuple(_product_tile(p, gates.vectors, own, n, device) for p, n in parts)
        yield _predicted(gates, own, products, device)


def _shares(weights: list[int], warps: int) -> list[int]:
    """Warps of each product, one at least, so that the busiest has little to do."""
    shares = [1] * len(weights)
    for _ in range(warps - len(weights)):
        busiest = max(range(len(weights)), key=lambda n: weights[n] / shares[n])
        shares[busiest] += 1
    return shares


def _product_tile(
    product: GateProduct, vectors: int, units: int, warps: int, device: Device
) -> ProductTile:
    """The tile of a product: whole warps along a long sum, loads as many as there are."""
    pieces = -(-product.depth // product.vector)
    lanes = min(device.warp_size, 1 << (pieces - 1).bit_length())
    groups = warps * device.warp_size // lanes
    each = -(-units * product.gates // groups)
    rows = max(n for n in powers_of_two(1, min(_MOST_LOADS, _MOST_SUMS // vectors)) if n < 2 * each)
    pieces = -(-pieces // lanes)
    loads = max(n for n in powers_of_two(1, max(1, _MOST_LOADS // rows)) if n < 2 * pieces)
    turns = -(-units * product.gates // (groups * rows))
    return ProductTile(device.warp_size, warps, lanes, rows, loads, -(-pieces // loads), turns)


def resident_offsets(gates: Gates, units: int) -> tuple[int, ...]:
    """First bytes of each product's weights, one behind the other, and of what follows them."""
    sizes = [
        -(-units * p.gates * p.depth * p.element // VECTOR_BYTES) * VECTOR_BYTES
        for p in gates.products
    ]
    return (0, *itertools.accumulate(sizes))


def _predicted(
    gates: Gates, units: int, products: tuple[ProductTile, ...], device: Device
) -> GatesTile:
    """The tile with its time, which is infinite where it does not fit.

    Memory, the first-level cache and issue overlap with what one warp has to wait for: its loads,
    one step behind the other, the tree of shuffles, the other warps, and the arithmetic on the
    sums.
    """
    vectors = gates.vectors
    threads = sum(product.threads for product in products)
    registers = _REGISTERS_BESIDES + max(
        p.rows * vectors + (p.rows * p.loads + 1) * of.vector * of.element // 4
        for p, of in zip(products, gates.products, strict=True)
    )
    registers = given_registers(device, registers)
    shared = sum(p.gates for p in gates.products) * units * vectors * 4
    resident = resident_offsets(gates, units)[-1]
    grid = -(-gates.units // units)
    tile = GatesTile(
        *(units, products, grid, threads, resident), shared_bytes=shared, registers=registers
    )
    fit = given_blocks(device, tile)
    if not fit or registers > _REGISTER_LIMIT:
        return tile
    seconds = device.times.gates.start_cycles / device.clock + device.launch_latency
    full, rest = divmod(grid, fit * device.multi_processor_count)
    for times, blocks in ((full, fit * device.multi_processor_count), (1, rest)):
        if times and blocks:
            seconds += times * _wave(gates, products, blocks, grid, device)
    return replace(tile, seconds=seconds)


def _wave(
    gates: Gates, products: tuple[ProductTile, ...], blocks: int, grid: int, device: Device
) -> float:
    """Seconds of ``blocks`` blocks that are resident together."""
    times, processors = device.times.gates, device.multi_processor_count
    arithmetic = arithmetic_slots(device)
    load = times.load_cycles / device.clock
    own = -(-blocks // processors)
    issued, cached, waits = 0.0, 0.0, 0.0
    for tile, product in zip(products, gates.products, strict=True):
        points = tile.rows * tile.loads * product.vector
        widened = (points + points // tile.rows * gates.vectors) if product.element < 4 else 0
        loads = tile.rows * tile.loads + tile.loads * gates.vectors
        step = points * gates.vectors * arithmetic + widened + loads + times.loop_slots
        sums = tile.rows * gates.vectors
        tree = 3 * (min(sums, tile.lanes) - 1 + sums)
        issued += tile.warps * tile.turns * (tile.steps * step + tree)
        cached += tile.warps * tile.turns * tile.steps * loads * device.warp_size * VECTOR_BYTES
        levels = tile.lanes.bit_length() - 1
        closing = levels * times.shuffle_cycles / device.clock
        waits = max(waits, tile.turns * (tile.steps * load + closing))
    closing_cycles = times.barrier_cycles + gates.operations * times.operation_cycles
    waits += (times.block_cycles + closing_cycles) / device.clock
    bandwidth = device.memory(MemoryLevel.SHARED).bandwidth / processors
    bounds = (
        (gates.weights + gates.others) * blocks / grid / device.read_bandwidth,
        own * cached / bandwidth,
        own * issued / (SCHEDULERS * device.clock),
        waits,
    )
    power = times.overlap_power
    return math.fsum(bound**power for bound in bounds) ** (1 / power)
