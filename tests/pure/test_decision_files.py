"""Which calls become one kernel, and what is told about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tvm_tile.tile.weld.connect import (
    Call,
    Decision,
    Edge,
    Group,
    Kind,
    Option,
    connect_calls,
    decide,
)

NAMES = ("turn", "scores", "softmax", "values", "follow")
CALLS = (
    Call("k", (), Kind.VIEW),
    Call("s", ("k",), Kind.PRODUCT),
    Call("p", ("s",), Kind.OTHER),
    Call("o", ("p",), Kind.PRODUCT),
    Call("y", ("o",), Kind.SPATIAL),
)
CHAIN, WITH_FOLLOWER, ALL = (1, 2, 3), (1, 2, 3, 4), (0, 1, 2, 3, 4)
UNWRITTEN = "no rule writes them as one kernel"


def answer(group: Group, together: float, reason: str = "") -> Decision:
    """Each function takes ten seconds alone."""
    names = tuple(NAMES[number] for number in group)
    return Decision(names, (), 10.0 * len(group), together, "chain", reason)


def asked_by_connecting(answers: dict[Group, Decision]) -> tuple[Decision, ...]:
    """The decisions about ``CALLS``, where groups without an answer cannot be written."""
    asked: dict[Group, Decision] = {}

    def gain(group: Group) -> float | None:
        asked[group] = answers.get(group) or answer(group, 0.0, UNWRITTEN)
        return asked[group].gain

    return decide(asked, connect_calls(CALLS, frozenset({"y"}), gain))


def test_the_largest_group_that_saves_more_is_joined_with_the_smaller_ones_as_options() -> None:
    answers = {CHAIN: 12.0, WITH_FOLLOWER: 13.0, ALL: 14.0}
    found = asked_by_connecting({group: answer(group, s) for group, s in answers.items()})
    assert len(found) == 1
    assert found[0].functions == NAMES
    assert not found[0].reason
    # What an option leaves out takes its own ten seconds.
    assert found[0].options == (Option(NAMES[1:4], 32.0), Option(NAMES[1:], 23.0))


def test_what_no_rule_writes_is_left_apart() -> None:
    found = asked_by_connecting({CHAIN: answer(CHAIN, 12.0)})
    assert [(d.functions, d.reason) for d in found] == [
        (NAMES[1:4], ""),
        (NAMES[1:], UNWRITTEN),
        (NAMES[:4], UNWRITTEN),
    ]


@pytest.mark.parametrize(
    ("together", "reason"),
    [(40.0, "one kernel takes no less time"), (25.0, "a smaller group takes no more time")],
)
def test_what_saves_nothing_is_left_apart(together: float, reason: str) -> None:
    answers = [answer(CHAIN, 12.0), answer(WITH_FOLLOWER, together)]
    found = asked_by_connecting(dict(zip((CHAIN, WITH_FOLLOWER), answers, strict=True)))
    assert found[1] == replace(answers[1], reason=reason)


def test_of_groups_that_share_a_function_the_one_that_saves_most_is_joined() -> None:
    """The middle product can end a kernel, or begin one."""
    row = (
        Call("a", (), Kind.PRODUCT),
        Call("b", ("a",), Kind.PRODUCT),
        Call("c", ("b",), Kind.PRODUCT),
    )
    asked = {(0, 1): answer((0, 1), 19.0), (1, 2): answer((1, 2), 12.0)}
    joined = connect_calls(row, frozenset({"c"}), lambda group: asked[group].gain)
    assert joined == ((1, 2),)
    reason = "another group that shares a function with it saves no less"
    assert decide(asked, joined) == (replace(asked[0, 1], reason=reason), asked[1, 2])


def test_a_group_without_a_kernel_saves_nothing() -> None:
    assert answer(CHAIN, 12.0).gain == 18.0
    assert answer(CHAIN, 12.0, UNWRITTEN).gain is None


def test_each_value_is_written_once_and_read_once_by_every_taker() -> None:
    handed = (Edge(0, 1, 100), Edge(0, 2, 100), Edge(1, 2, 30))
    decision = Decision(("a", "b", "c"), handed)
    assert decision.saved_bytes == (100 + 2 * 100) + (30 + 30)


def test_values_are_handed_over_on_chip_and_views_not_at_all() -> None:
    value, view = Edge(0, 1, 4), Edge(0, 1, 4, is_view=True)
    joined = Decision(("a", "b"), (value, view))
    assert [joined.level(edge) for edge in joined.edges] == ["register", "in place"]
    halo = replace(joined, edges=(replace(value, is_shared=True), view))
    assert [halo.level(edge) for edge in halo.edges] == ["shared", "in place"]
    apart = replace(joined, reason=UNWRITTEN)
    assert [apart.level(edge) for edge in apart.edges] == ["global", "global"]
