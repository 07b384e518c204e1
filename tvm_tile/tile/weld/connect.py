"""Which calls of a model become one kernel: Welder's first step, graph connecting (section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tvm_tile.tile.rules import Level
from tvm_tile.tile.weld.call_graph import Call, CallGraph, Group, Kind

Gain = Callable[[Group], float | None]
"""Seconds that a group saves as one kernel; ``None`` where no kernel can do it."""

Alone = Callable[[int], float]
"""Seconds of a call as a kernel of its own."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A value that one function of a group hands to another.

    Attributes:
        maker: position in the group of the function that makes it.
        taker: number of a call that takes it.
        size: size of the value, in bytes.
        is_view: whether it is other values as they are: made one kernel with its taker, it is
            read where these lie.
        is_shared: whether it goes through shared memory where they are one kernel; if not, threads
            keep it in registers.
    """

    maker: int
    taker: int
    size: int
    is_view: bool = False
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """A way to compute a group that was not taken: some of it as one kernel, the others alone.

    Attributes:
        functions: names of those that would be one kernel.
        seconds: predicted, of the whole group.
    """

    functions: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a group of functions that could be one kernel, and its reason.

    Attributes:
        functions: their names, in the order of the program.
        edges: values that they hand to each other.
        apart: predicted seconds as kernels of their own; 0 where no rule takes one of them.
        together: predicted seconds as one kernel; 0 where no rule writes it.
        rule: the schedule rule that writes it; empty where none does.
        reason: why they were left apart; empty where they became one kernel.
        options: smaller groups that were asked about on the way to one that was joined.
    """

    functions: tuple[str, ...]
    edges: tuple[Edge, ...]
    apart: float = 0.0
    together: float = 0.0
    rule: str = ""
    reason: str = ""
    options: tuple[Option, ...] = ()

    @property
    def gain(self) -> float | None:
        """Seconds that it saves as one kernel; ``None`` where no kernel can do it."""
        return None if self.reason else self.apart - self.together

    @property
    def saved_bytes(self) -> int:
        """Bytes of traffic that joining saves: one write of each value, a read by each taker."""
        written = {edge.maker: edge.size for edge in self.edges}
        return sum(written.values()) + sum(edge.size for edge in self.edges)

    def level(self, edge: Edge) -> str:
        """Level of memory at which the value of an edge is handed over.

        ``global``, ``shared`` (memory), ``register``, or ``in place``.
        """
        if self.reason:
            return "global"
        level = Level.SHARED if edge.is_shared else Level.REGISTER
        return "in place" if edge.is_view else level.value


def decide(asked: Mapping[Group, Decision], joined: Collection[Group]) -> tuple[Decision, ...]:
    """Decisions on all groups that were asked about, without those within larger ones.

    Args:
        asked: the answers, as if each group with a gain had been joined.
        joined: groups that are; each was asked about.
    """
    decisions = []
    for group, answer in asked.items():
        if group in joined:
            inner = [asked[other] for other in asked if set(other) < set(group)]
            options = tuple(_option(answer, within) for within in inner if not within.reason)
            decisions.append(replace(answer, options=options))
        elif not any(set(group) < set(other) for other in joined):
            is_grown = any(set(other) < set(group) for other in joined)
            decisions.append(replace(answer, reason=answer.reason or _slower(answer, is_grown)))
    return tuple(decisions)


def _option(whole: Decision, part: Decision) -> Option:
    """A part of a group as an alternative: its functions, and the time with the others apart."""
    return Option(part.functions, part.together + whole.apart - part.apart)


def _slower(answer: Decision, is_grown: bool) -> str:
    """Why a group that could be one kernel is none; ``is_grown`` from one that is."""
    if answer.together >= answer.apart:
        return "one kernel takes no less time"
    if is_grown:
        return "a smaller group takes no more time"
    return "another group that shares a function with it saves no less"


