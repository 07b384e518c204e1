"""Operands to shared memory, by all threads of a block, asynchronously."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place, split, value_of
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.halo.block import FIRST_WEIGHTS, SECOND_WEIGHTS, TAPS, Block, join
from tvm_tile.schedule.tensor_cores.place import linear
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.units.asynchronous_copies import ask
from tvm_tile.tile.units.product import Operand
from tvm_tile.tile.units.slab import ELEMENT, vector_width

_UNROLLED = 16  # rounds of loads


def copy_places(block: Block) -> None:
    """Copy the first product's left operand, of all places that the tile's windows reach."""
    first, tile = block.found.halo.first, block.tile
    lines = (tile.places, tile.depth, tile.depth_pitch)
    _copy(block, first.left, first.depth, 0, lines, block.source)


def copy_weights(block: Block, turn: Any) -> None:
    """Copy both products' weights of a turn."""
    found, tile = block.found, block.tile
    stage = ib.Bind(turn % tile.stages)
    channel = ib.Bind(block.channel(turn))
    first, second = found.halo.first, found.halo.second
    (column,) = first.right.free

    def row(line: Any) -> tuple[Place, list[Any]]:
        return {column.name: _of_parts(block, line, channel)}, []

    start = tile.start(FIRST_WEIGHTS) + stage * (tile.columns * tile.depth_pitch)
    lines = (tile.columns, tile.depth, tile.depth_pitch)
    _copy(block, first.right, first.depth, start, lines, row)
    if second is None:
        return
    (output,) = second.right.free

    def filter_(line: Any) -> tuple[Place, list[Any]]:
        return {output.name: line}, [line < output.extent] if tile.width > output.extent else []

    start = tile.start(SECOND_WEIGHTS) + stage * (tile.width * tile.chunk_pitch)
    lines = (tile.width, tile.chunk, tile.chunk_pitch)
    _copy(block, second.right, second.depth, start, lines, filter_, channel)


def copy_taps(block: Block) -> None:
    """Copy the windows' weights, of all turns, taps first.

    Each is a 32-bit number, of whose halves odd columns have the upper one: where the diagonal of
    a product's right operand has it.
    """
    window, tile = block.found.window, block.tile
    if window is None:
        return
    weights = window.weights
    source = ib.decl_buffer(
        (weights.tensor.size // ELEMENT,), "uint16", data=block.buffers[weights.tensor.name].data
    )
    count = tile.turns * tile.taps * tile.kept
    rounds = -(-count // tile.block_size)
    # Unrolled, many loads are on their way at once.
    with (ib.unroll if rounds <= _UNROLLED else ib.serial)(rounds) as round_:
        item = ib.Bind(block.thread + round_ * tile.block_size)
        with when([item < count]):
            column, tap = ib.Bind(item % tile.kept), ib.Bind(item // tile.kept % tile.taps)
            channel = block.channel(item // (tile.kept * tile.taps))
            place = {window.channel: _of_parts(block, column, channel)}
            digits = split(tap, [row.taps for row in window.rows])
            for name, row, digit in zip(window.taps, window.rows, digits, strict=True):
                if name is not None:
                    place[name] = digit % row.taps
            indices = [value_of(index, place) for index in weights.indices]
            word = tirx.Cast("uint32", source[join(indices, weights.tensor.shape)])
            word = word << tirx.Cast("uint32", column % 2 * 16)
            ib.buffer_store(block.words, word, [tile.start(TAPS) // 2 + item])


def _of_parts(block: Block, column: Any, channel: Any) -> Any:
    """The first product's channel for one of a turn's columns, part after part."""
    chunk = block.tile.chunk
    first, *others = block.found.halo.parts
    offset: Any = tirx.const(first, "int32")
    for number, part in enumerate(others, start=1):
        offset = tirx.Select(column >= number * chunk, tirx.const(part, "int32"), offset)
    return ib.Bind(offset + channel + column % chunk)


def _copy(
    block: Block,
    operand: Operand,
    depth: Axis,
    start: Any,
    lines: tuple[int, int, int],
    place_of: Callable[[Any], tuple[Place, list[Any]]],
    first: Any = 0,
) -> None:
    """Ask for lines of an operand; what is not there becomes zero.

    Args:
        block: block whose threads ask.
        operand: contiguous along its depth.
        depth: depth of the product.
        start: place of the first line, in elements of shared memory.
        lines: number of lines, elements of each, elements from one to the next.
        place_of: number of a line -> values of the free axes, and what must hold for it to be.
        first: depth of a line's first element.
    """
    count, length, pitch = lines
    width = vector_width(operand, depth)
    each = length // width
    source = ib.decl_buffer(
        (operand.size // ELEMENT,), "uint16", data=block.buffers[operand.tensor.name].data
    )
    threads = block.tile.block_size
    with ib.serial(-(-count * each // threads)) as round_:
        item = ib.Bind(block.thread + round_ * threads)
        with when([item < count * each] if count * each % threads else []):
            line, element = ib.Bind(item // each), ib.Bind(item % each * width)
            place, holds = place_of(line)
            at = first + element
            # Lines are a depth in whole fragments, or a turn's part of one.
            holds = [*holds, *([at < depth.extent] if length > depth.extent else [])]
            place = {**place, depth.name: at}
            offset = linear(operand, [value_of(index, place) for index in operand.indices])
            into = block.pointer(start + line * pitch + element)
            ask(into, source.ptr_to([offset]), width * ELEMENT, holds)
