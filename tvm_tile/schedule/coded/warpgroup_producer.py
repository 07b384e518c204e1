"""The producer of a kernel for many vectors and codes: what it brings into each stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.tensor_format import Floats, Shared
from tvm_tile.loops.decoding import meaning
from tvm_tile.schedule.coded.fragments import scale_word
from tvm_tile.schedule.coded.loads import box_of
from tvm_tile.schedule.coded.warpgroup_state import CodedWarpgroups
from tvm_tile.schedule.pipelines.clusters import stay
from tvm_tile.schedule.tensor_cores.part import shares
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.schedule.units.ring import Turn, arrive
from tvm_tile.tile.products.warpgroup_tile import WARPGROUP


def produce(kernel: CodedWarpgroups) -> None:
    """Fill stage after stage; all threads of the producer's warpgroup run this."""
    tile = kernel.tile
    turn = Turn(kernel.ring)
    brought = tile.units * tile.block_rows * tile.shared_words
    held = ib.alloc_buffer((-(-brought // WARPGROUP),), "uint32", scope="local")
    memory = kernel.words(tile.shared_start)

    def fill(origin: Place) -> None:
        first, count = kernel.block.own_chunks(origin)
        with ib.serial(count) as number:
            chunk = ib.Bind(first + number)

            def load(turn: int, item: Any, chunk: Any = chunk) -> None:
                ib.buffer_store(held, _shared_word(kernel, item, origin, chunk), [turn])

            # They are on their way while the stage is waited for.
            _for_shared(kernel, load)
            turn.wait_until_empty()
            with ib.If(kernel.block.thread == 0), ib.Then():
                _copy(kernel, turn, origin, chunk)
            start = turn.stage * (tile.stage_bytes // 4)
            _for_shared(
                kernel, lambda turn, item: ib.buffer_store(memory, held[turn], [start + item])
            )
            arrive(turn.full, kernel.of_warp())
            turn.advance()

    kernel.block.for_tiles(fill)
    stay(tile)


def _copy(kernel: CodedWarpgroups, turn: Turn, origin: Place, chunk: Any) -> None:
    """Ask for a chunk of codes, and of the vectors."""
    tile, depth = kernel.tile, kernel.found.found.product.depth
    codes, vectors = kernel.codes, kernel.vectors
    turn.expect(codes.size + vectors.size)
    at = {**origin, codes.depth.name: chunk * tile.row_bytes}
    codes.copy(kernel.maps[0], turn, at)
    vectors.copy(kernel.maps[1], turn, {**origin, depth.name: chunk * tile.depth})


def _for_shared(kernel: CodedWarpgroups, body: Callable[[int, Any], None]) -> None:
    """Run ``body`` for a producer thread's shared words of a chunk: their turns and numbers."""
    tile = kernel.tile
    count = tile.units * tile.block_rows * tile.shared_words
    for turn, (item, is_own) in enumerate(shares(count, kernel.block.thread, WARPGROUP)):
        with when(is_own):
            body(turn, item)


def _shared_word(kernel: CodedWarpgroups, item: Any, origin: Place, chunk: Any) -> Any:
    """A word of a chunk: of a unit of a row its scale, or what is subtracted."""
    tile, form = kernel.tile, kernel.found.form
    row = ib.Bind(origin[kernel.row.name] + item % tile.block_rows)
    outer = () if kernel.group is None else (origin[kernel.group],)
    which = ib.Bind(item // tile.block_rows)
    element = ib.Bind(chunk * tile.depth + which % tile.units * tile.unit)
    at = *outer, ib.min(row, kernel.found.sizes.rows - 1), element  # the last row's of rows behind
    scale = _value(kernel, kernel.found.scales[0], at, "float32")
    word = scale_word(form.dtype, kernel.step_dtype, scale)
    if kernel.found.zero is None:
        return word
    zero = kernel.fragments.kept(_value(kernel, kernel.found.zero, at, "int32"))
    return tirx.if_then_else(which < tile.units, word, zero)


def _value(
    kernel: CodedWarpgroups, shared: tuple[Shared, str], at: Sequence[Any], dtype: str
) -> Any:
    """Number of the box that an element of the matrix, or of the stack, is in."""
    own, name = shared
    place = box_of(own, kernel.found.shape, at)
    value = kernel.buffers[name][place]
    if isinstance(own.stored, Floats):
        return meaning(own.stored, tirx.Cast("int32", value))
    return tirx.Cast(dtype, value)