def connect_calls(
    calls: Sequence[Call],
    outputs: frozenset[str],
    gain: Gain,
    alone: Alone = lambda _: 0.0,
    storing: Gain = lambda _: None,
) -> tuple[Group, ...]:
    """Groups of calls that save time, each call in at most one, but for rows that several compute.

    From each product a group grows by whatever takes its values next, until a window or another
    product is in it; it counts where everything made within it, but the last value, is used only
    within it. Of those that share a call the one that saves most is taken, attention with what it
    would grow by if it alone saves nothing, less what its products save where each is joined with
    what decodes its weights instead. Then groups, and products without one, grow by the views that
    feed them, and by what their output goes through next. Rows that only such groups take, such as
    a norm of what queries and keys are made of, are computed anew in each of these, where that
    saves time. Rows that others take later, too, such as a residual, the first group that takes
    them computes and stores. Other rows grow by what their output goes through, but for reshapes
    that cost nothing.

    Args:
        calls: calls in the order of the program.
        outputs: values that are used elsewhere, too.
        gain: asked for each group that could become one.
        alone: asked for rows that several groups could compute.
        storing: asked as ``gain`` is, for groups that begin with rows and store these, too.
    """
    graph = CallGraph(calls, outputs)
    starts = [number for number, call in enumerate(calls) if call.kind is Kind.PRODUCT]
    gains = {chain: gain(chain) for start in starts for chain in graph.chains(start)}
    whole = {chain: _with_feeds(graph, chain, own, gain) for chain, own in gains.items()}
    # Products that are joined are not joined with what decodes their weights.
    decoding = {
        start: max(0.0, *(gain((maker, start)) or 0.0 for maker in makers))
        for start in starts
        if (makers := graph.decoders(start))
    }
    found = [
        (saved - sum(decoding.get(number, 0.0) for number in chain), chain)
        for chain, saved in whole.items()
        if saved is not None
    ]
    groups: list[tuple[Group, float]] = []
    taken: set[int] = set()
    for more, chain in sorted(found, key=lambda entry: (-entry[0], entry[1])):
        if more > 0 and not taken.intersection(chain):
            groups.append((chain, gains[chain] or 0.0))
            taken.update(chain)
    groups += [((start,), 0.0) for start in starts if start not in taken]
    taken.update(starts)
    rows = [n for n, call in enumerate(calls) if call.kind is Kind.ROWS and n not in taken]
    taken.update(rows)
    grown: list[tuple[Group, float]] = []
    for group, saved in sorted(groups):
        grown.append(_extended(graph, group, saved, gain, taken))
        taken.update(grown[-1][0])
    for number in _with_rows(graph, rows, grown, taken, (gain, storing), alone):
        grown.append(_extended(graph, (number,), 0.0, gain, taken))
        taken.update(grown[-1][0])
    return tuple(group for group, _ in grown if len(group) > 1)


def _with_rows(
    graph: CallGraph,
    rows: list[int],
    grown: list[tuple[Group, float]],
    taken: set[int],
    gains: tuple[Gain, Gain],
    alone: Alone,
) -> list[int]:
    """The rows that no group computes from now on; ``grown`` groups, and what is ``taken``, change.

    Rows are computed by all groups that take them, or by the first one, which stores them.
    """
    gain, storing = gains
    store: set[int] = set()  # places of groups that store rows
    for number in reversed(rows):
        takers = graph.takers(number)
        takes = {
            place: own
            for place, own in enumerate(grown)
            if place not in store and not takers.isdisjoint(own[0])
        }
        within = {n for group, _ in takes.values() for n in group}
        anew = _computing(number, takes if takers <= within else {}, gain, alone)
        once = _computing(number, _first(number, takers, takes), storing, alone)
        saved, changed = max(anew, once, key=lambda own: own[0])
        if saved <= 0:
            continue
        rows = [other for other in rows if other != number]
        store.update(changed if changed is once[1] else ())
        for place, own in changed.items():
            # What makes the rows is perhaps computed with them.
            grown[place] = own if place in store else _extended(graph, *own, gain, taken)
            taken.update(grown[place][0])
    return rows


def _with_feeds(graph: CallGraph, chain: Group, saved: float | None, gain: Gain) -> float | None:
    """What a chain saves, with what would be one kernel with it where attention alone saves none:
    keys that heads share are perhaps repeated only for kernels that it takes the place of."""
    if saved is None or saved > 0 or not graph.is_attention(chain):
        return saved
    return _extended(graph, chain, saved, gain, set())[1]


_Groups = Mapping[int, tuple[Group, float]]
"""Groups by their places, each with what it saves."""


def _computing(rows: int, groups: _Groups, gain: Gain, alone: Alone) -> tuple[float, _Groups]:
    """What it saves that each of some groups computes some rows, and these groups then."""
    larger = {place: tuple(sorted((rows, *group))) for place, (group, _) in groups.items()}
    gains = {place: gain(group) for place, group in larger.items()}
    now = {place: (larger[place], saved) for place, saved in gains.items() if saved is not None}
    if not now or len(now) < len(groups):
        return 0.0, {}
    more = sum(saved - groups[place][1] for place, (_, saved) in now.items())
    # Each gain has the kernel of the rows in it, which is saved once.
    return more - (len(now) - 1) * alone(rows), now


def _first(rows: int, takers: frozenset[int], groups: _Groups) -> _Groups:
    """A group that takes some rows ahead of all others that do, if there is one, by its place."""
    place = min(groups, key=lambda place: groups[place][0][-1], default=-1)
    group = groups[place][0] if groups else ()
    others = takers.difference(group)
    is_ahead = bool(group and others) and rows < group[0] and group[-1] < min(others)
    return {place: groups[place]} if is_ahead else {}


def _extended(
    graph: CallGraph, group: Group, saved: float, gain: Gain, taken: set[int]
) -> tuple[Group, float]:
    """A group with the neighbours whose joining saves more, and what it saves."""
    refused: set[int] = set()
    while True:
        found = next((n for n in graph.neighbours(group) if n not in refused | taken), None)
        if found is None:
            return group, saved
        larger = tuple(sorted((*group, found)))
        now = gain(larger)
        if now is not None and now > saved:
            group, saved = larger, now
        else:
            refused.add(found)
