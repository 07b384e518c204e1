"""Facts about schedule rules that are known of all of them."""

from __future__ import annotations

from tvm_tile.tile.rules import JOINING, ORDER, rule_named


def test_names_are_distinct_and_lead_back() -> None:
    assert [rule_named(rule.name) for rule in ORDER] == list(ORDER)
    assert len({rule.name for rule in ORDER}) == len(ORDER)
    assert rule_named("dlight") is None


def test_whoever_hands_values_over_is_asked_about_joining() -> None:
    assert {rule for rule in ORDER if rule.hands_over} <= set(JOINING)
