"""How many elements a thread reads and stores at once in a sliding window.

Neighbouring threads that each read a half-precision number use a sixteenth of what they could move
at once, and spend an instruction on each. So a thread takes several neighbours: channels, where
these are last, each with sums of its own; or elements along the strip, where that is the contiguous
axis, of which a vector holds several rows of the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tvm_tile.device.device import VECTOR_BYTES
from tvm_tile.graph.tile_graph import Access, AffineIndex, Operator


@dataclass(frozen=True, slots=True)
class Vectors:
    """Elements that lie together.

    Attributes:
        axis: the spatial axis along which they lie; empty where each is read by itself.
        count: elements of one vector.
        lead: elements of a strip's first vector that lie before what its first window reads.
    """

    axis: str
    count: int
    lead: int = 0


ONE_BY_ONE = Vectors("", 1)


def vectors_of(
    operator: Operator, strip_axis: str, stride: int, sources: tuple[Access | None, ...]
) -> Iterator[Vectors]:
    """All that a thread can read and store at once, one element among them.

    Args:
        operator: the sum; its write is the output in memory.
        strip_axis: the axis along which strips lie.
        stride: elements of what slides from one window to the next along ``strip_axis``.
        sources: tensors that slide, as they lie in memory, without their padding; ``None`` where
            more than padding stands between it and the sum. A source is read within its extents
            only.
    """
    yield ONE_BY_ONE
    axis = operator.write.contiguous_axis
    if axis is None or not operator.write.is_exact or not sources:
        return
    if axis in operator.sliding_axes and axis != strip_axis:
        return
    accesses = (*sources, operator.write)
    places = [_lane(access, axis, operator) for access in accesses]
    found = [place for place in places if place is not None]
    steps = {index.coefficient(axis) for index, _ in found[:-1]}
    if len(found) < len(accesses) or steps != {stride if axis == strip_axis else 1}:
        return
    offsets = {index.offset for index, _ in found[:-1]}
    sizes = [access.tensor.element_size for access in accesses if access is not None]
    count = max(1, VECTOR_BYTES // max(sizes))
    while count > 1:
        leads = {offset % count for offset in offsets}
        fits = all(extent % count == 0 for _, extent in found)
        if fits and len(leads) == 1 and (axis == strip_axis or leads == {0}):
            yield Vectors(axis, count, *leads)
        count //= 2


def _lane(access: Access | None, axis: str, operator: Operator) -> tuple[AffineIndex, int] | None:
    """Index and extent of the innermost dimension of ``access``, if ``axis`` runs through it."""
    if access is None or access.tensor.dtype == "bool" or not access.is_exact:
        return None
    inner = [
        (index, extent)
        for index, extent in zip(access.indices, access.tensor.shape, strict=True)
        if extent > 1
    ]
    if not inner or any(index.coefficient(axis) for index, _ in inner[:-1]):
        return None
    index, extent = inner[-1]
    moved = {name for name, _ in index.terms} & operator.long_axes - {axis}
    is_alone = moved <= {a.name for a in operator.reduce_axes}
    return (index, extent) if index.coefficient(axis) > 0 and is_alone else None
