"""Which calls of a model become one kernel: Welder's first step, graph connecting (section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What a call computes, as far as connecting asks."""

    PRODUCT = "product"
    VIEW = "view"  # elements as they are, elsewhere
    SPATIAL = "spatial"  # each element from few others
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel of a model as it stands.

    Attributes:
        output: the value it makes.
        inputs: values that other calls make and it takes, each once.
        kind: what it computes.
    """

    output: str
    inputs: tuple[str, ...]
    kind: Kind


_EACH = (Kind.VIEW, Kind.SPATIAL)

Group = tuple[int, ...]
"""Numbers of calls that become one, in the order of the program."""

Gain = Callable[[Group], float | None]
"""Seconds that a group saves as one kernel; ``None`` where no kernel can do it."""

_LONGEST = 5


def connect_calls(calls: Sequence[Call], outputs: frozenset[str], gain: Gain) -> tuple[Group, ...]:
    """Groups of calls that save time, each call in at most one.

    From each product a group grows by whatever takes its values next, until another product is in
    it; then by the views that feed it, and by what its output goes through next. It counts where
    everything made within it, but the last value, is used only within it.

    Args:
        calls: in the order of the program.
        outputs: values that are used elsewhere, too.
        gain: asked for each group that could become one.
    """
    graph = _Graph(calls, outputs)
    groups: list[Group] = []
    taken: set[int] = set()
    for start, call in enumerate(calls):
        if call.kind is not Kind.PRODUCT or start in taken:
            continue
        chain = graph.to_next_product(start)
        is_free = chain is not None and not taken.intersection(chain)
        saved = gain(chain) if chain is not None and is_free else None
        best = (chain, saved) if chain is not None and saved is not None and saved > 0 else None
        group, so_far = best or ((start,), 0.0)
        group = _extended(graph, group, so_far, gain, taken)
        taken.update(group)
        if len(group) > 1:
            groups.append(group)
    return tuple(groups)


def _extended(graph: _Graph, group: Group, saved: float, gain: Gain, taken: set[int]) -> Group:
    """A group with the neighbours whose joining saves more."""
    refused: set[int] = set()
    while True:
        found = next((n for n in graph.neighbours(group) if n not in refused | taken), None)
        if found is None:
            return group
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

    def to_next_product(self, start: int) -> Group | None:
        """The smallest group from one product to the next whose inner values stay inside."""
        group = {start}
        while len(group) < _LONGEST:
            beyond = {n for member in group for n in self._taking(member)} - group
            if not beyond:
                return None
            group.add(min(beyond))
            if self._calls[max(group)].kind is Kind.PRODUCT:
                inner = group - {max(group)}
                return tuple(sorted(group)) if all(self._stays(n, group) for n in inner) else None
        return None

    def neighbours(self, group: Group) -> Iterator[int]:
        """What takes a group's output, if nothing else does; then the views that only feed it."""
        followers = self._taking(group[-1])
        is_handed_on = len(followers) == 1 and self._calls[group[-1]].output not in self._outputs
        yield from (n for n in followers if is_handed_on and self._calls[n].kind in _EACH)
        for number in group:
            for value in self._calls[number].inputs:
                maker = self._makers[value]
                is_view = maker not in group and self._calls[maker].kind is Kind.VIEW
                if is_view and self._stays(maker, set(group)):
                    yield maker

    def _taking(self, number: int) -> list[int]:
        return self._takers.get(self._calls[number].output, [])

    def _stays(self, number: int, group: set[int]) -> bool:
        """Whether what a call makes is used within a group only."""
        is_used_elsewhere = self._calls[number].output in self._outputs
        return not is_used_elsewhere and set(self._taking(number)) <= group
