"""Which matrices stay codes: what is no slower so, and all where memory would not hold the rest."""

from __future__ import annotations

import pytest

from tvm_tile.tile.coded.choice import CodedUse, choose_codes

LARGE = 1 << 40
FAST = CodedUse(25, 100, 1e-6, 2e-6)
SLOW = CodedUse(25, 100, 3e-6, 2e-6)
EVEN = CodedUse(25, 100, 2e-6, 2e-6)


def kept(*uses: CodedUse, others: int = 0, capacity: int = LARGE) -> list[bool]:
    return [decision.is_kept for decision in choose_codes(uses, others, capacity)]


def test_what_is_no_slower_stays_codes() -> None:
    assert kept(FAST, SLOW, EVEN) == [True, False, True]
    reasons = [decision.reason for decision in choose_codes((FAST, SLOW), 0, LARGE)]
    assert reasons == [
        "its products take 1.00 us from codes, 2.00 us from numbers",
        "its products take 3.00 us from codes, 2.00 us from numbers",
    ]


@pytest.mark.parametrize("times", [(None, 1e-6), (1e-6, None), (None, None)])
def test_what_nobody_can_compare_is_folded(times: tuple[float | None, float | None]) -> None:
    (decision,) = choose_codes([CodedUse(25, 100, *times)], 0, LARGE)
    assert not decision.is_kept
    assert decision.reason == "what its products take is not known"


def test_all_stay_codes_where_memory_would_not_hold_the_numbers() -> None:
    """Those that are faster as codes are these anyway, and tell so."""
    assert kept(FAST, SLOW, others=10, capacity=135) == [True, False]
    assert kept(FAST, SLOW, others=11, capacity=135) == [True, True]
    fast, slow = choose_codes((FAST, SLOW), 10**9, 10**9)
    assert fast.reason == str(FAST)
    assert slow.reason == "folded there would be 1.0 GB of weights, the device has 1.0 GB"
