"""How accesses go along the elements of a row, and how many of these one load can take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.device.device import VECTOR_BYTES
from tvm_tile.graph.tile_graph import Access, Axis, Operator

_WIDEST = 8  # elements of a vector: what CUDA has types for


@dataclass(frozen=True, slots=True)
class Walk:
    """How an access goes along a row.

    Attributes:
        steps: strides of the axes along the row.
        across: strides of all other axes of more than one element.
        offset: place at which it starts.
        is_plain: whether elements come in the order of memory, and can be copied as they are.
    """

    access: Access
    steps: tuple[int, ...]
    across: tuple[int, ...]
    offset: int
    is_plain: bool

    @classmethod
    def of(cls, access: Access, op: Operator, axes: Sequence[Axis]) -> Walk:
        """How an access of ``op`` walks along ``axes``."""
        strides = access.strides
        steps = tuple(strides.get(axis.name, 0) for axis in axes)
        own = {axis.name for axis in axes}
        across = tuple(
            strides.get(a.name, 0) for a in op.axes if a.extent > 1 and a.name not in own
        )
        places = zip(access.indices, access.tensor.strides, strict=True)
        offset = sum(index.offset * stride for index, stride in places)
        is_plain = access.is_exact and not access.is_computed and access.tensor.dtype != "bool"
        is_ordered = list(steps) == sorted(steps, reverse=True) and steps[-1] > 0
        return cls(access, steps, across, offset, is_plain and is_ordered)

    @property
    def place(self) -> tuple[tuple[int, ...], ...]:
        """Key that accesses along the same elements share."""
        return self.steps, tuple(sorted(step for step in self.across if step)), (self.offset,)


def common_vector(walks: Sequence[Walk], run: int) -> int:
    """Neighbours that every access finds side by side, aligned, within ``run`` elements."""
    smallest = min(walk.access.tensor.element_size for walk in walks)
    widest = math.gcd(_WIDEST, VECTOR_BYTES // smallest, run)
    others = [step for w in walks for step in (*w.steps[:-1], *w.across, w.offset)]
    return math.gcd(widest, *others)


def vector_of_sum(operator: Operator) -> int:
    """Summed neighbours that one load can take: one, where some are not side by side.

    Of a sum along several axes TVM holds all rows that a load might touch, thousands of elements a
    thread: it does not see that a load stays within one.
    """
    axes = [axis for axis in operator.reduce_axes if axis.extent > 1]
    if len(axes) > 1:
        return 1
    names = {axis.name for axis in axes}
    walks = [Walk.of(r, operator, axes) for r in operator.reads if not r.axes.isdisjoint(names)]
    if len({walk.access.tensor for walk in walks}) < max(1, len(walks)):
        return 1
    if not all(walk.is_plain and walk.steps[-1] == 1 for walk in walks):
        return 1
    return common_vector(walks, axes[-1].extent)
