"""Boxes of a graph in ranks, and where they lie from left to right.

Sugiyama's method: edges point down, one that spans several ranks goes through a waypoint in each
between, neighbours are brought near each other's middle. It is written here as libraries for it are
either no Python, or take many seconds for a thousand boxes in a browser (dagre: 7 s).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ORDERINGS = 6  # sweeps that bring neighbours together, down and up in turns
_PLACINGS = 12
_WAYPOINT_WEIGHT = 4.0  # by how much edges resist bends more than boxes resist being moved


@dataclass(frozen=True, slots=True)
class Vertex:
    """A box, or a waypoint of an edge.

    Attributes:
        rank: rank from above.
        width: width in pixels.
        is_waypoint: whether it is one.
    """

    rank: int
    width: float
    is_waypoint: bool


def ranks(count: int, edges: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """The rank of each of ``count`` boxes: below all that come before it.

    A box that nothing comes before is right above the first that needs it.

    Args:
        count: number of boxes.
        edges: pairs of a box and one of a greater number that it leads to.
    """
    found = [0] * count
    after: list[list[int]] = [[] for _ in range(count)]
    has_before = [False] * count
    for maker, taker in sorted(edges, key=lambda edge: edge[1]):
        found[taker] = max(found[taker], found[maker] + 1)
        after[maker].append(taker)
        has_before[taker] = True
    for box in reversed(range(count)):
        if not has_before[box] and after[box]:
            found[box] = min(found[taker] for taker in after[box]) - 1
    return tuple(found)


def ordered(
    vertices: Sequence[Vertex], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]
) -> list[list[int]]:
    """The vertices of each rank from left to right, so that few edges cross.

    Args:
        vertices: vertices by number.
        above: for each vertex, those that an edge comes from.
        below: for each vertex, those that an edge goes to.
    """
    rows: list[list[int]] = [[] for _ in range(max((v.rank for v in vertices), default=-1) + 1)]
    for number, vertex in enumerate(vertices):
        rows[vertex.rank].append(number)
    best, least = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_ORDERINGS):
        down = sweep % 2 == 0
        beside = above if down else below
        place = _places(rows)
        for row in rows if down else reversed(rows):
            row.sort(key=lambda vertex: _middle(beside[vertex], place, place[vertex]))
            place |= {vertex: float(position) for position, vertex in enumerate(row)}
        if (crossings := _crossings(rows, below)) < least:
            best, least = [list(row) for row in rows], crossings
    return best


def _places(rows: Sequence[Sequence[int]]) -> dict[int, float]:
    """Position of each vertex in its row."""
    return {vertex: float(position) for row in rows for position, vertex in enumerate(row)}


def _middle(others: Sequence[int], place: Mapping[int, float], own: float) -> float:
    """Mean place of a vertex's neighbours; its own without any."""
    return sum(place[other] for other in others) / len(others) if others else own


def _crossings(rows: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """Number of crossings between the edges of neighbouring ranks."""
    place = _places(rows)
    total = 0
    for row in rows:
        ends = [end for vertex in row for end in sorted(place[other] for other in below[vertex])]
        total += sum(end < before for n, end in enumerate(ends) for before in ends[:n])
    return total


def centres(
    rows: Sequence[Sequence[int]],
    vertices: Sequence[Vertex],
    above: Sequence[Sequence[int]],
    below: Sequence[Sequence[int]],
    gap: float,
) -> list[float]:
    """Middle of each vertex, as near to its neighbours' as those beside it allow.

    Args:
        rows: vertices of each rank, as made by :func:`ordered`.
        vertices, above, below: as of that.
        gap: the least distance between two vertices of a rank.
    """
    found = [0.0] * len(vertices)
    offsets = [_offsets(row, vertices, gap) for row in rows]
    for row, packed in zip(rows, offsets, strict=True):
        for vertex, x in zip(row, packed, strict=True):
            found[vertex] = x - packed[-1] / 2
    # Each goes to the middle of those above and below. By those above alone, a shift in one block
    # of a network would add up over all that follow.
    both = zip(above, below, strict=True)
    beside = [[*upper, *lower] or [own] for own, (upper, lower) in enumerate(both)]
    for _ in range(_PLACINGS):
        for row, packed in zip(rows, offsets, strict=True):
            wanted = [sum(found[n] for n in beside[v]) / len(beside[v]) for v in row]
            weights = [_WAYPOINT_WEIGHT if vertices[v].is_waypoint else 1.0 for v in row]
            for vertex, x in zip(row, _spread(wanted, weights, packed), strict=True):
                found[vertex] = x
    _straighten(found, rows, offsets, beside, _chains(above, below))
    return found


def _chains(above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> list[list[int]]:
    """All vertices, those together that follow each other with no other line between."""

    def next_of(vertex: int) -> int | None:
        others = below[vertex]
        return others[0] if len(others) == 1 and len(above[others[0]]) == 1 else None

    following = [next_of(vertex) for vertex in range(len(below))]
    chains = []
    for start in sorted(set(range(len(below))).difference(following)):
        chain = [start]
        while (after := following[chain[-1]]) is not None:
            chain.append(after)
        chains.append(chain)
    return chains


def _straighten(
    found: list[float],
    rows: Sequence[Sequence[int]],
    offsets: Sequence[Sequence[float]],
    beside: Sequence[Sequence[int]],
    chains: Sequence[Sequence[int]],
) -> None:
    """Let the vertices of a chain be straight below each other, where those beside them allow."""
    room: dict[int, tuple[tuple[int, float] | None, tuple[int, float] | None]] = {}
    for row, packed in zip(rows, offsets, strict=True):
        for n, vertex in enumerate(row):
            left = (row[n - 1], packed[n] - packed[n - 1]) if n else None
            right = (row[n + 1], packed[n + 1] - packed[n]) if n + 1 < len(row) else None
            room[vertex] = left, right
    own = {vertex: number for number, chain in enumerate(chains) for vertex in chain}
    for _ in range(_PLACINGS):
        for number, chain in enumerate(chains):
            lefts = [found[left[0]] + left[1] for v in chain if (left := room[v][0])]
            rights = [found[right[0]] - right[1] for v in chain if (right := room[v][1])]
            low, high = max(lefts, default=-math.inf), min(rights, default=math.inf)
            others = [found[n] for v in chain for n in beside[v] if own[n] != number]
            wanted = others or [found[v] for v in chain]
            if low <= high:
                x = min(max(sum(wanted) / len(wanted), low), high)
                for vertex in chain:
                    found[vertex] = x


def _offsets(row: Sequence[int], vertices: Sequence[Vertex], gap: float) -> list[float]:
    """How far the middle of each vertex is behind the first one's, if they lie close."""
    offsets = [0.0] * len(row)
    for n in range(1, len(row)):
        both = vertices[row[n - 1]].width + vertices[row[n]].width
        offsets[n] = offsets[n - 1] + both / 2 + gap
    return offsets


def _spread(
    wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]
) -> list[float]:
    """Places next to the wanted ones, at least as far apart as the offsets are.

    Least squares by pooling: neighbours that want to be too close, or beyond each other, move as
    one to their weighted mean.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, total, count = want - offset, weight, 1
        while pools and pools[-1][0] >= mean:
            before, own, number = pools.pop()
            mean = (before * own + mean * total) / (own + total)
            total, count = total + own, count + number
        pools.append((mean, total, count))
    starts = [mean for mean, _, count in pools for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]
