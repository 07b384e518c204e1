"""Calls of a model, and who takes what they make."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum


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

_LONGEST = 5


class CallGraph:
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


def taken_beyond(calls: Sequence[Call], groups: Sequence[Group]) -> frozenset[int]:
    """Numbers of the calls whose values are taken where they are not computed."""
    makers = {call.output: number for number, call in enumerate(calls)}
    homes: dict[int, list[Group]] = {}
    for group in groups:
        for number in group:
            homes.setdefault(number, []).append(group)
    return frozenset(
        makers[value]
        for taker, call in enumerate(calls)
        for value in call.inputs
        if any(makers[value] not in own for own in homes.get(taker, [()]))
    )
