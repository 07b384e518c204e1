"""Parts that the pipelines of a product share: a thread's copies, its fragments, its sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.chunks import Chunks, chunk_place
from tvm_tile.schedule.tensor_cores.part import ThreadPart
from tvm_tile.schedule.tensor_cores.place import Place
from tvm_tile.tile.products.warp_tile import WarpTile
from tvm_tile.tile.units.product import Product


class Pipeline(ABC):
    """How the chunks of a block's tile are brought and summed up, while a thread's code is written.

    Args:
        product: the product that is computed.
        tile: how.
        own: the thread's part of the tile.
        buffers: the function's parameters by name.
        memory: shared, bytes.
        chunks: the first of the block's among those of the sum, and how many it has.

    Attributes:
        scope: scope of shared memory, by TVM's name.
        begin_copies: function that finds the chunks that a thread copies, given their layout, their
            memory, and the thread's number.
        words: the memory as 32-bit numbers.
        sums: sums of the thread, in registers.
    """

    scope: ClassVar[str]
    begin_copies: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        product: Product,
        tile: WarpTile[Any],
        own: ThreadPart,
        buffers: Mapping[str, Any],
        memory: Any,
        chunks: tuple[Any, Any],
    ) -> None:
        self.product, self.tile, self.memory = product, tile, memory
        self.first, self.count = chunks
        operands, laid = (product.left, product.right), tile.chunks(product)
        self.copies = [
            self.begin_copies(
                Chunks(product, operand, side, own.origin, tile.depth),
                chunk,
                buffers[operand.tensor.name].data,
                (own.thread, tile.block_size),
            )
            for operand, chunk, side in zip(operands, laid, own.sides, strict=True)
        ]
        rows, columns = (own.rows, tile.warp_rows), (own.columns, tile.warp_columns)
        left = self.begin_fragments(laid[0], rows, own.lane, is_right=False)
        right = self.begin_fragments(laid[1], columns, own.lane, is_right=True)
        self.fragments = left, right
        dtype = tile.unit.acc_dtype
        self.sums = ib.alloc_buffer((tile.sums,), dtype, scope="local")
        with ib.unroll(tile.sums) as i:
            ib.buffer_store(self.sums, tirx.const(0, dtype), [i])
        size = (tile.shared_bytes // 4,)
        self.words = ib.decl_buffer(size, "uint32", data=memory.data, scope=self.scope)

    @abstractmethod
    def begin_fragments(
        self, laid: Any, rows: tuple[Any, int], lane: Any, *, is_right: bool
    ) -> Any:
        """A warp's fragments of one operand: from its first row, or column, as many as it has."""

    @abstractmethod
    def sum_up(self, constants: frozenset[str]) -> None:
        """The loop over chunks; nothing is on its way to memory behind it.

        ``constants`` are operands that may be asked for before the kernel before this one ended.
        """

    def place(self, chunk: Any) -> Place:
        """First values of the summed axes in one of the block's chunks."""
        place = chunk_place(self.product, self.tile.depth, self.first + chunk)
        depth = self.product.depth.name
        return {**place, depth: ib.Bind(place[depth])}
