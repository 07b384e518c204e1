"""Which calls of a model become one kernel: Welder's first step, graph connecting (section 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One kernel of a model as it stands.

    Attributes:
        output: the value it makes.
        inputs: values that other calls make and it takes, each once.
        is_product: whether it sums products of two tensors.
    """

    output: str
    inputs: tuple[str, ...]
    is_product: bool


Group = tuple[int, ...]
"""Numbers of calls that become one, in the order of the program."""

Gain = Callable[[Group], float | None]
"""Seconds that a group saves as one kernel; ``None`` where no kernel can do it."""

_LONGEST = 5


def connect_calls(calls: Sequence[Call], outputs: frozenset[str], gain: Gain) -> tuple[Group, ...]:
    """Groups of calls that save time, each call in at most one.

    From each product a group grows by whatever takes its values next, until another product is in
    it. It counts where everything made within it, but the last value, is used only within it.

    Args:
        calls: in the order of the program.
        outputs: values that are used elsewhere, too.
        gain: asked for each group that could become one.
    """
    takers: dict[str, list[int]] = {}
    for number, call in enumerate(calls):
        for value in call.inputs:
            takers.setdefault(value, []).append(number)
    taken: set[int] = set()
    groups = []
    for start, call in enumerate(calls):
        if not call.is_product or start in taken:
            continue
        group = _grown(calls, start, takers, outputs)
        if group is None or taken.intersection(group):
            continue
        saved = gain(group)
        if saved is not None and saved > 0:
            groups.append(group)
            taken.update(group)
    return tuple(groups)


def _grown(
    calls: Sequence[Call], start: int, takers: dict[str, list[int]], outputs: frozenset[str]
) -> Group | None:
    """The smallest group from one product to the next whose inner values stay inside."""
    group = {start}
    while len(group) < _LONGEST:
        made = {calls[number].output for number in group}
        beyond = {taker for value in made for taker in takers.get(value, ())} - group
        if not beyond:
            return None
        group.add(min(beyond))
        inner = {calls[number].output for number in group if number != max(group)}
        if calls[max(group)].is_product:
            stays = all(set(takers.get(value, ())) <= group for value in inner)
            return tuple(sorted(group)) if stays and not inner & outputs else None
    return None
