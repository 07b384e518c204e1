"""``tvm_tile.choose``: which device, and how many samples a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import tvm_tile
from tvm_tile.errors import OptionError
from tvm_tile.oracle import Offer, Offers

DEVICES = "nvidia/h200", "nvidia/a100"


def layer() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU()).eval()


def inputs(samples: int) -> tuple[torch.Tensor, ...]:
    return (torch.zeros(samples, 512),)


def test_each_choice_is_what_is_predicted() -> None:
    sizes = 1, 64
    chosen = tvm_tile.choose(
        dict.fromkeys(sizes, layer()),
        DEVICES,
        example_inputs={n: inputs(n) for n in sizes},
        prices={"nvidia/h200": 4.0, "nvidia/a100": 2.0},
    )
    assert [(one.device, one.samples) for one in chosen.all] == [
        (name, n) for name in DEVICES for n in sizes
    ]
    for one in chosen.all:
        own = tvm_tile.predict(layer(), one.device, example_inputs=inputs(one.samples))
        assert one.seconds == own.predicted_seconds
        assert one.memory >= 4 * 512 * 2048
        assert one.cost == pytest.approx(
            {"nvidia/h200": 4.0, "nvidia/a100": 2.0}[one.device] / 3600 / one.throughput * 1e6
        )
    assert str(chosen).count("\n") == len(chosen.all)
    best = chosen.best
    assert best is not None
    assert best.cost == min(one.cost or 0 for one in chosen.all)


def offers(rows: list[tuple[str, int, float]], latency: float | None = None) -> Offers:
    """Offers that take these seconds, all with the report of one model."""
    report = tvm_tile.predict(torch.nn.ReLU(), "nvidia/h200", example_inputs=(torch.ones(3),))
    only = report.kernels[0]
    found = []
    for name, samples, seconds in rows:
        kernel = replace(only, seconds=seconds, calls=1)
        taken = replace(report, kernels=(kernel,), launches=None)
        found.append(Offer(name, samples, taken, 1e9, 8e10))
    return Offers(tuple(found), latency)


def test_the_front_has_what_nothing_beats() -> None:
    own = offers([("a", 1, 1e-3), ("a", 8, 4e-3), ("b", 1, 2e-3), ("b", 8, 3e-3)])
    assert [(one.device, one.samples) for one in own.front] == [("a", 1), ("b", 8)]
    assert own.best == own.all[3]
    hurried = replace(own, latency=2e-3)
    assert hurried.best == own.all[0]
    assert len(hurried.possible) == 2
    small = Offers(tuple(replace(one, capacity=1.0) for one in own.all))
    assert small.best is None
    assert not small.front


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(OptionError, match="number of samples"):
        tvm_tile.choose({0: layer()}, DEVICES, example_inputs={0: inputs(1)})
    with pytest.raises(OptionError, match="nvidia/b200"):
        tvm_tile.choose({1: layer()}, DEVICES, prices={"nvidia/b200": 1.0})
