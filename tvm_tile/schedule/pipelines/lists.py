"""Walk the chunks that a table lists, instead of all: those that are not zeros.

The table has a row of bits for each group of columns, or rows, of a constant matrix. A tile walks
what any of its groups lists. All threads read the same rows, so that they agree on how many chunks
there are; only the producer asks which.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place
from tvm_tile.graph.positions import WORD, Listed
from tvm_tile.graph.tile_graph import Axis
from tvm_tile.schedule.tensor_cores.limits import in_register, zero_register


@dataclass(frozen=True, slots=True)
class Lists:
    """The lists of a product's tiles, while a thread's code is written.

    Attributes:
        listed: the lists of groups.
        table: tensor that has them.
        axis: axis that the groups are along.
        size: values of this axis in a tile.
    """

    listed: Listed
    table: Any
    axis: Axis
    size: int

    def first(self, position: Any) -> Any:
        """First value of the axis in a tile, by the number of the tile along it."""
        if not self.listed.is_ordered(self.size, self.axis.extent):
            return position * self.size
        parts = self.listed.step // self.size
        group = tirx.Cast("int32", self.table[position // parts, self.listed.words])
        return in_register(group * self.listed.step + position % parts * self.size)

    def count(self, origin: Place) -> Any:
        """How many chunks a tile walks."""
        total = zero_register()
        with ib.serial(self.listed.words) as word:
            bits = self._bits(word, origin)
            ib.buffer_store(total, total[0] + tirx.Cast("int32", tirx.popcount(bits[0])), [0])
        return total[0]

    @staticmethod
    def part(count: Any, rank: Any, parts: int) -> tuple[Any, Any]:
        """The number of the first of a tile's chunks that a block walks, and how many it does: one
        at least, where there are ``parts`` of them."""
        if parts == 1:
            return 0, count
        first = in_register(rank * count // parts)
        return first, in_register((rank + 1) * count // parts - first)

    def for_chunks(
        self, origin: Place, body: Callable[[Any], None], part: tuple[Any, Any] | None = None
    ) -> None:
        """Run ``body`` for the number of each chunk that a tile walks, the lowest first.

        ``for word: bits = the word of all groups;  while bits: body(lowest of bits)``

        Args:
            origin: first values of the tile's axes.
            body: function that writes the code for a chunk.
            part: the first of these chunks that is meant, and how many; ``None`` for all.
        """
        met = zero_register()  # chunks of the tile
        one = tirx.const(1, "uint32")
        with ib.serial(self.listed.words) as word:
            bits = self._bits(word, origin)
            with ib.While(bits[0] != 0):
                below = tirx.popcount((bits[0] ^ (bits[0] - one)) >> one)
                chunk = in_register(word * WORD + tirx.Cast("int32", below))
                ib.buffer_store(bits, bits[0] & (bits[0] - one), [0])
                if part is None:
                    body(chunk)
                else:
                    number = met[0] - part[0]
                    with ib.If(tirx.all(number >= 0, number < part[1])), ib.Then():
                        body(chunk)
                    ib.buffer_store(met, met[0] + 1, [0])

    def _bits(self, word: Any, origin: Place) -> Any:
        """A register with what the groups of a tile list in one of their words."""
        step, size = self.listed.step, self.size
        start = origin[self.axis.name]
        first = ib.Bind(start // step)
        bits = zero_register("uint32")
        is_aligned = size % step == 0 or step % size == 0
        last = len(self.listed.groups) - 1
        end = ib.Bind(ib.min((start + (size - 1)) // step, last))
        with ib.serial(-(-size // step) if is_aligned else (size - 2) // step + 2) as group:
            own = self.table[ib.min(first + group, end), word]
            ib.buffer_store(bits, bits[0] | own, [0])
        return bits
