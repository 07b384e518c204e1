"""Write a convolution whose part of the image lies in shared memory once, any epilogue behind.

What :func:`write_image_kernel` writes; with one stage, a block has one tile::

    ask for the weights of all columns, and for what the first tile's windows reach of the image
    for tile of the block's:
        wait for what was asked for, and for one another
        ask for the next tile's part of the image, into the other stage
        for step of 16 in depth, written out: load the next step's fragments; sums += left @ right
        store epilogue(sums), each warp through a corner of its own

Why this is free of races: what is copied is read only after each thread has waited for its own
copies and then for all others. A stage is overwritten by copies that are asked for behind such a
meeting: by then all threads have loaded the fragments of the tile before, which lay there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place, digits, split, value_of
from tvm_tile.schedule.tensor_cores.found import ProductMatch
from tvm_tile.schedule.tensor_cores.limits import count_boxes
from tvm_tile.schedule.tensor_cores.parameters import function, views
from tvm_tile.schedule.tensor_cores.place import Boxed, Flat, linear, raster_place
from tvm_tile.schedule.tensor_cores.store import SumStore, when
from tvm_tile.schedule.units.asynchronous_copies import ask
from tvm_tile.schedule.units.mma import MmaOperand, fragment_registers, multiply
from tvm_tile.schedule.warp_products.kernel import store_strips
from tvm_tile.tile.products.image import ImageTile, units_of_sum, units_to
from tvm_tile.tile.products.store_work import SUM_BYTES
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import ELEMENT, FRAGMENT, UNIT, UNIT_BYTES, leaves


@dataclass(frozen=True, slots=True)
class _ImageBlock:
    """A block, while its kernel is written.

    Attributes:
        product: the convolution.
        tile: how it is computed.
        buffers: the function's parameters by name.
        memory: shared memory, bytes.
        thread: number of the thread.
    """

    product: Product
    tile: ImageTile
    buffers: Mapping[str, Any]
    memory: Any
    thread: Any

    def at(self, number: Any) -> tuple[Place, Flat]:
        """First values of the axes of a tile, and its columns."""
        product, tile = self.product, self.tile
        boxes = count_boxes(product.left.free, tile.box, {})
        across = -(-product.right.extent // tile.columns)
        row, column, batch = raster_place(number, math.prod(boxes), across, tile.raster)
        origin = dict(digits(batch, product.batch, [axis.extent for axis in product.batch]))
        rows = zip(digits(row, product.left.free, boxes), tile.box, strict=True)
        origin |= {name: ib.Bind(digit * size) for (name, digit), size in rows}
        return origin, Flat(product.right.free, tile.columns, ib.Bind(column * tile.columns))

    def copy(self, operand: Operand, indices: list[Any], into: Any, inside: Sequence[Any]) -> None:
        """Ask for a unit of an operand's channels; for zeros where not all conditions hold.

        Args:
            operand: the image, or the weights.
            indices: indices of the unit's first element.
            into: unit of shared memory where it goes.
            inside: the conditions.
        """
        size, data = operand.size // ELEMENT, self.buffers[operand.tensor.name].data
        source = ib.decl_buffer((size,), "uint16", data=data)
        pointer = source.ptr_to([linear(operand, indices)])
        ask(self.memory.ptr_to([into * UNIT_BYTES]), pointer, UNIT_BYTES, inside)

    @contextmanager
    def items(self, count: int) -> Iterator[Any]:
        """A frame for what a thread does with each of its items: the number of one."""
        threads = self.tile.block_size
        with ib.serial(-(-count // threads)) as turn:
            item = ib.Bind(self.thread + turn * threads)
            with when([item < count] if count % threads else []):
                yield item


@dataclass(frozen=True, slots=True)
class _ImageLines:
    """Where a lane loads fragments of the image: a unit of the place under each tap.

    Attributes:
        tile: the tile.
        pairs: units from a row's first place to those of each step's two halves; ``None`` where
            there is none.
        half: 1 where the lane points out the deeper half, else 0.
        is_turned: rows are not contiguous.
    """

    tile: ImageTile
    pairs: Sequence[tuple[int, int | None]]
    half: Any
    is_turned: bool = False

    def moved(self, start: tuple[Sequence[Any], Any], row: int, depth: int) -> Any:
        """Bytes to the unit for some rows and a depth.

        Args:
            start: the units of all rows' first places, and one of zeros.
            row: rows from the first on.
            depth: elements of the sum from the first on.
        """
        bases, zero = start
        first, second = self.pairs[depth // FRAGMENT]
        base = bases[row // FRAGMENT]
        if second is None:
            unit = tirx.Select(self.half == 0, base + first, zero)
        else:
            unit = base + first + self.half * (second - first)
        return self.tile.swizzled(unit) * UNIT_BYTES


@dataclass(frozen=True, slots=True)
class _WeightLines:
    """Where a lane loads fragments of the weights: columns one behind the other.

    Attributes:
        pitch: units from one column to the next.
        is_turned: columns are not contiguous.
    """

    pitch: int
    is_turned: bool = False

    def moved(self, start: Any, row: int, depth: int) -> Any:
        """Bytes to the unit for some columns and a depth."""
        return (start + (row * self.pitch + depth // UNIT)) * UNIT_BYTES


def write_image_kernel(found: ProductMatch, tile: ImageTile) -> tirx.PrimFunc:
    """The function of a convolution and what follows it."""
    with function(found.params) as (builder, buffers), ib.attr({"tirx.device_entry": True}):
        _write_tiles(found, tile, buffers)
    return builder.get()


def _write_tiles(found: ProductMatch, tile: ImageTile, buffers: Mapping[str, Any]) -> None:
    """The kernel's tiles, one behind the other."""
    product = found.product
    number, thread = ib.cta_id([tile.grid]), ib.thread_id([tile.block_size])
    memory = ib.alloc_buffer((tile.shared_bytes,), "uint8", scope="shared.dyn", align=128)
    block = _ImageBlock(product, tile, buffers, memory, thread)
    seen = views(found.epilogue.tensors, found.shapes, buffers)
    sums = ib.alloc_buffer((tile.sums,), tile.unit.acc_dtype, scope="local")
    corners = ib.decl_buffer(
        tile.store_shape,
        tile.unit.acc_dtype,
        data=memory.data,
        elem_offset=tile.corners // SUM_BYTES,
        scope="shared.dyn",
    )
    lines, first = _lines(block)
    start = block.at(number)
    _copy_weights(block, *start)
    _copy_image(block, start[0], tirx.const(0))
    count = 1 if tile.stages == 1 else ib.Bind((tile.tiles - 1 - number) // tile.grid + 1)
    with ib.serial(count) as turn:
        ib.evaluate(T.ptx["cp.async.wait_all"]())
        ib.evaluate(T.cuda.cta_sync())
        if tile.stages > 1:
            with ib.If(turn + 1 < count), ib.Then():
                following, _ = block.at(number + (turn + 1) * tile.grid)
                _copy_image(block, following, (turn + 1) % tile.stages)
        with ib.unroll(tile.sums) as i:
            ib.buffer_store(sums, tirx.const(0, tile.unit.acc_dtype), [i])
        _sum_up(block, lines, sums, turn % tile.stages)
        origin, columns = block.at(number + turn * tile.grid)
        rows = Boxed(product.left, tile.box, tile.rows)
        store = SumStore(rows, columns, found.epilogue, seen, corners, tile.sum_layout)
        store_strips(store, tile, sums, first, thread, origin)


def _copy_image(block: _ImageBlock, origin: Place, stage: Any) -> None:
    """Ask for all that the windows of a tile reach, zeros outside of the image and behind all."""
    tile, left = block.tile, block.product.left
    first = {**origin, **{axis.name: tirx.const(0) for axis in block.product.steps}}
    starts = [ib.Bind(value_of(index, first)) for index in left.indices[:-1]]
    into = ib.Bind(tile.image + stage * tile.image_units)
    is_ragged = any(axis.extent % size for axis, size in zip(left.free, tile.box, strict=True))
    with block.items(tile.image_units) as item:
        unit, place = ib.Bind(item % tile.channels), ib.Bind(item // tile.channels)
        reached = zip(starts, split(place, tile.places), strict=True)
        at = [ib.Bind(start + digit) for start, digit in reached]
        inside = [item < tile.units]
        sides = zip(at, left.tensor.shape, leaves(block.product, left), strict=False)
        for index, extent, (below, above) in sides:
            inside += [index >= 0] if below else []
            inside += [index < extent] if above or is_ragged else []
        block.copy(left, [*at, unit * UNIT], tile.swizzled(into + item), inside)


def _copy_weights(block: _ImageBlock, origin: Place, columns: Flat) -> None:
    """Ask for the weights of a tile's columns, zeros where there are none."""
    tile, product = block.tile, block.product
    each = tile.depth // UNIT
    taps = [axis.extent for axis in product.steps]
    with block.items(tile.columns * each) as item:
        column, unit = ib.Bind(item // each), ib.Bind(item % each)
        place, inside = columns.at(column, origin)
        tap = ib.Bind(unit // tile.channels)
        place = {**origin, **place, **dict(digits(tap, product.steps, taps))}
        if tile.depth > math.prod(taps) * product.depth.extent:
            inside.append(tap < math.prod(taps))
        indices = [value_of(index, place) for index in product.right.indices[:-1]]
        channel = unit % tile.channels * UNIT
        block.copy(product.right, [*indices, channel], column * tile.pitch + unit, inside)


def _lines(block: _ImageBlock) -> tuple[tuple[MmaOperand, MmaOperand], tuple[Any, Any]]:
    """A warp's fragments of both operands, and the first row and column that it has of a tile."""
    tile, product = block.tile, block.product
    warp, lane = ib.Bind(block.thread // tile.unit.warp), ib.Bind(block.thread % tile.unit.warp)
    row = ib.Bind(warp // tile.warps[1] * tile.warp_rows)
    column = ib.Bind(warp % tile.warps[1] * tile.warp_columns)
    rows, columns = tile.warp_rows // FRAGMENT, tile.warp_columns // FRAGMENT
    starts = []
    for number in range(rows):
        position = ib.Bind(row + number * FRAGMENT + lane % FRAGMENT)
        place = dict(digits(position, product.left.free, tile.box))
        starts.append(ib.Bind(units_to(tile, product, place)))
    units = units_of_sum(tile, product)
    pairs = [(first or 0, second) for first, second in zip(units[::2], units[1::2], strict=True)]
    image = _ImageLines(tile, pairs, ib.Bind(lane // FRAGMENT))
    # Rows that are loaded at once have zeros of their own, so that all banks serve.
    zero = ib.Bind(tile.zeros + lane % UNIT)
    across = column + lane % UNIT + lane // FRAGMENT * UNIT
    start = ib.Bind(across * tile.pitch + lane // UNIT % 2)
    left = MmaOperand(image, (starts, zero), rows, fragment_registers(rows))
    right = MmaOperand(_WeightLines(tile.pitch), start, columns, fragment_registers(columns))
    return (left, right), (row, column)


def _sum_up(
    block: _ImageBlock, sides: tuple[MmaOperand, MmaOperand], sums: Any, stage: Any
) -> None:
    """Write the steps of a tile's sum, given the stage that its image is in.

    Units change places by their number from the start of memory on, which differs from stage to
    stage: else their places would be found ahead of all tiles, and kept in registers.
    """
    tile, (left, right) = block.tile, sides
    first = ib.Bind(tile.image + stage * tile.image_units)
    bases, zero = left.start
    start = [ib.Bind(first + unit) for unit in bases], ib.Bind(first + zero)
    left = replace(left, start=start)

    def load(step: int) -> None:
        left.load(block.memory, 0, step)
        right.load(block.memory, 0, step)

    load(0)
    for step in range(tile.steps):
        if step + 1 < tile.steps:
            load(step + 1)
        multiply(block.product.left.tensor.dtype, sums, (left, right), step)
