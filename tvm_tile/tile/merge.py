"""Which axes of a function are one: dimensions that everything walks through together.

The rows and columns of an image mean nothing to a 1 x 1 convolution, nor the batch to a product
with the same weights. Merged, such axes tile as one: without remainders at each row's end, and in
long contiguous runs.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm_tile.graph.tile_graph import Access, Operator

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Merge:
    """Two neighbouring axes that may become one.

    Attributes:
        axes: place of an operator -> its (outer, inner) axis.
        dimensions: name of a tensor -> the first of its two dimensions that become one.
        extent: extent of the inner axis.
    """

    axes: Mapping[int, Pair]
    dimensions: Mapping[str, int]
    extent: int


def find_merge(
    operators: Sequence[Operator],
    main: int,
    producers: Container[int] = (),
    stores: Container[int] = (),
) -> Merge | None:
    """The innermost neighbouring output axes of ``operators[main]`` that may become one.

    Those at ``producers`` are merged into copies, an element at a time: they may go on reading
    with two indices. So may those at ``stores`` go on writing.
    """
    return next(_merges(operators, main, (producers, stores)), None)


def find_row_merge(stages: Sequence[Operator]) -> Merge | None:
    """The innermost neighbouring axes of rows that may become one, of those the last stage stores.

    Both are along rows, so that all stages that sum sum both of them, or both count rows.
    """
    sums = [place for place, op in enumerate(stages) if op.reduce_axes]
    summed = [{axis.name for axis in stages[place].reduce_axes} for place in sums]
    for merge in _merges(stages, len(stages) - 1, ((), ())):
        pairs = [merge.axes.get(place, ()) for place in sums]
        both = list(zip(pairs, summed, strict=True))
        along = all(pair and own.issuperset(pair) for pair, own in both)
        if along or all(own.isdisjoint(pair) for pair, own in both):
            return merge
    return None


def _merges(
    operators: Sequence[Operator], main: int, apart: tuple[Container[int], Container[int]]
) -> Iterator[Merge]:
    """Merges of neighbouring dimensions that ``operators[main]`` writes, the innermost first."""
    write = operators[main].write
    for dimension in reversed(range(len(write.indices) - 1)):
        merge = _spread(operators, write.tensor.name, dimension, apart)
        if merge is not None:
            yield merge


def _spread(
    operators: Sequence[Operator],
    tensor: str,
    dimension: int,
    apart: tuple[Container[int], Container[int]],
) -> Merge | None:
    """Follow two dimensions of a tensor through all operators; ``None`` where they part.

    ``apart`` are the operators that may go on reading, and those that may go on writing.
    """
    readers, writers = apart
    dimensions = {tensor: dimension}
    axes: dict[int, Pair] = {}
    extent = 0
    before = -1
    while before != len(dimensions) + len(axes):
        before = len(dimensions) + len(axes)
        for place, op in enumerate(operators):
            accesses = (*op.reads, op.write)
            for access in accesses:
                if access.tensor.name in dimensions:
                    pair = _pair_at(op, access, dimensions[access.tensor.name])
                    if pair is None or axes.setdefault(place, pair) != pair:
                        return None
            for access in accesses:
                if place not in axes or access.axes.isdisjoint(axes[place]):
                    continue
                found = _dimension_of(op, access, axes[place])
                if found is None and place in (writers if access is op.write else readers):
                    continue
                if found is None or dimensions.setdefault(access.tensor.name, found) != found:
                    return None
                extent = access.tensor.shape[found + 1]
    return Merge(axes, dimensions, extent)


def _dimension_of(op: Operator, access: Access, pair: Pair) -> int | None:
    """Where ``access`` walks through both axes of ``pair``, whole, and nowhere else."""
    places = [d for d in range(len(access.indices) - 1) if _pair_at(op, access, d) == pair]
    elsewhere = [
        index
        for d, index in enumerate(access.indices)
        if places and d not in (places[0], places[0] + 1)
        if any(name in pair for name, _ in index.terms)
    ]
    return places[0] if len(places) == 1 and not elsewhere else None


def _pair_at(op: Operator, access: Access, dimension: int) -> Pair | None:
    """The two axes that run through two neighbouring dimensions, from end to end.

    Both are of the output, or both are summed.
    """
    extents, found = op.extents, list[str]()
    for place in (dimension, dimension + 1):
        index, size = access.indices[place], access.tensor.shape[place]
        terms = [(name, coefficient) for name, coefficient in index.terms if extents[name] > 1]
        if not index.is_exact or index.offset or len(terms) != 1:
            return None
        ((name, coefficient),) = terms
        if coefficient != 1 or extents[name] != size:
            return None
        found.append(name)
    summed = {axis.name for axis in op.reduce_axes}
    outer, inner = found
    return (outer, inner) if (outer in summed) == (inner in summed) and outer != inner else None
