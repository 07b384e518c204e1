"""Several products of few rows and what becomes of their sums, by units: how many a block, by whom.

A recurrent cell is one: an LSTM's unit needs eight sums, of four rows of two matrices. All sums of
some units are one block's, so that these meet in its shared memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import VECTOR_BYTES, Device
from tvm_tile.tile.cost import arithmetic_slots
from tvm_tile.tile.few_rows.few_vectors import load_trips
from tvm_tile.tile.powers import powers_of_two
from tvm_tile.tile.residency import given_blocks, given_registers
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work

MOST_VECTORS = 16  # each has a sum in registers for every row that a thread works on
_MOST_SUMS = 64  # of a thread, in registers
_MOST_LOADS = 8  # of weights, of a thread in a step
_MOST_WARPS = 16
_MOST_PRODUCTS = 8
_REGISTERS_BESIDES = 28  # addresses, loop state, what the last part reads beforehand
_REGISTER_LIMIT = 128
_WORD = 4  # bytes
# Instructions by which a lane hands over a sum and adds up another: with two choices, or without.
_HALVING, _EXCHANGING = 4, 2


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
        written: those of them that are written.
    """

    products: tuple[GateProduct, ...]
    units: int
    vectors: int
    operations: int
    others: int
    written: int = 0

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


def construct_gates(
    gates: Gates, device: Device, count: int, scene: Scene = AMID
) -> tuple[GatesTile, ...]:
    """The best tiles, at most ``count``, no two with equal numbers of blocks and threads.

    ``scene`` is where the kernel runs.
    """
    if gates.vectors > MOST_VECTORS or len(gates.products) > _MOST_PRODUCTS:
        return ()
    tiles = _tiles(gates, device)
    told = (replace(tile, work=_work(gates, tile, device)) for tile in tiles)
    best: dict[tuple[int, int], GatesTile] = {}
    for tile in ranked(told, device, scene):
        best.setdefault((tile.grid, tile.block_size), tile)
    return tuple(best.values())[:count]


def _tiles(gates: Gates, device: Device) -> Iterator[GatesTile]:
    """All tiles whose registers suffice: by units of a block that change the grid, and by warps."""
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
        tile = _tile(gates, own, products, device)
        if tile.registers <= _REGISTER_LIMIT:
            yield tile


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


def _tile(gates: Gates, units: int, products: tuple[ProductTile, ...], device: Device) -> GatesTile:
    """The tile of so many units a block, with its registers and its shared memory."""
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
    return GatesTile(
        *(units, products, grid, threads, resident), shared_bytes=shared, registers=registers
    )


def _work(gates: Gates, tile: GatesTile, device: Device) -> Work:
    """What the kernel of a tile does: sums of all products, each by warps of its own, and the rest.

    The products' loops run side by side: what is asked for adds up, and the longest is waited for.
    """
    pairs = tuple(zip(tile.products, gates.products, strict=True))
    steps = [_steps_part(gates, own, product, device) for own, product in pairs]
    trees = [_tree_part(gates, own) for own, _ in pairs]
    short = sum(gates.vectors * product.depth * product.element for product in gates.products)
    # Products may share a short operand, which then is asked for once.
    short = min(short, gates.others - gates.written)
    filled = (gates.weights + gates.others - gates.written - short) / tile.grid + short
    adding = _side_by_side(steps)
    return Work(
        blocks=tile.grid,
        resident=given_blocks(device, tile),
        warps=tile.block_size // device.warp_size,
        parts=(
            replace(adding, fills=filled / adding.repeats),
            _side_by_side(trees),
            _closing_part(gates, tile, device),
        ),
        read=gates.weights + gates.others - gates.written,
        written=gates.written,
    )


def _side_by_side(parts: Sequence[Part]) -> Part:
    """Loops of different warps as one, of as many turns as the longest has."""
    longest = max(parts, key=lambda part: part.repeats * (part.loads + part.exchanges))

    def total(name: str) -> float:
        return sum(part.repeats * getattr(part, name) for part in parts) / longest.repeats

    return replace(
        longest,
        operations=total("operations"),
        moves=total("moves"),
        wavefronts=total("wavefronts"),
    )


def _steps_part(gates: Gates, tile: ProductTile, product: GateProduct, device: Device) -> Part:
    """The steps of a product's warps along the depth; what they fill is not told here."""
    points = tile.rows * tile.loads * product.vector
    short = tile.loads * gates.vectors  # loads
    widened = points + short * product.vector if product.element < _WORD else 0
    size = product.vector * product.element
    words = (tile.rows * tile.loads + 1) * max(1, size // _WORD)
    reached = max(1, tile.lanes * size / WAVEFRONT)
    return Part(
        repeats=tile.turns * tile.steps,
        operations=tile.warps * (points * gates.vectors * arithmetic_slots(device) + widened),
        moves=tile.warps * (tile.rows * tile.loads + short),
        wavefronts=tile.warps * short * reached,
        loads=load_trips(words, tile.steps, device),
    )


def _tree_part(gates: Gates, tile: ProductTile) -> Part:
    """The tree of shuffles that ends each turn of a product's warps.

    At each level a lane keeps half of its sums and hands the others over; the last sum of an odd
    number is exchanged by both lanes.
    """
    held, levels, operations = tile.rows * gates.vectors, tile.lanes.bit_length() - 1, 0
    for _ in range(levels):
        is_halved = held % 2 == 0
        held //= 1 + is_halved
        operations += held * (_HALVING if is_halved else _EXCHANGING)
    return Part(
        repeats=tile.turns,
        operations=tile.warps * operations,
        moves=tile.warps * held,
        wavefronts=tile.warps * held,
        exchanges=levels,
    )


def _closing_part(gates: Gates, tile: GatesTile, device: Device) -> Part:
    """The arithmetic on the sums of a unit, by a thread for each unit and vector, and the store."""
    outputs, warp = tile.units * gates.vectors, device.warp_size
    active, sums = -(-outputs // warp), sum(product.gates for product in gates.products)
    own = gates.others / (gates.units * gates.vectors) / _WORD  # loads and stores of a thread
    return Part(
        stores=gates.written / tile.grid,
        operations=active * gates.operations,
        moves=active * (sums + own),
        wavefronts=active * sums,
        barriers=1,
        exchanges=1,
    )
