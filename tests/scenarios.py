"""Scenarios: functions that do something with compiled models and return all that is to be seen.

A scenario is given ``compiled``, which takes what ``torch.compile`` takes: once it is PyTorch
alone, once our backend. Each has the name of the test in PyTorch's ``test/`` that has this
behaviour; the code is ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Compiled = Callable[..., Callable[..., Any]]
Scenario = Callable[[Compiled], Any]
SCENARIOS: dict[str, Scenario] = {}


def after(test: str) -> Callable[[Scenario], Scenario]:
    """Names the test of PyTorch's that a scenario follows."""

    def keep(scenario: Scenario) -> Scenario:
        SCENARIOS[f"{scenario.__name__}, as {test}"] = scenario
        return scenario

    return keep


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 10), nn.Sigmoid())


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]
