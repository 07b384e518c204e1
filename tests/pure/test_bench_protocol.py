"""The protocol's arithmetic: errors, samples, turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from bench.gpu import HostStage
from bench.protocol import (
    MAX_SAMPLES,
    MIN_SAMPLES,
    ROUNDS,
    Times,
    checked,
    measure,
    per_round,
    relative_error,
    tensors,
)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_relative_error_is_that_of_the_norms_and_changes_nothing(dtype: Any) -> None:
    output = torch.tensor([3.0, 4.0], dtype=dtype)
    wanted = torch.tensor([3.0, 5.0], dtype=torch.float64)
    assert relative_error(output, wanted) == pytest.approx(1 / math.sqrt(34))
    assert output.tolist() == [3.0, 4.0]
    assert wanted.tolist() == [3.0, 5.0]


def test_another_shape_is_an_error() -> None:
    with pytest.raises(ValueError, match="shape"):
        relative_error(torch.ones(2, 3), torch.ones(3, 2))


def test_nan_in_any_output_is_found() -> None:
    good, bad = torch.ones(3), torch.tensor([1.0, float("nan"), 1.0])
    for outputs in ((good, bad), (bad, good)):
        error = checked(lambda o=outputs: tuple(x.clone() for x in o), [good, good], HostStage())
        assert math.isnan(error)


def test_a_missing_output_is_an_error() -> None:
    with pytest.raises(ValueError, match="1 outputs"):
        checked(lambda: torch.ones(2), [torch.ones(2), torch.ones(2)], HostStage())


def test_nested_outputs_are_flattened() -> None:
    assert [float(t) for t in tensors((torch.tensor(1), [torch.tensor(2), torch.tensor(3)]))] == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("seconds", [0.0, 1e-6, 1e-3, 1e-2, 1.0, 100.0])
def test_enough_samples_whatever_a_run_takes(seconds: float) -> None:
    samples = ROUNDS * per_round(seconds)
    assert MIN_SAMPLES <= samples <= MAX_SAMPLES


def test_median_and_quartiles() -> None:
    times = Times((0.001, 0.002, 0.003, 0.004, 0.100))
    assert times.median_ms == pytest.approx(3)
    assert times.iqr_ms == pytest.approx(2)


class FakeStage(HostStage):
    """Tells what each run returns as its time."""

    def time(self, run: Callable[[], Any], count: int, *, cold: bool) -> list[float]:
        return [float(run()) for _ in range(count)]


def test_systems_take_turns_and_their_own_clocks_are_used() -> None:
    turns: list[str] = []
    found = measure(
        {"a": lambda: 0.5, "b": lambda: 0.25, "c": lambda: None},
        FakeStage(),
        cold=True,
        clocks={"c": lambda run, count: [0.125] * count},
        on_system=turns.append,
    )
    assert {name: times.median_ms for name, times in found.items()} == {
        "a": 500,
        "b": 250,
        "c": 125,
    }
    assert turns[-6:] == ["a", "b", "c"] * 2
