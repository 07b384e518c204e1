"""Axes that several stages have in common, where each divides the same elements otherwise."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

from tvm_tile.graph.tile_graph import Access, Axis, Operator


def common_extents(stages: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """Extents of the coarsest axes of which those of all stages are made.

    A group norm sums ``(2, 8, 4, 80)`` (samples, groups, channels of a group, places) and stores
    ``(2, 32, 8, 10)``: both go through ``(2, 8, 4, 8, 10)``.

    Args:
        stages: extents of each stage's axes, in the order of the elements that it goes through.

    Returns:
        ``None`` where stages go through different numbers of elements, or an axis of one ends
        amid an axis of another.
    """
    runs = {math.prod(extents[place:]) for extents in stages for place in range(len(extents) + 1)}
    ordered = sorted(runs, reverse=True)
    if len({math.prod(extents) for extents in stages}) != 1 or not all(runs):
        return None
    if any(outer % inner for outer, inner in pairwise(ordered)):
        return None
    return tuple(outer // inner for outer, inner in pairwise(ordered))


def in_order(operator: Operator) -> tuple[Axis, ...] | None:
    """Axes of more than one element, as an operator goes through a largest tensor in order.

    Returns:
        The order of its loops, if that is one of several; ``None`` where it skips elements of all
        that it reads, or reads some of them twice.
    """
    most = max((math.prod(read.tensor.shape) for read in operator.reads), default=0)
    largest = [read for read in operator.reads if math.prod(read.tensor.shape) == most]
    orders = [_order(operator, read) for read in largest]
    found = [order for order in orders if order is not None]
    own = tuple(axis for axis in operator.axes if axis.extent > 1)
    return own if own in found else next(iter(found), None)


def follows(operator: Operator, names: Collection[str]) -> bool:
    """Whether an operator reads tensors of these names in the order in which it writes.

    It may skip elements of them between rows.
    """
    long = [axis.name for axis in operator.axes if axis.extent > 1]
    own = [(operator.write.strides.get(name, 0), name) for name in long]
    wanted = [name for _, name in sorted(own)]
    reads = [read for read in operator.reads if read.tensor.name in names]
    for read in reads:
        strides = [read.strides.get(name, 0) for name in wanted]
        if not read.is_exact or strides != sorted(set(strides)) or strides[:1] not in ([], [1]):
            return False
    return bool(reads)


def _order(operator: Operator, read: Access) -> tuple[Axis, ...] | None:
    """Axes of which each goes on where those behind it end."""
    strides = read.strides
    axes = [axis for axis in operator.axes if axis.extent > 1]
    axes.sort(key=lambda axis: -strides.get(axis.name, 0))
    runs = [math.prod(axis.extent for axis in axes[place + 1 :]) for place in range(len(axes))]
    is_ordered = [strides.get(axis.name, 0) for axis in axes] == runs
    return tuple(axes) if read.is_exact and is_ordered else None


def find_divisions(stages: Sequence[Operator]) -> Mapping[str, tuple[tuple[int, ...], ...]]:
    """Name of a tensor -> extents of the axes that run through each of its dimensions.

    Of tensors of which some dimension is several axes, the same to all who access it.
    """
    found: dict[str, set[tuple[tuple[int, ...], ...]]] = {}
    for op in stages:
        for access in (*op.reads, op.write):
            found.setdefault(access.tensor.name, set()).add(_divided(op, access))
    alike = {name: next(iter(parts)) for name, parts in found.items() if len(parts) == 1}
    return {name: parts for name, parts in alike.items() if any(len(own) > 1 for own in parts)}


def _divided(op: Operator, access: Access) -> tuple[tuple[int, ...], ...]:
    """For each dimension, the extents into which an access divides it, or its whole size."""
    extents, found = op.extents, list[tuple[int, ...]]()
    for index, size in zip(access.indices, access.tensor.shape, strict=True):
        terms = [(factor, extents[name]) for name, factor in index.terms if extents[name] > 1]
        own = tuple(extent for _, extent in sorted(terms, reverse=True))
        factors = [math.prod(own[place + 1 :]) for place in range(len(own))]
        is_whole = index.is_exact and not index.offset and math.prod(own) == size
        is_divided = is_whole and sorted(factor for factor, _ in terms) == factors[::-1]
        found.append(own if is_divided and own else (size,))
    return tuple(found)
