"""Groups that were joined into one kernel, and groups left apart, as lines for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tvm_tile.tile.weld.connect import Decision


def render_joined(decisions: Sequence[Decision]) -> Iterator[str]:
    """Lines on groups that became one kernel; equal decisions are one line, with their number."""
    return _decided("joined:", [decision for decision in decisions if not decision.reason])


def render_apart(decisions: Sequence[Decision]) -> Iterator[str]:
    """Lines on groups that did not become one kernel, and why."""
    return _decided("left apart:", [decision for decision in decisions if decision.reason])


def _decided(title: str, decisions: Sequence[Decision]) -> Iterator[str]:
    """Lines on decisions under a title; equal ones once, with their number."""
    yield from [title] if decisions else []
    for decision, count in Counter(decisions).items():
        yield f"  {count} x {_names(decision.functions)}: {_outcome(decision)}"
        yield from _details(decision)


def _names(functions: tuple[str, ...]) -> str:
    """Names of functions that are one group."""
    return " + ".join(functions)


def _outcome(decision: Decision) -> str:
    """Words for a decision's outcome: rule, times and traffic, or the reason against it."""
    alone = f"{decision.apart * 1e6:.1f} us apart"
    as_one = f"{decision.together * 1e6:.1f} us as one"
    moved = f"{decision.saved_bytes / 1e6:.2f} MB"
    if not decision.reason:
        return f"{decision.rule}, {as_one}, {alone}, {moved} less traffic"
    times = [*([as_one] if decision.together else []), *([alone] if decision.apart else [])]
    return ", ".join([decision.reason, *times, f"{moved} of traffic between them"])


def _details(decision: Decision) -> Iterator[str]:
    """The values of a joined group, and what else it could have been."""
    if decision.reason:
        return
    for edge in decision.edges:
        ends = f"{decision.functions[edge.maker]} -> {decision.functions[edge.taker]}"
        yield f"      {ends}: {edge.size / 1e6:.2f} MB, {decision.level(edge)}"
    for option in decision.options:
        others = tuple((Counter(decision.functions) - Counter(option.functions)).elements())
        yield f"      without {_names(others)}: {option.seconds * 1e6:.1f} us"
