"""Tiles of products for Hopper's warpgroup instructions (wgmma), fed by bulk tensor copies (TMA).

A block keeps a ring of stages in shared memory. Its producer asks for a chunk of both operands a
stage, each a box of its tensor; its consumers, a warpgroup for every 64 or 128 rows, multiply
chunk by chunk and keep the sums in registers. Roller's alignment rules (section 3.1) are here what
the instructions and the copies ask for: 64 rows, 8 columns, 128 bytes of depth, boxes of at most
256 elements a dimension, strides and starts of whole 16 bytes.

While a block stores its sums, its tensor cores idle. Where depth is shallow that is most of the
time, so several blocks may share a multiprocessor, each with a part of its memory and registers. Or
two consumers take tiles in turns (CUTLASS calls it ping-pong): while one stores, the other
multiplies.

A matrix that is kept without its zeros (:class:`~tvm_tile.graph.sparsity.Compressed`) is the
instructions' left operand, whichever of the product's it is: its rows are theirs, and a line of
what is kept meets two lines of each column.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from tvm_tile.device.device import RATED_AS, STATIC_SHARED_LIMIT, Device, MatrixInstruction
from tvm_tile.graph.sparsity import TWO_OF_FOUR
from tvm_tile.graph.tile_graph import Axis, element_size
from tvm_tile.tile.products.copyable import ALIGNMENT, is_copyable
from tvm_tile.tile.products.grouping import gathering_work, grouping_work, packing_work
from tvm_tile.tile.products.ring import (
    SPLITS,
    chunk_flops,
    fitted,
    ring_work,
)
from tvm_tile.tile.products.store_work import BARE, StoreWork
from tvm_tile.tile.products.warp_tile import chunk_counts
from tvm_tile.tile.products.warpgroup_tile import (
    LINE,
    ROWS,
    STEP_BYTES,
    WARPGROUP,
    WarpgroupTile,
)
from tvm_tile.tile.residency import launched_registers
from tvm_tile.tile.tile import near_ties, ranked
from tvm_tile.tile.time import AMID, WAVEFRONT, Part, Scene, Work
from tvm_tile.tile.units.product import Operand, Product

_WIDTHS = (8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256)  # its columns
_WIDEST = {"int32": 224}  # by the sums' dtype, where PTX's syntax, and TVM's, end before
# Warpgroups, whether they take tiles in turns, and instructions of each.
_SHAPES = ((1, False, 1), (2, False, 1), (2, False, 2), (2, True, 1), (2, True, 2))
# An operand's dtype -> the device record's; float32 is tf32, of devices that may: see with_tf32.
_OPERANDS = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")
_DTYPES = {dtype: RATED_AS.get(dtype, dtype) for dtype in _OPERANDS}
TRANSPOSABLE = 2  # bytes of an element, of which the rows may be contiguous
_BOX = 256
_LEAST_NEIGHBOURS = 32  # columns of the last axis, where a tile has several
_MOST_BLOCKS = 8  # of a multiprocessor's threads each takes an eighth, or more
# Blocks of a sum, and of a multiprocessor: clusters have theirs for themselves.
_SHARES = (*((splits, 1) for splits in SPLITS), *((1, n) for n in range(2, _MOST_BLOCKS + 1)))
_ALONE = ((1, 1),)
_LEAST_CHUNKS = 2  # of each block that shares a sum
_FEWEST_STAGES = 2
_OTHER_REGISTERS = 40  # of a consumer thread, besides its sums
_OPERAND_REGISTERS = 26  # besides an instruction's sums: ptxas asks for them at the launch


def construct_warpgroup(
    product: Product, device: Device, count: int, work: StoreWork = BARE, scene: Scene = AMID
) -> tuple[WarpgroupTile, ...]:
    """The best tiles, at most ``count``, best first; none if the device or the copies refuse.

    ``work`` is what becomes of the sums, ``scene`` where the kernel runs.
    """
    product = as_multiplied(product)
    if not _can_be_multiplied(product, device) or not _can_be_copied(product):
        return ()
    tiles = (
        replace(tile, work=work_of(product, device, tile, work))
        for tile in _tiles(product, device)
        if tile is not None
    )
    # Of equals the one that waits for nobody, then the one that asks the cache for least.
    near = _NEAR_TIE if product.groups is None else _NEAR_TIE_OF_GROUPS
    return near_ties(ranked(tiles, device, scene), near, _preference)[:count]


def shorter_work(product: Product, device: Device, tile: WarpgroupTile, work: StoreWork) -> Work:
    """What a kernel does that leaves out tiles behind the end of a product.

    Args:
        product: the product that is asked for, shorter than the one that the tile was made for.
        device: the device that the tile is made for.
        tile: a tile whose grid stays as it is.
        work: work on the sums before they are stored.
    """
    product = as_multiplied(product)
    tiles = _count(product, tile.rows, tile.columns)
    return work_of(product, device, replace(tile, tiles=tiles), work)


def as_multiplied(product: Product) -> Product:
    """The product with its operands as instructions take them: a compressed one on the left."""
    if product.right.compressed is None:
        return product
    return replace(product, left=product.right, right=product.left)


def _count(product: Product, rows: Sequence[int], columns: Sequence[int]) -> int:
    """Number of tiles that cover a product; of rows in groups, on the average."""
    if product.groups is not None:
        across = math.prod(counts(product.right.free, columns))
        return math.ceil(product.groups.tiles(rows[0]) * across)
    tiles = (*counts(product.left.free, rows), *counts(product.right.free, columns))
    return product.batches * math.prod(tiles)


def _preference(tile: WarpgroupTile) -> tuple[int, float]:
    """Order among tiles of nearly equal time: few splits, then few lines copied."""
    return tile.splits, _lines(tile) / (math.prod(tile.rows) * math.prod(tile.columns))


def _lines(tile: WarpgroupTile) -> int:
    """Lines of a chunk that a block asks for."""
    return math.prod(tile.rows) + math.prod(tile.columns)


def warpgroup_dtypes(device: Device) -> frozenset[str]:
    """Element types for which :func:`construct_warpgroup` finds tiles on a device."""
    return frozenset(dtype for dtype, name in _DTYPES.items() if name in _instructions(device))


def compressed_dtypes(device: Device) -> frozenset[str]:
    """Element types of :func:`warpgroup_dtypes` of which one operand may have two numbers in each
    four that are summed up, as :class:`~tvm_tile.graph.sparsity.Compressed` says."""
    known, rated = _instructions(device), f" {TWO_OF_FOUR}"
    return frozenset(dtype for dtype in _DTYPES if _DTYPES[dtype] + rated in known)


def dtypes_by_depth(device: Device) -> frozenset[str]:
    """Element types of :func:`warpgroup_dtypes` whose summed axis must be contiguous."""
    known = warpgroup_dtypes(device)
    return frozenset(dtype for dtype in known if element_size(dtype) != TRANSPOSABLE)


def _instructions(device: Device) -> dict[str, MatrixInstruction]:
    """The warpgroup instructions of a device, by the operands' element type."""
    return {i.in_dtype: i for i in device.matrix_instructions if i.intrinsic == "wgmma"}


