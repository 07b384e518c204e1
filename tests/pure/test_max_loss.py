"""``Options(max_loss=...)``: what it may be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tvm_tile import OptionError, Options


@pytest.mark.parametrize("share", [-0.01, 10**400, math.inf, math.nan, "0.1", None, True])
def test_what_is_no_share_is_refused(share: Any) -> None:
    with pytest.raises(OptionError, match="max_loss must be a number and not negative"):
        Options(max_loss=share)


def test_shares_may_be_whole_numbers() -> None:
    assert Options().max_loss == 0.02
    assert Options(max_loss=0).max_loss == 0
    assert Options(max_loss=3).max_loss == 3
