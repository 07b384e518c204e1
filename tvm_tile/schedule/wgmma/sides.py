"""What a chunk of a product is made of, as the copy engine brings it and consumers read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.graph.sparsity import PLACES_ROWS, PLACES_WORDS, places_shape
from tvm_tile.graph.tile_graph import AffineIndex, Axis, Tensor
from tvm_tile.schedule.tensor_cores.chunks import chunk_place
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.schedule.units.bulk_copies import TmaChunks
from tvm_tile.schedule.units.ring import Turn
from tvm_tile.tile.products.warpgroup_tile import LINE, WARPGROUP, WarpgroupTile
from tvm_tile.tile.units.product import Operand, Product

_ROW_TILE, _WORD = "places.tile", "places.word"  # axes of the words
_WORD_BYTES = 4
_EACH = PLACES_WORDS // WARPGROUP  # words of a thread in a chunk, for 64 rows


@dataclass(frozen=True, slots=True)
class Sides:
    """A chunk's operands, and what tells which numbers the left one has.

    Attributes:
        product: the product, its operands as instructions take them.
        tile: how it is computed.
        left: the left operand's chunks.
        right: the right one's.
        places: chunks of the words that tell which of its neighbours the left operand has; ``None``
            where it has all.
    """

    product: Product
    tile: WarpgroupTile
    left: TmaChunks
    right: TmaChunks
    places: TmaChunks | None

    @classmethod
    def of(cls, product: Product, tile: WarpgroupTile) -> Sides:
        """The chunks of a product, one side behind the other in a stage."""
        left, right, depth = product.left, product.right, product.depth
        kept, line = depth, tile.depth // tile.lines
        if left.compressed is not None:
            kept = Axis(left.indices[-1].terms[0][0], left.tensor.shape[-1], is_reduce=True)
        start = tile.block_rows * LINE
        return cls(
            product,
            tile,
            TmaChunks(left, tile.rows, 0, kept, line),
            TmaChunks(right, tile.columns, start, depth, line, tile.lines),
            _places(product, tile),
        )

    @property
    def copied(self) -> Sequence[TmaChunks]:
        """All that a chunk is made of."""
        both = self.left, self.right
        return both if self.places is None else (*both, self.places)

    def place(self, origin: Place, chunk: Any) -> Place:
        """First values of all axes in a chunk.

        Args:
            origin: those of the tile's.
            chunk: number of the chunk.
        """
        place: dict[str, Any] = {**origin, **chunk_place(self.product, self.tile.depth, chunk)}
        if self.places is not None:
            ((row,),) = (self.product.left.free,)
            place[self.left.depth.name] = chunk * self.left.chunk
            place[_WORD] = chunk * PLACES_WORDS
            place[_ROW_TILE] = origin[row.name] // PLACES_ROWS
        return place


class Words:
    """The words that a consumer's thread hands instructions: which numbers the left operand has.

    Args:
        tile: how the product is computed; its left operand has two numbers in four.
        data: shared memory of the stages.
    """

    def __init__(self, tile: WarpgroupTile, data: Any) -> None:
        self._tile = tile
        size = (tile.stages * tile.stage_bytes - tile.places_start) // _WORD_BYTES
        start = tile.places_start // _WORD_BYTES
        how = {"data": data.data, "elem_offset": start, "scope": "shared.dyn"}
        self._memory = ib.decl_buffer((size,), "uint32", **how)
        self._held = ib.alloc_buffer((tile.instructions * _EACH,), "uint32", scope="local")

    def load(self, turn: Turn, thread: Any) -> None:
        """Load those of a stage that is full.

        Args:
            turn: role at the stage.
            thread: the thread's number among all consumers'.
        """
        tile = self._tile
        group = thread // WARPGROUP * tile.instructions if tile.sharers > 1 else 0
        stage = turn.stage * (tile.stage_bytes // _WORD_BYTES // _EACH)
        for number in range(tile.instructions):
            # In pairs, so that TVM sees that they begin where they may.
            pair = ib.Bind(stage + (group + number) * WARPGROUP + thread % WARPGROUP)
            with ib.vectorized(_EACH) as v:
                word = self._memory[pair * _EACH + v]
                ib.buffer_store(self._held, word, [number * _EACH + v])

    def of(self, number: int, step: int) -> tuple[Any, int]:
        """The word of an instruction, and which half of every four lanes has those that count.

        Args:
            number: number of the instruction's 64 rows.
            step: number of its depth in the chunk.
        """
        word, half = divmod(step, 2)
        return self._held[number * _EACH + word], half


def _places(product: Product, tile: WarpgroupTile) -> TmaChunks | None:
    """The chunks of a compressed operand's words; ``None`` of any other."""
    compressed = product.left.compressed
    if compressed is None:
        return None
    shape = places_shape(product.left.extent, product.depth.extent)
    axes = Axis(_ROW_TILE, shape[0]), Axis(_WORD, shape[1], is_reduce=True)
    tensor = Tensor(compressed.places, shape, "uint32")
    indices = tuple(AffineIndex(((axis.name, 1),)) for axis in axes)
    strides = shape[1] * _WORD_BYTES, _WORD_BYTES
    operand = Operand(tensor, indices, axes[:1], True, strides, tensor.size, tensor.size)
    box = (tile.block_rows // PLACES_ROWS,)
    return TmaChunks(operand, box, tile.places_start, axes[1], PLACES_WORDS, is_swizzled=False)