def _can_be_multiplied(product: Product, device: Device) -> bool:
    """Whether an instruction of the device takes both operands, perhaps of two dtypes."""
    left, right = (_DTYPES.get(o.tensor.dtype) for o in (product.left, product.right))
    return left == right and left is not None and _rated(product) in _instructions(device)


def _rated(product: Product) -> str:
    """The type by which the device's record names the instructions of a product."""
    dtype, sparsity = _DTYPES[product.left.tensor.dtype], product.left.sparsity
    return dtype if sparsity is None else f"{dtype} {sparsity}"


def _depth(product: Product) -> int:
    """Summed elements of a chunk: a line of the left operand's rows."""
    line, sparsity = LINE // product.left.tensor.element_size, product.left.sparsity
    return line if sparsity is None else line * sparsity.of // sparsity.kept


def _can_be_copied(product: Product) -> bool:
    """Whether both operands are tensors that TMA takes, and as wgmma reads them."""
    for operand in (product.left, product.right):
        if operand.compressed is not None:
            if operand.strides[0] % ALIGNMENT:
                return False
            continue  # it is kept as it is copied
        if operand.tensor.element_size != TRANSPOSABLE and not operand.is_depth_major:
            return False  # the instruction cannot transpose it
        if not is_copyable(operand, product.depth, _depth(product)):
            return False
    return True


