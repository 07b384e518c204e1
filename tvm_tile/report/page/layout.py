"""Where the boxes of a graph lie, and the lines between them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tvm_tile.report.page.layers import Vertex, centres, ordered, ranks

# All in pixels.
_BESIDE = 28.0  # between boxes of a rank
_BETWEEN = 46.0  # ranks
_PORT = 14.0  # between two lines that end at one box
_LANE = 12.0  # between two lines at the side
_CORNER = 8.0
_LONGEST = 10  # ranks that a line crosses among the boxes; longer ones go along the side

Place = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Plane:
    """A graph on a plane.

    Attributes:
        corners: left upper corner of each box.
        lines: path of each edge, as in an SVG file.
        width, height: of all of it.
    """

    corners: tuple[Place, ...]
    lines: tuple[str, ...]
    width: float
    height: float


def lay_out(count: int, size: tuple[float, float], edges: Sequence[tuple[int, int, int]]) -> Plane:
    """Boxes in ranks, one below the other.

    Args:
        count: number of boxes.
        size: width and height of each box.
        edges: edges from a box to one of a greater number, and the value that each hands on: long
            lines of one value are one line that branches.
    """
    if not count:
        return Plane((), (), 0.0, 0.0)
    ends = [(maker, taker) for maker, taker, _ in edges]
    rank = ranks(count, ends)
    vertices = [Vertex(own, size[0], False) for own in rank]
    chains = [_chain(maker, taker, rank, vertices) for maker, taker in ends]
    above: list[list[int]] = [[] for _ in vertices]
    below: list[list[int]] = [[] for _ in vertices]
    for chain in chains:
        for upper, lower in itertools.pairwise(chain):
            above[lower].append(upper)
            below[upper].append(lower)
    rows = ordered(vertices, above, below)
    middle = centres(rows, vertices, above, below, _BESIDE)
    left = min(x - v.width / 2 for x, v in zip(middle, vertices, strict=True))
    middle = [x - left for x in middle]
    right = max(x + v.width / 2 for x, v in zip(middle, vertices, strict=True))
    drawer = _Drawer(size, rank, middle, right, edges, chains)
    lines = tuple(drawer.lines())
    corners = tuple((middle[box] - size[0] / 2, drawer.top(rank[box])) for box in range(count))
    return Plane(corners, lines, drawer.right_end, drawer.top(max(rank)) + size[1])


def _chain(maker: int, taker: int, rank: Sequence[int], vertices: list[Vertex]) -> list[int]:
    """The vertices that an edge goes through; none where it goes along the side."""
    if rank[taker] - rank[maker] > _LONGEST:
        return []
    between = range(rank[maker] + 1, rank[taker])
    start = len(vertices)
    vertices += [Vertex(own, _PORT, True) for own in between]
    return [maker, *range(start, len(vertices)), taker]


class _Drawer:
    """Draws the lines of a graph whose boxes have their places."""

    def __init__(
        self,
        size: tuple[float, float],
        rank: Sequence[int],
        middle: Sequence[float],
        right: float,
        edges: Sequence[tuple[int, int, int]],
        chains: Sequence[Sequence[int]],
    ) -> None:
        self._size = size
        self._rank = rank
        self._middle = middle
        self._edges = edges
        self._chains = chains
        self._lanes = dict(self._assign_lanes(right))
        self.right_end = max([right, *(x + _LANE for x in self._lanes.values())])
        self._starts, self._ends = self._ports(0), self._ports(1)

    def top(self, rank: int) -> float:
        """The upper edge of the boxes of a rank."""
        return rank * (self._size[1] + _BETWEEN)

    def lines(self) -> Iterator[str]:
        """The path of each edge."""
        for number, (maker, taker, _) in enumerate(self._edges):
            start = self._starts[number], self.top(self._rank[maker]) + self._size[1]
            end = self._ends[number], self.top(self._rank[taker])
            chain = self._chains[number]
            yield self._among(start, chain[1:-1], end) if chain else self._aside(number, start, end)

    def _among(self, start: Place, waypoints: Sequence[int], end: Place) -> str:
        """Path of an edge that goes through waypoints, as curves."""
        parts, at = [f"M{start[0]:.1f} {start[1]:.1f}"], start
        for place in (*self._passed(start, waypoints), end):
            bend = (at[1] + place[1]) / 2
            straight = at[0] == place[0]
            curve = f"C{at[0]:.1f} {bend:.1f} {place[0]:.1f} {bend:.1f} "
            parts.append(f"{'L' if straight else curve}{place[0]:.1f} {place[1]:.1f}")
            at = place
        return "".join(parts)

    def _passed(self, start: Place, waypoints: Sequence[int]) -> Iterator[Place]:
        """Above and below the boxes of each rank on the way."""
        top = start[1] + _BETWEEN
        for waypoint in waypoints:
            yield self._middle[waypoint], top
            yield self._middle[waypoint], top + self._size[1]
            top += self._size[1] + _BETWEEN

    def _aside(self, number: int, start: Place, end: Place) -> str:
        """Down to the middle of the gap, along the side, and back between two ranks."""
        maker, _, value = self._edges[number]
        lane = self._lanes[maker, value]
        upper, lower, r = start[1] + _BETWEEN / 2, end[1] - _BETWEEN / 3, _CORNER
        return (
            f"M{start[0]:.1f} {start[1]:.1f}V{upper - r:.1f}"
            f"q0 {r} {r} {r}H{lane - r:.1f}q{r} 0 {r} {r}V{lower - r:.1f}"
            f"q0 {r} -{r} {r}H{end[0] + r:.1f}q-{r} 0 -{r} {r}V{end[1]:.1f}"
        )

    def _assign_lanes(self, right: float) -> Iterator[tuple[tuple[int, int], float]]:
        """Place the lines at the side, so that no two of different values overlap."""
        spans: dict[tuple[int, int], int] = {}
        for (maker, taker, value), chain in zip(self._edges, self._chains, strict=True):
            if not chain:
                last = spans.get((maker, value), 0)
                spans[maker, value] = max(last, self._rank[taker])
        free: list[int] = []  # rank from which on each lane is free
        for (maker, value), last in sorted(spans.items(), key=lambda s: self._rank[s[0][0]]):
            first = self._rank[maker]
            lane = next((n for n, end in enumerate(free) if end < first), len(free))
            free[lane : lane + 1] = [last]
            yield (maker, value), right + _LANE * (lane + 2)

    def _ports(self, end: int) -> dict[int, float]:
        """Places where each edge leaves its maker (``end`` 0) or enters its taker (1).

        They are in the order of the other ends; edges of one value leave at one place.
        """
        by_box: dict[int, list[int]] = {}
        for number, edge in enumerate(self._edges):
            by_box.setdefault(edge[end], []).append(number)
        found = {}
        for box, numbers in by_box.items():
            values = {n: self._edges[n][2] for n in numbers}
            ports = {n: (values[n], n if end else 0) for n in numbers}
            aims: dict[tuple[int, int], list[float]] = {}
            for n in numbers:
                aims.setdefault(ports[n], []).append(self._aim(n, end))
            order = sorted(aims, key=lambda port: (sum(aims[port]) / len(aims[port]), port))
            step = min(_PORT, 0.8 * self._size[0] / len(order))
            for n in numbers:
                shift = order.index(ports[n]) - (len(order) - 1) / 2
                found[n] = self._middle[box] + shift * step
        return found

    def _aim(self, number: int, end: int) -> float:
        """Place that an edge comes from or goes to, next to a box."""
        chain = self._chains[number]
        if not chain:
            return self._lanes[self._edges[number][0], self._edges[number][2]]
        return self._middle[chain[1] if end == 0 else chain[-2]]
