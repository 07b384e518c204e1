"""Tiles for products of few vectors with a matrix that is kept as codes of a few bits.

``y[m, n] = sum over k of x[m, k] * (code[n, k] - zero[n, k // g]) * scale[n, k // g]`` with few
``m`` lasts as long as reading the codes, if they are decoded as fast as they come. So (Marlin's
idea, arXiv 2408.11743; Ladder, OSDI'24) the matrix units multiply even for one vector: the matrix'
rows are theirs, and what is left to issue for a weight is its decoding.

A warp has 16 rows, and takes turns with the other warps of its rows in the steps of the sum. Each
of four lanes takes a run of neighbouring bytes of a row. Which elements of the sum meet in one
instruction does not matter, so no code changes its place. The sums of a step are scaled, or, where
few elements share a scale, the weights: of a step then each run may have another one.

Vectors that are behind a norm of their rows each block makes for itself in shared memory, once it
has asked for its first codes.

Where each vector has a matrix of its own, as a token's experts have, a tile has vectors of one
matrix: as a list tells that a kernel makes ahead, or, of one vector a tile, without any.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tvm_tile.device.device import STATIC_SHARED_LIMIT, Device
from tvm_tile.graph.positions import Grouped
from tvm_tile.tile.few_rows.few_vectors import Prologue
from tvm_tile.tile.products.grouping import grouping_work
from tvm_tile.tile.products.mma import mma_dtypes
from tvm_tile.tile.register_use import register_use
from tvm_tile.tile.residency import given_blocks, given_registers
from tvm_tile.tile.tile import Tile, ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Unit, Work

ROWS, COLUMNS, INNER = 16, 8, 16  # of an instruction
LANES = 4  # of it that share a row
MOST_VECTORS = 32
_WARP = 32
_RUNS = (16, 8, 4)  # bytes
_BYTE = 8  # bits
_SUM_BYTES, _ELEMENT = 4, 2
_MOST_WARPS = 16
_DECODED = 8  # registers of a decoded word of two rows
_MOST_REGISTERS = 255
_SCALE_WORD = 6  # instructions that make a pair of halves of a scale
_CHAINS = 2  # of instructions that wait for one another
_QUAD = 4  # sums that a thread stores at once
_LOAD = 16  # bytes


@dataclass(frozen=True, slots=True)
class CodedProduct:
    """A product with a matrix of codes.

    Attributes:
        vectors: ``m``; where they are in groups, the most that a tile has.
        rows: ``n``, of the matrix.
        depth: ``k``.
        bits: bits of a code.
        group: elements of the sum that share all that is shared, from a multiple of it on.
        beside: bytes of what is read besides codes and vectors: scales and zeros.
        instructions: instructions that decode a pair of codes.
        halves: 2 where each element is made of two sums, one of each half of the rows, as a gate
            and what it lets through are; else 1.
        prologue: computation of the vectors by each block; ``None`` where they lie in memory.
        may_scale_weights: whether weights can be scaled one by one, as their format says.
        groups: groups of the vectors, if each has a matrix of its own, of which all else here is
            told; ``None``: there is one matrix.
    """

    vectors: int
    rows: int
    depth: int
    bits: int
    group: int
    beside: int
    instructions: float = 2.25
    halves: int = 1
    prologue: Prologue | None = None
    may_scale_weights: bool = False
    groups: Grouped | None = None

    @property
    def columns(self) -> int:
        """Instructions side by side that all vectors of a tile take."""
        return -(-self.vectors // COLUMNS)

    @property
    def code_bytes(self) -> int:
        """Bytes of the codes of a matrix."""
        return self.rows * self.depth * self.bits // _BYTE

    @property
    def vector_bytes(self) -> int:
        """Bytes of the vectors of a tile."""
        return self.vectors * self.depth * _ELEMENT

    @property
    def is_listed(self) -> bool:
        """Whether a list tells which vectors make a tile."""
        return self.groups is not None and self.vectors > 1

    @property
    def slots(self) -> int:
        """Tiles of vectors that there may be."""
        if self.groups is None:
            return 1
        return self.groups.slots(self.vectors) if self.is_listed else self.groups.count

    @property
    def filled(self) -> float:
        """Tiles of vectors that there are, on the average."""
        if self.groups is None or not self.is_listed:
            return self.slots
        return self.groups.tiles(self.vectors)

    @property
    def matrices(self) -> float:
        """Matrices that are read from memory: each once, if vectors are listed by their own."""
        return self.groups.met if self.groups is not None and self.is_listed else self.slots

    @property
    def count(self) -> int:
        """All vectors."""
        return self.vectors if self.groups is None else self.groups.count

    def made_bytes(self, warps: int) -> int:
        """Shared memory in which a block of so many warps makes the vectors, if it does."""
        made = self.prologue
        return made.shared_bytes + made.sums * warps * _SUM_BYTES if made else 0


@dataclass(frozen=True, slots=True)
class CodedTile(Tile):
    """How a product with a matrix of codes is computed.

    Attributes:
        parts: warps of a block that share rows, each with a part of the sum.
        strips: warps of a block that have rows of their own.
        stacked: strips of 16 rows that a warp has, all for the vectors' elements that it holds.
        run: bytes of codes that a lane takes of a row in a step.
        step: elements of the sum in a step.
        grid: blocks, in the shared memory of each of which the sums of its parts meet.
        slots: tiles of vectors that these have, each with all rows of a matrix.
        scales_weights: whether weights are scaled, and not the sums of a step.
    """

    parts: int
    strips: int
    stacked: int
    run: int
    step: int
    grid: int = field()
    slots: int = 1
    scales_weights: bool = False

    @property
    def block_size(self) -> int:
        """Threads of a block."""
        return self.parts * self.strips * _WARP

    @property
    def block_rows(self) -> int:
        """Rows of the matrix that a block has."""
        return self.strips * self.stacked * ROWS

    def describe(self) -> str:
        """The tile in one line, for people."""
        rows = f"{self.block_rows} rows a block, {self.parts} parts of the sum"
        rows = rows if self.slots == 1 else f"{self.slots} slots, {rows}"
        scaled = ", scaled weights" if self.scales_weights else ""
        loads = f"loads of {self.run} bytes of each{scaled}"
        return f"{rows}, {self.stacked * ROWS} rows a warp, {loads}"


def construct_coded(
    product: CodedProduct, device: Device, count: int | None = None, scene: Scene = AMID
) -> tuple[CodedTile, ...]:
    """Tiles, best first; none where codes do not fall into whole steps of one scale each.

    None, either, on a device without matrix instructions of a warp.

    Args:
        product: the product.
        device: the device that it is made for.
        count: the most tiles that are wanted; ``None``: all.
        scene: where the kernel runs.
    """
    if not mma_dtypes(device):
        return ()
    tiles = (_with_registers(tile, product, device) for tile in _tiles(product))
    told = (replace(tile, work=_work(tile, product, device)) for tile in tiles if tile)
    return ranked(told, device, scene, count)


def _tiles(product: CodedProduct) -> Iterator[CodedTile]:
    """All tiles that fit a product, if registers suffice; none where no load does."""
    if product.vectors > MOST_VECTORS or product.rows % ROWS:
        return
    shapes = itertools.product(_runs(product), (1, 2, 4, 8, 16), (1, 2, 4), (1, 2, 4))
    for (run, scales_weights), parts, strips, stacked in shapes:
        step = int(_step(product, run))
        steps = product.depth // step
        rows, warps = strips * stacked * ROWS, parts * strips
        if warps > _MOST_WARPS or steps < parts or product.rows % rows:
            continue
        shared = parts * rows * product.columns * COLUMNS * _SUM_BYTES
        shared += product.made_bytes(warps)
        if shared <= STATIC_SHARED_LIMIT:
            grid = product.slots * product.rows // rows
            tile = (parts, strips, stacked, run, step, grid, product.slots, scales_weights)
            yield CodedTile(*tile, shared_bytes=shared)


def _runs(product: CodedProduct) -> list[tuple[int, bool]]:
    """The longest runs of a lane whose sums can be scaled, and whose weights can, if these are
    longer."""
    whole = [run for run in _RUNS if not _step(product, run) % 1]
    of_sums = next((run for run in whole if _fits(product, run, LANES)), 0)
    of_weights = next((run for run in whole if _fits(product, run, 1)), 0)
    found = [(of_sums, False)] if of_sums else []
    is_longer = product.may_scale_weights and of_weights > of_sums
    return [*found, (of_weights, True)] if is_longer else found


def _step(product: CodedProduct, run: int) -> float:
    """Elements of the sum that a warp has in a step, of each row."""
    return LANES * run * _BYTE / product.bits


def _fits(product: CodedProduct, run: int, lanes: int) -> bool:
    """Whether steps of such loads divide the sum, and what ``lanes`` of them have the groups of
    shared scales."""
    step = int(_step(product, run))
    return product.depth % step == 0 and product.group % (step * lanes // LANES) == 0


def _with_registers(tile: CodedTile, product: CodedProduct, device: Device) -> CodedTile | None:
    """``tile`` with its registers; ``None`` where they do not suffice."""
    use, codes = register_use(device), _lane_codes(tile, product)
    # Of each row that a lane has a part of: its codes, and a scale.
    words = tile.stacked * 2 * (tile.run // 4 + 1) + product.columns * codes // 2
    registers = use.beside_loads + words + _sums(tile, product) + _DECODED
    fits = given_registers(device, registers) <= _MOST_REGISTERS
    return replace(tile, registers=registers) if fits else None


def _lane_codes(tile: CodedTile, product: CodedProduct) -> int:
    """Codes of a row that a lane has in a step."""
    return tile.run * _BYTE // product.bits


def _sums(tile: CodedTile, product: CodedProduct) -> int:
    """Registers of sums: a step's, in two chains of products, and those of all steps."""
    return 3 * tile.stacked * product.columns * 4


