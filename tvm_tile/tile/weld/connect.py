"""Which calls of a model become one kernel: Welder's first step, graph connecting (section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from tvm_tile.tile.rules import Level


class Kind(Enum):
    """Kind of a call's computation, as far as connecting asks."""

    PRODUCT = "product"
    WINDOW = "window"  # each sum of few neighbours, such as a depthwise convolution's
    DECODING = "decoding"  # values of codes of a few bits
    VIEW = "view"  # elements as they are, elsewhere
    SPATIAL = "spatial"  # each element from few others
    ROWS = "rows"  # each element from itself and sums of its row, such as a softmax's
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel of a model as it stands.

    Attributes:
        output: the value it makes.
        inputs: values that other calls make and it takes, each once.
        kind: kind of computation.
        is_reshape: whether its value is another one in another shape, which costs nothing within
            the model.
    """

    output: str
    inputs: tuple[str, ...]
    kind: Kind
    is_reshape: bool = False


_EACH = (Kind.VIEW, Kind.SPATIAL)
_ENDS = (Kind.PRODUCT, Kind.WINDOW)

Group = tuple[int, ...]
"""Numbers of calls that become one, in the order of the program."""

Gain = Callable[[Group], float | None]
"""Seconds that a group saves as one kernel; ``None`` where no kernel can do it."""

Alone = Callable[[int], float]
"""Seconds of a call as a kernel of its own."""

_LONGEST = 5


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
    calls: Sequence[Call], outputs: frozenset[str], gain: Gain, alone: Alone = lambda _: 0.0
) -> tuple[Group, ...]:
    """Groups of calls that save time, each call in at most one, but for rows that several compute.

    From each product a group grows by whatever takes its values next, until a window or another
    product is in it; it counts where everything made within it, but the last value, is used only
    within it. Of those that share a call the one that saves most is taken, attention with what
    it would grow by if it alone saves nothing, less what its products
    save where each is joined with what decodes its weights instead. Then groups, and
    products without one, grow by the views that feed them, and by what their output goes through
    next. Rows that only such groups take, such as a norm of what queries and keys are made of, are
    computed anew in each of these, where that saves time; other rows grow by what their output goes
    through, but for reshapes that cost nothing.

    Args:
        calls: calls in the order of the program.
        outputs: values that are used elsewhere, too.
        gain: asked for each group that could become one.
        alone: asked for rows that several groups could compute.
    """
    graph = _Graph(calls, outputs)
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
    for number in reversed(rows):
        for place in _spread(graph, number, grown, gain, alone):
            # What makes the rows is perhaps computed with them.
            grown[place] = _extended(graph, *grown[place], gain, taken)
            taken.update(grown[place][0])
            rows = [other for other in rows if other != number]
    for number in rows:
        grown.append(_extended(graph, (number,), 0.0, gain, taken))
        taken.update(grown[-1][0])
    return tuple(group for group, _ in grown if len(group) > 1)


def _with_feeds(graph: _Graph, chain: Group, saved: float | None, gain: Gain) -> float | None:
    """What a chain saves, with what would be one kernel with it where attention alone saves none:
    keys that heads share are perhaps repeated only for kernels that it takes the place of."""
    if saved is None or saved > 0 or not graph.is_attention(chain):
        return saved
    return _extended(graph, chain, saved, gain, set())[1]


def _spread(
    graph: _Graph, rows: int, groups: list[tuple[Group, float]], gain: Gain, alone: Alone
) -> list[int]:
    """The places of the groups that compute some rows from now on, which saves time if all that
    takes them does; ``groups`` change."""
    takers = graph.takers(rows)
    takes = [n for n, (group, _) in enumerate(groups) if not takers.isdisjoint(group)]
    if not takers or not takers <= {n for place in takes for n in groups[place][0]}:
        return []
    larger = {place: tuple(sorted((rows, *groups[place][0]))) for place in takes}
    gains = {place: gain(group) for place, group in larger.items()}
    now = {place: saved for place, saved in gains.items() if saved is not None}
    more = sum(saved - groups[place][1] for place, saved in now.items())
    # Each gain has the kernel of the rows in it, which is saved once.
    if len(now) < len(takes) or more <= (len(takes) - 1) * alone(rows):
        return []
    for place, saved in now.items():
        groups[place] = larger[place], saved
    return takes


def _extended(
    graph: _Graph, group: Group, saved: float, gain: Gain, taken: set[int]
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


class _Graph:
    """Calls and who takes what they make."""

    def __init__(self, calls: Sequence[Call], outputs: frozenset[str]) -> None:
        self._calls, self._outputs = calls, outputs
        self._makers = {call.output: number for number, call in enumerate(calls)}
        self._takers: dict[str, list[int]] = {}
        for number, call in enumerate(calls):
            for value in call.inputs:
                self._takers.setdefault(value, []).append(number)

    def chains(self, start: int) -> Iterator[Group]:
        """Groups from one product to the next window, and to the next product.

        Each is the smallest whose inner values stay inside.
        """
        group = {start}
        while len(group) < _LONGEST:
            beyond = {n for member in group for n in self._taking(member)} - group
            if not beyond:
                return
            group.add(min(beyond))
            last = max(group)
            kind = self._calls[last].kind
            if kind in _ENDS and all(self._stays(n, group) for n in group - {last}):
                yield tuple(sorted(group))
            if kind is Kind.PRODUCT:
                return

    def neighbours(self, group: Group) -> Iterator[int]:
        """The decoded weights that only feed a group; what takes its output, if nothing else does;
        then the views that only feed it, and whatever is computed element by element to feed
        attention.

        Weights are first: whether what is behind a product is one with it is asked of the rule that
        multiplies their codes.
        Rows take no views before them. Of reshapes nothing takes any behind it but outputs of the
        model: these are copied, where others cost nothing.
        """
        followers = self._taking(group[-1])
        is_handed_on = len(followers) == 1 and self._calls[group[-1]].output not in self._outputs
        is_rows = all(self._calls[number].kind is not Kind.PRODUCT for number in group)
        is_attention = self.is_attention(group)
        if not is_rows and not is_attention:
            yield from self._feeding(group, (Kind.DECODING,))
        for number in followers if is_handed_on else ():
            call = self._calls[number]
            is_free = call.is_reshape and call.output not in self._outputs
            if call.kind in _EACH and not is_free:
                yield number
        # Attention's queries are made once a block, whatever they are made of.
        if not is_rows:
            yield from self._feeding(group, _EACH if is_attention else (Kind.VIEW,))

    def _feeding(self, group: Group, kinds: Collection[Kind]) -> Iterator[int]:
        """Calls of some kinds whose values only this group reads."""
        for number in group:
            for value in self._calls[number].inputs:
                maker = self._makers[value]
                is_fed = maker not in group and self._calls[maker].kind in kinds
                if is_fed and self._stays(maker, set(group)):
                    yield maker

    def decoders(self, product: int) -> list[int]:
        """Calls that decode weights for this product only."""
        makers = [self._makers[value] for value in self._calls[product].inputs]
        return [
            maker
            for maker in makers
            if self._calls[maker].kind is Kind.DECODING and self._stays(maker, {product})
        ]

    def takers(self, number: int) -> frozenset[int]:
        """Calls that take what a call makes; none where that is used elsewhere, too."""
        is_output = self._calls[number].output in self._outputs
        return frozenset(() if is_output else self._taking(number))

    def is_attention(self, group: Group) -> bool:
        """Whether a group has two products and reductions over rows."""
        kinds = [self._calls[number].kind for number in group]
        return kinds.count(Kind.PRODUCT) > 1 and Kind.ROWS in kinds

    def _taking(self, number: int) -> list[int]:
        """Numbers of the calls that take a call's value."""
        return self._takers.get(self._calls[number].output, [])

    def _stays(self, number: int, group: set[int]) -> bool:
        """Whether what a call makes is used within a group only."""
        is_used_elsewhere = self._calls[number].output in self._outputs
        return not is_used_elsewhere and set(self._taking(number)) <= group
