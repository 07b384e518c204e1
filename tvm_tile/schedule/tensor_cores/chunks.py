"""Places of an operand's elements, chunk after chunk, for a thread that fetches some of them.

A thread fetches the same part of every chunk. Where this is does not change from chunk to chunk but
for a sum that all threads share: the chunk's depth, and its step in a window. What lies outside of
the tensor, or behind its end, is zero.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.tirx.script import builder as ib

from tvm_tile.graph.expression import Place, digits, value_of
from tvm_tile.graph.tile_graph import AffineIndex
from tvm_tile.schedule.tensor_cores.limits import limited
from tvm_tile.schedule.tensor_cores.place import Side, linear
from tvm_tile.tile.products.warp_tile import chunk_counts
from tvm_tile.tile.units.product import Operand, Product
from tvm_tile.tile.units.slab import leaves


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbours along an operand's contiguous axis.

    Attributes:
        position: place of the first in the tile.
        depth: depth of the first in the chunk.
        indices: indices of the first, without the part that changes from chunk to chunk.
    """

    position: Any
    depth: Any
    indices: list[Any]


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of one operand's tile, along the steps and the depth.

    Attributes:
        product: product that has the operand.
        operand: its left or its right one.
        side: rows, or columns, of the operand's tile.
        origin: first values of the tile's axes.
        depth: depth of a chunk.
        end: end of the summed axis in a call, if that is not its extent.
    """

    product: Product
    operand: Operand
    side: Side
    origin: Place
    depth: int
    end: Any = None

    def run(self, position: Any, depth: Any) -> Run:
        """The neighbours that a thread copies, from a place of every chunk on."""
        place = {
            **self.origin,
            **self.side.at(position, self.origin)[0],
            self.product.depth.name: depth,
        }
        operand, product = self.operand, self.product
        fixed = {axis.name for axis in (*operand.free, *product.outer, product.depth)}
        indices = [
            ib.Bind(value_of(_part(index, fixed), place) + index.offset)
            for index in operand.indices
        ]
        return Run(position, depth, indices)

    def moved(self, place: Place) -> tuple[list[Any], Any]:
        """Distance by which a chunk moves all indices, and the elements before them.

        Args:
            place: the chunk's first values of the axes that change from chunk to chunk: the summed
                ones, or a free one, whose value in ``origin`` is then zero.
        """
        indices = self.operand.indices
        moved = [ib.Bind(value_of(_part(index, place), place)) for index in indices]
        return moved, ib.Bind(linear(self.operand, moved))

    def is_inside(self, run: Run, element: Any, place: Place, moved: Sequence[Any]) -> list[Any]:
        """The conditions for all elements that one load brings to be in the tensor.

        Args:
            run: the element's.
            element: its number in the run.
            place: place of the chunk, as in :meth:`moved`.
            moved: distance that it adds to all indices.
        """
        along_depth = self.operand.is_depth_major
        position = run.position + (0 if along_depth else element)
        _, found = self.side.at(position, {**self.origin, **place})
        depth = self.product.depth
        if depth.extent % self.depth or self.end is not None:
            own = run.depth + (element if along_depth else 0)
            found.append(place[depth.name] + own < limited(depth.extent, self.end))
        sides = leaves(self.product, self.operand)
        last = len(moved) - 1
        for d, (own, more, (below, above)) in enumerate(
            zip(run.indices, moved, sides, strict=True)
        ):
            index = own + more + (element if d == last else 0)
            found += [index >= 0] if below else []
            found += [index < self.operand.tensor.shape[d]] if above else []
        return found


def chunk_place(product: Product, depth: int, chunk: Any) -> dict[str, Any]:
    """Value of each summed axis in chunk ``chunk`` of ``depth`` depths; of the depth, the first."""
    axes = (*product.steps, product.depth)
    place = dict(digits(chunk, axes, chunk_counts(product, depth)))
    place[product.depth.name] = place[product.depth.name] * depth
    return place


def _part(index: AffineIndex, names: Container[str]) -> AffineIndex:
    """The terms of some axes."""
    return AffineIndex(tuple(term for term in index.terms if term[0] in names))