def _work(tile: CodedTile, product: CodedProduct, device: Device) -> Work:
    """What the kernel of a tile does."""
    written = product.count * product.rows // product.halves * _ELEMENT
    made, warps, groups = product.prologue, tile.block_size // _WARP, product.groups
    blocks = tile.grid * product.filled / product.slots
    parts = (_step_part(tile, product), _closing_part(tile, product, written / blocks))
    first = tile.grid * warps * tile.stacked * ROWS * LANES * tile.run
    is_ahead = device.supports_dependent_launches and groups is None
    return Work(
        blocks=blocks,
        resident=given_blocks(device, tile),
        warps=warps,
        parts=(made.part(tile.block_size, device), *parts) if made else parts,
        read=product.matrices * (product.code_bytes + product.beside) + _given_bytes(product),
        written=written,
        asked=first if is_ahead else 0,
        unit=Unit.WARP,
        dtype="float16",  # bfloat16's rate is no other
        then=(grouping_work(groups, device),) if groups and product.is_listed else (),
    )


def _given_bytes(product: CodedProduct) -> int:
    """Bytes of memory that the vectors are read from, or made of."""
    made = product.prologue
    return made.read_bytes if made else product.count * product.depth * _ELEMENT


def _step_part(tile: CodedTile, product: CodedProduct) -> Part:
    """A step of a block's warps, all of which ask for the next step's codes once they are done.

    A row's codes of a step are whole sectors; where they are less, the rest of these stays in the
    first-level cache. So do its scales, and the vectors for the warps of other rows.
    """
    warps, codes = tile.block_size // _WARP, _lane_codes(tile, product)
    repeats, rows = -(-product.depth // tile.step // tile.parts), 2 * tile.stacked  # of a lane
    own = tile.slots / tile.grid * product.beside
    once = own + (0 if product.prologue else product.vector_bytes)
    multiplied = tile.step // INNER  # instructions along the depth
    products = multiplied * tile.stacked * product.columns
    held = _sums(tile, product) // 3
    decoded = rows * codes // 2 * (product.instructions + tile.scales_weights)
    paired, scaled = product.columns * codes // 2, 2 * held + rows
    if tile.scales_weights:
        scaled = rows * _SCALE_WORD
    read = LANES * tile.run  # bytes of a row; of less than a sector the rest is in a cache
    short = product.columns * -(-codes * _ELEMENT // _LOAD)  # loads of the vectors
    reached = LANES * _LOAD * min(product.vectors, COLUMNS)  # bytes of each
    return Part(
        repeats=repeats,
        fills=warps * tile.stacked * ROWS * read + once / repeats,
        operations=warps * (decoded + paired + products + scaled),
        moves=warps * (2 * rows + short),
        wavefronts=warps * short * max(1, reached / WAVEFRONT),
        flops=warps * 2 * products * ROWS * COLUMNS * INNER,
        loads=1,
        steps=multiplied / _CHAINS,
    )


def _closing_part(tile: CodedTile, product: CodedProduct, written: float) -> Part:
    """Sums meet in shared memory; each thread adds up all parts of some, four at a time.

    Of all that is ``written``, the bytes are those of a block.
    """
    warps, held = tile.block_size // _WARP, _sums(tile, product) // 3
    quads = product.vectors * tile.block_rows // product.halves // _QUAD
    turns = -(-quads // tile.block_size)
    stored = turns * -(-min(quads, tile.block_size) // _WARP)  # stores of warps
    summed = stored * tile.parts * product.halves
    # The four lanes of a row have vectors whose sums lie in the same banks.
    return Part(
        stores=written,
        operations=_QUAD * summed,
        moves=warps * held + summed + stored,
        wavefronts=LANES * warps * held + summed * _QUAD,
        barriers=1,
        exchanges=1 + turns,
    )
