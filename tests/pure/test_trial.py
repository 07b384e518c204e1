"""Which measured candidate is kept."""

from __future__ import annotations

import math

import pytest

from tvm_tile.report.trial import Trial, fastest, tolerance_for

FIRST = Trial(0, 3.0, 0.0)


def test_the_fastest_is_kept() -> None:
    best = Trial(2, 1.0, 1e-7)
    assert fastest((FIRST, Trial(1, 2.0, 0.0), best), 1e-4) is best


@pytest.mark.parametrize("difference", [1e-3, 1.0, math.inf, math.nan])
def test_what_disagrees_with_the_first_is_not(difference: float) -> None:
    assert fastest((FIRST, Trial(1, 1.0, difference)), 1e-4) is FIRST


def test_of_equally_fast_ones_the_models_favourite() -> None:
    assert fastest((Trial(4, 1.0, 0.0), Trial(1, 1.0, 0.0)), 1e-4).rank == 1


def test_the_least_precise_dtype_decides() -> None:
    assert tolerance_for(()) == tolerance_for(("float32",)) == tolerance_for(("int64",))
    assert tolerance_for(("float32", "float16")) == tolerance_for(("float16",))
    assert tolerance_for(("float32",)) < tolerance_for(("float16",)) < tolerance_for(("bfloat16",))
