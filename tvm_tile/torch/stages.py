"""Which of a graph's steps run together, and in which order: a decision without PyTorch or TVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GraphStep:
    """One operator of a graph, known by its position in program order.

    Attributes:
        needs: positions of the earlier steps whose results it takes, or which it must follow.
        is_compiled: whether it can be compiled; PyTorch runs it otherwise.
        is_source: whether it takes no tensor at all: a constant that it makes anywhere.
    """

    needs: tuple[int, ...]
    is_compiled: bool
    is_source: bool = False


def stages(steps: Sequence[GraphStep]) -> tuple[int, ...]:
    """The stage of each step: odd ones are compiled, each as one program, even ones are not.

    Stages run one after another, each as early as what it needs allows. So a step that is compiled
    joins all others that wait for no more than it does, related or not::

        a -> inv -> b -> c          a d | inv | b c
        d -> c

    What has no inputs is made by the first stage that takes it.
    """
    found = [0] * len(steps)
    for position, step in enumerate(steps):
        if not step.is_source:
            before = max((found[n] for n in step.needs if not steps[n].is_source), default=0)
            found[position] = before + (before % 2 != step.is_compiled)
    users: dict[int, int] = {}
    for position in reversed(range(len(steps))):
        if steps[position].is_source:
            found[position] = users.get(position, 0)
        for need in steps[position].needs:
            users[need] = min(users.get(need, found[position]), found[position])
    return tuple(found)
