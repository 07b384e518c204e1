"""What kernels take where the second-level cache has what they read."""

from __future__ import annotations

import pytest

from tvm_tile.device import find_device
from tvm_tile.launches.warm import warm_seconds

H200 = find_device("nvidia/h200")
LEAST = H200.times.warm.least_seconds

RULES = ("contraction", "window", "rows", "elementwise", "a rule that is not there")


@pytest.mark.parametrize("rule", RULES)
def test_no_kernel_is_faster_than_an_empty_one(rule: str) -> None:
    assert warm_seconds(rule, 2 * LEAST, H200) >= LEAST


@pytest.mark.parametrize("rule", RULES)
def test_a_warm_cache_never_costs_time(rule: str) -> None:
    for seconds in (1.5e-6, 3e-6, 1e-5, 1e-4, 1e-2):
        assert warm_seconds(rule, seconds, H200) <= seconds


@pytest.mark.parametrize("rule", RULES)
def test_what_is_longer_cold_is_not_shorter_warm(rule: str) -> None:
    warm = [warm_seconds(rule, microseconds * 1e-7, H200) for microseconds in range(11, 1000)]
    assert warm == sorted(warm)


def test_small_contractions_gain_and_large_ones_do_not() -> None:
    assert warm_seconds("contraction", 6.5e-6, H200) < 6.5e-6 / 5
    assert warm_seconds("contraction", 1e-3, H200) == 1e-3
