"""The table of architectures: what it counts, and one of them from its configuration."""

from __future__ import annotations

import numpy as np
import pytest

from bench.architectures.check import Verdict, relative_error
from bench.architectures.report import page
from bench.architectures.zoo import Architecture, architectures


def test_there_are_enough_different_ones() -> None:
    keys = [architecture.key for architecture in architectures()]
    assert len(set(keys)) == len(keys) >= 120


@pytest.mark.filterwarnings("ignore")  # other people's deprecations
def test_an_architecture_answers_with_one_tensor() -> None:
    module, inputs = Architecture("transformers", "bert").build()
    assert module(*inputs).shape == (1, 16, 32)


def test_the_page_counts_what_is_wrong_and_what_fell_back() -> None:
    right = Verdict("timm/a", "emulated", "right", "", 1e-7, 3, (), 1.0, "0")
    fallen = Verdict("timm/b", "emulated", "right", "", 1e-7, 3, ("sort: no rule",), 1.0, "0")
    wrong = Verdict("timm/c", "emulated", "wrong", "off", 0.5, 3, (), 1.0, "0")
    text = page({verdict.key: verdict for verdict in (right, fallen, wrong)})
    assert "| emulated | 3 | 2 | 0 | 0 | 1 | 0 | 1 of 2 |" in text
    assert "| timm/c | emulated | wrong | off |" in text


def test_errors_count_what_is_no_number() -> None:
    exact = np.array([1.0, np.nan, np.inf])
    assert relative_error(exact, exact) == 0
    for other in ([1.0, 0.0, np.inf], [1.0, np.nan, 3.0], [1.0, np.nan, -np.inf], [1.0]):
        assert relative_error(np.array(other), exact) == np.inf
    assert relative_error(np.array([1.5, np.nan, np.inf]), exact) == 0.5