def _tiles(product: Product, device: Device) -> Iterator[WarpgroupTile | None]:
    """All tiles of a product for warpgroups, ``None`` for those that do not fit."""
    element = product.left.tensor.element_size
    for (consumers, alternates, instructions), width in itertools.product(_SHAPES, _WIDTHS):
        if alternates and product.listed:
            continue  # in turns, each has to know how many chunks the other's tile has
        if instructions * width > _WIDTHS[-1]:
            continue  # more than half of a thread's registers would hold sums
        size = ROWS * instructions * (1 if alternates else consumers)
        rows = _box(product.left, size, LINE // element)
        columns = _columns(product, width, LINE // element)
        if rows is None or columns is None:
            continue
        shape = (consumers, alternates, instructions, width)
        shares = _ALONE if alternates else _SHARES
        if product.groups is not None or product.sums > 1:
            shares = tuple(share for share in shares if share[0] == 1)
        for splits, blocks in shares:
            yield _tile(product, device, rows, columns, (*shape, splits, blocks))


def _columns(product: Product, width: int, line: int) -> tuple[int, ...] | None:
    """Extents of the columns' axes in a tile of ``width``; sums of an element are in one."""
    if product.sums == 1:
        return _box(product.right, width, line, _LEAST_NEIGHBOURS)
    operand = replace(product.right, free=product.right.free[:-1])
    box = _box(operand, width // product.sums, line, _LEAST_NEIGHBOURS)
    return None if box is None else (*box, product.sums)


@functools.cache
def _box(operand: Operand, size: int, line: int, least: int = 1) -> tuple[int, ...] | None:
    """Extents of the free axes in a tile of ``size``: as few tiles as possible, rows unbroken.

    With the depth contiguous, a box is rows of it. Otherwise the last axis is contiguous, and whole
    lines of it are copied. Of several axes, the last one has ``least`` in a box, or as many as a
    box can have: ``None`` where these exceed ``size``.
    """
    axes = operand.free
    if not axes:
        return ()
    if operand.compressed is not None:
        return (size,)  # words tell of whole instructions' rows
    if not operand.is_depth_major:
        return (*(1 for _ in axes[:-1]), size) if size % line == 0 else None
    if len(axes) == 1 and _step_of(operand, axes[0]) == 1:
        # Stores of neighbours stay aligned.
        tiles = -(-axes[0].extent // size)
        box = min(size, -(-axes[0].extent // tiles // 8) * 8)
        return (box,) if box <= _BOX else None
    steps = [_step_of(operand, axis) for axis in axes]
    choices = [_extents(axis, size, step) for axis, step in zip(axes, steps, strict=True)]
    if len(axes) > 1:
        least = min(least, _extents(axes[-1], _BOX, steps[-1])[-1])
        choices[-1] = [extent for extent in choices[-1] if extent >= least]
    fitting = (box for box in itertools.product(*choices) if math.prod(box) <= size)

    def waste(box: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
        return math.prod(counts(axes, box)), tuple(-extent for extent in reversed(box))

    return min(fitting, key=waste, default=None)


def _extents(axis: Axis, size: int, step: int) -> list[int]:
    """Extents that need fewer tiles than any smaller one."""
    most = min(axis.extent, size, (_BOX - 1) // step + 1)
    return [e for e in range(1, most + 1) if -(-axis.extent // -(-axis.extent // e)) == e]


def _step_of(operand: Operand, axis: Axis) -> int:
    """Coefficient of an axis in the operand's index that walks along it."""
    return next(i.coefficient(axis.name) for i in operand.indices if i.coefficient(axis.name))


def counts(axes: Sequence[Axis], box: Sequence[int]) -> list[int]:
    """Tiles of a box along each axis."""
    return [-(-axis.extent // size) for axis, size in zip(axes, box, strict=True)]


def _tile(
    product: Product,
    device: Device,
    rows: tuple[int, ...],
    columns: tuple[int, ...],
    shape: tuple[int, bool, int, int, int, int],
) -> WarpgroupTile | None:
    """The tile of this shape, fitted to the device; ``None`` if it does not fit."""
    consumers, alternates, instructions, width, splits, blocks = shape
    size = ROWS * instructions * (1 if alternates else consumers)
    sum_dtype = _instructions(device)[_DTYPES[product.left.tensor.dtype]].acc_dtype
    if width > _WIDEST.get(sum_dtype, width):
        return None
    raster = min(math.prod(counts(product.left.free, rows)), max(1, 2048 // size))
    tile = WarpgroupTile(
        rows=rows,
        columns=columns,
        depth=_depth(product),
        consumers=consumers,
        alternates=alternates,
        instructions=instructions,
        width=width,
        raster=raster,
        splits=splits,
        blocks=blocks,
        sum_dtype=sum_dtype,
        sparsity=product.left.sparsity,
        is_turned=product.write.contiguous_axis in {axis.name for axis in product.left.free},
        tiles=_count(product, rows, columns),
        chunks=math.prod(line_chunks(product)),
        registers=width * instructions // 2 + _OTHER_REGISTERS,
    )
    if tile.fixed_bytes > STATIC_SHARED_LIMIT:
        return None
    launched = launched_registers(device, blocks, tile.block_size)
    if launched < width // 2 + _OPERAND_REGISTERS:
        return None
    found = fitted(tile, device, _FEWEST_STAGES, _LEAST_CHUNKS)
    return found if found is None or product.listed is None else _listed(product, device, found)


def _listed(product: Product, device: Device, tile: WarpgroupTile) -> WarpgroupTile | None:
    """The tile of a product with lists, with the share of its tiles' chunks that the busiest
    multiprocessor walks; ``None`` where blocks that share a list would have too few."""
    assert product.listed is not None
    is_left = product.left.listed is not None
    sides = (product.left.free, tile.rows), (product.right.free, tile.columns)
    rows, columns = (math.prod(counts(*side)) for side in sides)
    ((axis,), (box,)) = sides[0 if is_left else 1]
    each = np.array(product.listed.counts(box, axis.extent))
    if tile.splits > 1:
        walked = float(each.max() / tile.chunks)
        return replace(tile, walked=walked) if each.min() >= tile.splits * _LEAST_CHUNKS else None
    index = np.arange(tile.tiles)
    turns, block = np.divmod(index, tile.grid)
    block = np.where(turns % 2, tile.grid - 1 - block, block)  # there and back
    first = index // (tile.raster * columns) * tile.raster
    rest = index % (tile.raster * columns)
    size = np.minimum(rows - first, tile.raster)
    place = first + rest % size if is_left else rest // size
    units = device.multi_processor_count
    busiest = np.bincount(block % units, each[place]).max()
    return replace(tile, walked=float(busiest / (-(-tile.tiles // units) * tile.chunks)))


def line_chunks(product: Product) -> list[int]:
    """Chunks, a line deep, of a tile's whole sum along the steps and the depth, in this order."""
    return chunk_counts(product, _depth(product))


def work_of(product: Product, device: Device, tile: WarpgroupTile, work: StoreWork) -> Work:
    """What the kernel of a tile does; ``work`` is that on its sums before they are stored."""
    left, right, extent = product.left, product.right, product.depth.extent
    depth = extent / -(-extent // tile.depth)
    sides = ((left, tile.rows), (right, tile.columns))
    counted = [side.extent / math.prod(counts(side.free, box)) for side, box in sides]
    if product.groups is not None:
        counted[0] = product.groups.count / product.groups.tiles(tile.rows[0])
    told = 0.0 if left.compressed is None else counted[0] * left.compressed.places_bytes(depth)
    lengths = [side.depth_bytes(depth) for side, _ in sides]
    rows = list(zip(counted, lengths, strict=True))
    filled = told + sum(count * length for count, length in rows)
    asked = told + sum(
        count * (_in_lines(side, length) if side.is_depth_major else length)
        for (side, _), (count, length) in zip(sides, rows, strict=True)
    )
    line = LINE // left.tensor.element_size
    copies = sum(1 if side.is_depth_major else box[-1] // line for side, box in sides)
    warps = WARPGROUP // device.warp_size * tile.sharers
    multiplied = LINE // STEP_BYTES * tile.instructions
    # Words that tell which numbers are kept, and the other line of the columns.
    beside = 0 if tile.sparsity is None else 2 + warps * tile.instructions
    chunk = Part(
        fills=asked,
        operations=warps * (multiplied * _OF_AN_INSTRUCTION + _OF_A_GROUP),
        moves=copies + beside + _OF_A_STAGE * (1 + warps),
        wavefronts=filled / WAVEFRONT,
        flops=chunk_flops(tile),
    )
    moved = (product.read_size, product.write.tensor.size)
    found = ring_work(tile, device, chunk, work, moved, _rated(product))
    if product.groups is None:
        return found
    listing = grouping_work(product.groups, device)
    packing = packing_work(product.groups.slots(tile.rows[0]), device)
    ahead = listing, packing, gathering_work(product, device)
    return replace(found, then=(*ahead, *found.then))


def _in_lines(operand: Operand, length: float) -> float:
    """Bytes of the whole lines of memory in which a row of a chunk lies, on average.

    A bulk copy asks for each of them: a row of 48 channels is 96 bytes, every other one in two.
    """
    steps = [
        abs(coefficient) * stride
        for index, stride in zip(operand.indices[:-1], operand.strides[:-1], strict=True)
        for _, coefficient in index.terms
    ]
    apart = math.gcd(LINE, *steps)
    places = range(0, LINE, apart)
    return LINE * sum(-(-(place + length) // LINE) for place in places) / len(places)


# Itself; for each operand two words of its descriptor, copied, added to, and moved to where the
# instruction reads them.
_OF_AN_INSTRUCTION = 13
_OF_A_GROUP = 22  # fence, commit, wait, the stage's place, and which round of the ring it is
_OF_A_STAGE = 2  # uses of its barriers: to wait, and to say what comes, or that it is empty
_NEAR_TIE = 1.01
_NEAR_TIE_OF_GROUPS = 1.02  # how many tiles these fill is an average
