"""Which of several rules' kernels to take, by hand."""

from __future__ import annotations

import itertools
import math

import pytest

from tvm_tile.device.cuda import H200
from tvm_tile.tile.rules import (
    CHAIN,
    CONTRACTION,
    ELEMENTWISE,
    JOINING,
    MATVEC,
    MMA,
    ORDER,
    WGMMA,
    Rule,
    margin,
    preferred,
    rule_named,
)

CONTESTS = H200.times.contests


def test_names_are_distinct_and_lead_back() -> None:
    assert [rule_named(rule.name) for rule in ORDER] == list(ORDER)
    assert len({rule.name for rule in ORDER}) == len(ORDER)
    assert rule_named("dlight") is None


def test_whoever_hands_values_over_is_asked_about_joining() -> None:
    assert {rule for rule in ORDER if rule.hands_over} <= set(JOINING)


@pytest.mark.parametrize("pair", [*itertools.product(ORDER, repeat=2)], ids=str)
def test_margins_are_of_later_rules_over_earlier_ones(pair: tuple[Rule, Rule]) -> None:
    places = [ORDER.index(rule) for rule in pair]
    assert margin(CONTESTS, *pair) > 0
    assert math.isinf(margin(CONTESTS, *pair)) or places[0] < places[1]


def test_the_first_stands_where_nothing_compares() -> None:
    assert preferred(CONTESTS, [(CHAIN, 1.0), (CONTRACTION, 1e-9)]) == 0
    assert preferred(CONTESTS, [(ELEMENTWISE, 1.0)]) == 0


def test_a_later_rule_must_be_faster_by_the_margin() -> None:
    least = 1 / margin(CONTESTS, WGMMA, MMA)
    assert preferred(CONTESTS, [(WGMMA, 1.0), (MMA, 1.001 * least)]) == 0
    assert preferred(CONTESTS, [(WGMMA, 1.0), (MMA, 0.999 * least)]) == 1


def test_each_later_rule_is_compared_with_the_best_before_it() -> None:
    mma = 0.99 / margin(CONTESTS, WGMMA, MMA)
    contraction = mma / margin(CONTESTS, MMA, CONTRACTION)
    assert preferred(CONTESTS, [(WGMMA, 1.0), (MMA, mma), (CONTRACTION, 1.01 * contraction)]) == 1
    assert preferred(CONTESTS, [(WGMMA, 1.0), (MMA, mma), (CONTRACTION, 0.99 * contraction)]) == 2
    far = 100 * max(margin(CONTESTS, MATVEC, rule) for rule in (WGMMA, MMA))
    assert preferred(CONTESTS, [(MATVEC, 1.0), (WGMMA, far), (MMA, far)]) == 0
