"""The sums of one product for a block's units, by some of the block's warps.

Rows of the weights are numbered gate by gate, units fastest. A group of lanes adds up some
neighbouring rows for all vectors at once, so each weight is read once, and each element of the
short operand once for these rows::

    for turn:
        for step along the depth:
            own = vectors of 16 bytes of the group's rows, several on their way at once
            for m:  part[row, m] += own[row] * x[m]
        total[row, m] = sum of part over lanes
        sums[row, m] = total                                        to shared memory

The tree of shuffles halves what a lane has as often as it can: of two sums each of two lanes keeps
one, and hands the other one over. Where lanes are left with the same sums, the first of them stores
these: all would race for one place, if with equal values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.script import tirx as T
from tvm.tirx.script import builder as ib

from tvm_tile.schedule.tensor_cores.store import when
from tvm_tile.tile.few_rows.gates import GateProduct, ProductTile

_ALL_LANES = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class WeightRows:
    """The rows of the weights that a block sums up.

    Attributes:
        product: product that has the weights.
        offsets: column of unit 0 for each gate.
        units: units of the block.
        last: number of the last unit there is.
        first: number of the block's first unit.
    """

    product: GateProduct
    offsets: tuple[int, ...]
    units: int
    last: int
    first: Any

    @property
    def count(self) -> int:
        """Rows that a block sums up, units behind the last one included."""
        return self.units * self.product.gates

    def row(self, number: Any) -> Any:
        """The row of the weights of a sum; for units behind the last one, that of the last one."""
        gate = number // self.units
        offset: Any = tirx.const(self.offsets[0], "int32")
        for later, own in enumerate(self.offsets[1:], start=1):
            offset = tirx.Select(gate >= later, tirx.const(own, "int32"), offset)
        return offset + ib.min(self.first + number % self.units, self.last)


@dataclass(frozen=True, slots=True)
class Summing:
    """Sums up a product's rows for a block, while the code of one thread is written.

    Attributes:
        rows: rows to be summed up.
        tile: how.
        vectors: vectors of the short operand.
        dtype: type of both operands.
        short: the short operand, (vectors, depth).
        weight: row's number in the block and depth -> an element of the weights there.
        place: row's number in the block -> where its depth 0 is, for ``weight``.
        sums: shared memory.
        start: the product's first sum there; they lie row by row, vectors fastest.
    """

    rows: WeightRows
    tile: ProductTile
    vectors: int
    dtype: str
    short: Any
    weight: Callable[[Any], Any]
    place: Callable[[Any], Any]
    sums: Any
    start: int

    def write(self, thread: Any) -> None:
        """Write all sums, divided among the product's threads; ``thread`` is one's number."""
        tile = self.tile
        lane = ib.Bind(thread % tile.lanes)
        group = ib.Bind(thread // tile.lanes)
        groups = tile.threads // tile.lanes
        held = ib.alloc_buffer((tile.rows * self.vectors,), "float32", scope="local")
        with ib.serial(tile.turns) as turn:
            first = ib.Bind((turn * groups + group) * tile.rows)
            places = [
                ib.Bind(self.place(ib.Bind(ib.min(first + r, self.rows.count - 1))))
                for r in range(tile.rows)
            ]
            with ib.unroll(tile.rows * self.vectors) as i:
                ib.buffer_store(held, T.float32(0), [i])
            with ib.serial(tile.steps) as step:
                self._add(held, places, step, lane)
            kept, number, copies = self._across_lanes(held, lane)
            is_first = [lane % copies == 0] if copies > 1 else []
            for i in range(kept):
                at = ib.Bind(first * self.vectors + number + i)
                with when([at < self.rows.count * self.vectors, *is_first]):
                    ib.buffer_store(self.sums, held[i], [self.start + at])

    def _add(self, held: Any, places: list[Any], step: Any, lane: Any) -> None:
        """Add one step along the depth; all weights are asked for before any is used."""
        tile, product = self.tile, self.rows.product
        vector, depth = product.vector, product.depth
        own = ib.alloc_buffer((tile.loads * tile.rows * vector,), self.dtype, scope="local")
        short = ib.alloc_buffer((vector,), self.dtype, scope="local")
        is_ragged = depth % (tile.lanes * vector * tile.loads) != 0
        ks = [
            ib.Bind(((step * tile.loads + n) * tile.lanes + lane) * vector)
            for n in range(tile.loads)
        ]
        for n, k in enumerate(ks):
            with when([k < depth] if is_ragged else []):
                for r, place in enumerate(places):
                    with ib.vectorized(vector) as v:
                        at = (n * tile.rows + r) * vector + v
                        ib.buffer_store(own, self.weight(place + k + v), [at])
        for n, k in enumerate(ks):
            with when([k < depth] if is_ragged else []), ib.unroll(self.vectors) as m:
                with ib.vectorized(vector) as v:
                    ib.buffer_store(short, self.short[m, k + v], [v])
                with ib.unroll(tile.rows) as r, ib.unroll(vector) as e:
                    left = own[(n * tile.rows + r) * vector + e]
                    product_ = tirx.Cast("float32", left) * tirx.Cast("float32", short[e])
                    at = r * self.vectors + m
                    ib.buffer_store(held, held[at] + product_, [at])

    def _across_lanes(self, held: Any, lane: Any) -> tuple[int, Any, int]:
        """Exchange sums among lanes, so that each lane has some of them in its first registers.

        The result is how many these are, the first one's number, and how many neighbouring lanes
        have the same.
        """
        count, distance, copies = self.tile.rows * self.vectors, self.tile.lanes // 2, 1
        number: Any = tirx.const(0, "int32")
        while distance:
            if count % 2 == 0:
                count //= 2
                is_upper = ib.Bind(lane // distance % 2 == 1)
                for i in range(count):
                    given = ib.Bind(tirx.Select(is_upper, held[i], held[i + count]))
                    kept = ib.Bind(tirx.Select(is_upper, held[i + count], held[i]))
                    ib.buffer_store(held, kept + self._from_lane(given, distance), [i])
                number = number + tirx.Select(is_upper, tirx.const(count, "int32"), 0)
            else:
                copies *= 2
                for i in range(count):
                    ib.buffer_store(held, held[i] + self._from_lane(held[i], distance), [i])
            distance //= 2
        return count, ib.Bind(number), copies

    def _from_lane(self, value: Any, distance: int) -> Any:
        """The value that the lane so far away has."""
        warp = self.tile.warp
        return T.tvm_warp_shuffle_xor(T.uint32(_ALL_LANES), value, distance, warp, warp)
