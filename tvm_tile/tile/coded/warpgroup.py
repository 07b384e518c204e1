"""Tiles of products of many vectors with a matrix of codes, for Hopper's warpgroup instructions.

The matrix' rows are the instructions': their left operand comes from registers, so codes are
decoded there while products of the step before run, and no decoded matrix crosses memory. The
vectors, right operand, come by bulk tensor copies, as :mod:`tvm_tile.tile.products.warpgroup`
says; so do the codes. Sums are those of the transposed product.

Where each vector has a matrix of its own, a tile has vectors of one matrix, as a list tells; these
are copied side by side ahead, so that they come by bulk copies, too.

A consumer is a warpgroup with 64 rows of the matrix. For the vectors of a tile it decodes each code
once: the wider the tile, the less there is to issue for each product. Few vectors make few tiles,
so the blocks of a cluster share the sum of each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.tile.coded.few_vectors import CodedProduct
from tvm_tile.tile.products.grouping import grouping_work, packing_work
from tvm_tile.tile.products.ring import SPLITS, fitted
from tvm_tile.tile.products.store_work import BARE, StoreWork
from tvm_tile.tile.products.warpgroup import warpgroup_dtypes
from tvm_tile.tile.products.warpgroup_tile import LINE, ROWS, RingTile
from tvm_tile.tile.tile import ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Unit, Work
from tvm_tile.tile.units.sum_layout import CORNER_COLUMNS, CORNER_ROWS, QUAD

STEP = 32  # elements of the sum that are decoded together: two instructions deep
LINE_DEPTH = 64  # halves of a line
_FEWEST_VECTORS = 17  # up to 16 are few: the rule for these reads as fast as memory
_WIDTHS = (24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 224, 256)  # of an instruction
_CONSUMERS = (1, 2, 3, 4)
_LINES = (1, 2, 4)  # of a vector in a chunk
_MOST_BLOCKS = 4
_RASTER = 2048  # rows, or vectors
_FEWEST_STAGES = 3
_ALIGNMENT = 1024  # bytes, of swizzled lines in a stage
_WORD = 4  # bytes
_BYTE = 8  # bits
_ELEMENT = 2  # bytes
_FRAGMENTS = 16  # registers of two steps' decoded weights
_OTHER_REGISTERS = 45  # of a consumer thread, besides sums, codes and decoded weights
_PAIRS = 8  # of codes that a thread decodes in a step, in each of its two rows
_WARPS = 4  # of a warpgroup
_WARP = 32
_MEETING_ROWS = 8  # of the matrix, whose codes a warp loads at once
# Instructions of a warp, besides loads and decoding, in a step: the two products, their fence,
# their group and the wait for it; in a chunk: the wait for its stage, and the turn to the next.
_STEP_SLOTS, _CHUNK_SLOTS = 5, 50


@dataclass(frozen=True, slots=True, kw_only=True)
class CodedWarpgroupTile(RingTile):
    """How warpgroups compute a tile of a product with a matrix of codes.

    Each consumer decodes, and multiplies, 64 rows of the matrix; the tile's columns are vectors.

    Attributes:
        row_bytes: bytes of a row's codes in a chunk.
        unit: elements of the sum, from a multiple of it on, that share all that is shared.
        shared_words: words of a row in such a unit: its scale, and its zero point if rows differ in
            that.
        counts: tiles along the matrix' rows, and along the vectors.
    """

    row_bytes: int
    unit: int
    shared_words: int
    counts: tuple[int, float]

    @property
    def lines(self) -> int:
        """Lines of a vector in a chunk, 64 elements each."""
        return self.depth // LINE_DEPTH

    @property
    def units(self) -> int:
        """Units of a chunk, each of which has shared words of its own."""
        return self.depth // self.unit

    @property
    def codes_start(self) -> int:
        """Bytes of a stage ahead of the codes: the vectors' lines."""
        return self.lines * self.width * LINE

    @property
    def shared_start(self) -> int:
        """Bytes of a stage ahead of what boxes share."""
        return self.codes_start + self.block_rows * self.row_bytes

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage: vectors, codes, and what their boxes share."""
        size = self.shared_start + self.units * self.block_rows * self.shared_words * _WORD
        return -(-size // _ALIGNMENT) * _ALIGNMENT

    @property
    def together(self) -> int:
        """Vectors whose sums a warp stores together."""
        return math.gcd(self.width, CORNER_COLUMNS)

    @property
    def store_shape(self) -> tuple[int, ...]:
        """Sums that go out together, by vectors and rows: the block's part of them, or a warp's.

        Their padding keeps neighbouring vectors on different banks.
        """
        if self.splits > 1:
            return (self.width, self.block_rows + QUAD)
        return (4 * self.consumers, self.together, CORNER_ROWS + QUAD)

    def describe(self) -> str:
        """The tile in one line, for people."""
        return f"block {self.block_rows} rows by {self.width}, {RingTile.describe(self)}"


def construct_coded_warpgroup(
    product: CodedProduct,
    shared_words: int,
    device: Device,
    work: StoreWork = BARE,
    count: int | None = None,
    scene: Scene = AMID,
    copying: Work | None = None,
) -> tuple[CodedWarpgroupTile, ...]:
    """Tiles, best first; none where boxes of codes are cut by steps, or of few vectors.

    Args:
        product: the product, with ``instructions`` as the warpgroups' decoding takes them.
        shared_words: words of a row's shared numbers: its scale, perhaps its zero point.
        device: the device; there are no tiles if it has no warpgroup instructions.
        work: work on the sums before they are stored.
        count: the most tiles that are wanted; ``None``: all.
        scene: where the kernel runs.
        copying: work of the kernel that copies vectors in groups side by side; ``None`` where they
            are in none.
    """
    if "float16" not in warpgroup_dtypes(device) or product.vectors < _FEWEST_VECTORS:
        return ()
    tiles = _tiles(product, shared_words, device)
    works = ((tile, _work(product, tile, work)) for tile in tiles if tile)
    if product.groups is not None and copying is not None:
        ahead = grouping_work(product.groups, device), copying
        packing = ((packing_work(product.groups.slots(t.width), device), t, w) for t, w in works)
        works = ((tile, replace(own, then=(*ahead, pack))) for pack, tile, own in packing)
    told = (replace(tile, work=own) for tile, own in works)
    return ranked(told, device, scene, count)


def _tiles(
    product: CodedProduct, shared_words: int, device: Device
) -> Iterator[CodedWarpgroupTile | None]:
    """All tiles of a coded product for warpgroups, ``None`` for those that do not fit."""
    splits = SPLITS if product.groups is None else (1,)
    shares = (*((n, 1) for n in splits), *((1, n) for n in range(2, _MOST_BLOCKS + 1)))
    widths = [_width(product.vectors, most) for most in _WIDTHS]
    if product.groups is not None:
        widths = [8, 16, *_WIDTHS]
    for lines in _LINES:
        depth = lines * LINE_DEPTH
        unit = math.gcd(product.group, depth)
        if product.depth % depth or unit % STEP:
            continue
        for consumers, width, share in itertools.product(_CONSUMERS, dict.fromkeys(widths), shares):
            rows = consumers * ROWS
            counts = -(-product.rows // rows), _count(product, width)
            tile = CodedWarpgroupTile(
                consumers=consumers,
                width=width,
                depth=depth,
                row_bytes=depth * product.bits // _BYTE,
                unit=unit,
                shared_words=shared_words,
                splits=share[0],
                blocks=share[1],
                counts=counts,
                tiles=math.ceil(math.prod(counts)),
                chunks=product.depth // depth,
                raster=_raster(product, rows, width),
                registers=width // 2 + 2 * product.bits + _FRAGMENTS + _OTHER_REGISTERS,
            )
            yield fitted(tile, device, _FEWEST_STAGES, least_chunks=1)


def _count(product: CodedProduct, width: int) -> float:
    """Tiles of so many vectors, of one matrix each; where data tell them, on the average."""
    if product.groups is None:
        return -(-product.vectors // width)
    return product.groups.tiles(width)


def _raster(product: CodedProduct, rows: int, width: int) -> int:
    """Tiles of rows that are walked before the next vectors; where these are in groups, tiles of
    vectors before the next rows."""
    if product.groups is not None:
        return min(product.groups.slots(width), max(1, _RASTER // width))
    return min(-(-product.rows // rows), max(1, _RASTER // rows))


def _width(vectors: int, most: int) -> int:
    """The narrowest tile of which as few cover all vectors as of the widest."""
    tiles = -(-vectors // most)
    return -(-vectors // tiles // 8) * 8


def _work(product: CodedProduct, tile: CodedWarpgroupTile, work: StoreWork) -> Work:
    """What the kernel of a tile does, ``work`` on its sums included."""
    turns = -(-tile.tiles * tile.splits // tile.grid)
    written = product.vectors * product.rows * _ELEMENT
    matrices = 1 if product.groups is None else product.groups.met
    read = matrices * (product.code_bytes + product.beside)
    read += product.vectors * product.depth * _ELEMENT
    return Work(
        blocks=tile.grid,
        resident=tile.blocks,
        warps=tile.block_size // _WARP,
        parts=(
            Part(loads=1, arrivals=1),  # the ring is empty at first
            _chunk_part(product, tile, turns),
            _store_part(tile, work, turns, written / tile.tiles / tile.splits),
        ),
        read=read + work.read_bytes,
        written=written,
        unit=Unit.GROUP,
        dtype="float16",  # bfloat16's rate is no other
    )


def _chunk_part(product: CodedProduct, tile: CodedWarpgroupTile, turns: int) -> Part:
    """A chunk of a block's tiles: what its producer brings, and its consumers' steps.

    Boxes that reach behind the last row or vector bring less. The rows whose codes a warp loads at
    once lie some to a line of banks, so that of more they meet in the same ones.
    """
    steps, units, warps = tile.depth // STEP, tile.units, tile.consumers * _WARPS
    rows, columns = product.rows / tile.counts[0], product.vectors / tile.counts[1]
    row_bytes = tile.row_bytes + product.beside / product.rows * tile.depth / product.depth
    codes = 2 * steps * -(-product.bits // 4)  # loads of two rows
    shared = 2 * units * tile.shared_words
    meeting = max(1, _MEETING_ROWS * min(tile.row_bytes, WAVEFRONT) // WAVEFRONT)
    brought = units * tile.block_rows * tile.shared_words / _WARP  # loads, and stores, of warps
    decoding = steps * (_PAIRS * product.instructions + _STEP_SLOTS)
    return Part(
        repeats=turns * tile.chunks_each,
        fills=rows * row_bytes + columns * tile.depth * _ELEMENT,
        operations=warps * decoding + (warps + _WARPS) * _CHUNK_SLOTS,
        moves=warps * (codes + shared) + 2 * brought + 1 + tile.lines,
        wavefronts=warps * (codes * meeting + shared) + brought,
        flops=2 * tile.block_rows * tile.width * tile.depth,
        loads=1,
        steps=steps,
        arrivals=1,
        ahead=tile.stages,
    )


def _store_part(tile: CodedWarpgroupTile, work: StoreWork, turns: int, written: float) -> Part:
    """The end of a tile: sums go through shared memory, so that four neighbours are stored at once.

    The blocks that share a sum wait for one another, and each adds up all parts of its rows.
    """
    warps, sums = tile.consumers * _WARPS, tile.width // 2  # of a thread
    quads, own = sums / QUAD, sums / tile.splits
    is_split = tile.splits > 1
    return Part(
        repeats=turns,
        stores=written,
        operations=warps * (own * (work.operations + 1) + is_split * sums),
        moves=warps * (sums + quads + quads / tile.splits),
        wavefronts=warps * 2 * sums,
        loads=1 if work.read_bytes else 0,
        meetings=2 * is_split,
        exchanges=1 if is_split else tile.width // tile.together,
    )
