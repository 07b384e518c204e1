"""Functions that call themselves inside persistent kernels: run from their CUDA text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recursive_models
from loop_runs import in_kernels, scattered
from persistent_runs import Emulation, Joined
from recursive_models import Recursive

from tvm_tile.device import find_device
from tvm_tile.passes import plan_flow
from tvm_tile.plan.rprogram import Bounds

SMALL = replace(find_device("nvidia/h200"), multi_processor_count=3)
MODELS = {
    "one tree": recursive_models.one_tree,
    "all nodes": recursive_models.all_nodes,
    "changing arguments": recursive_models.changing,
    "taking turns": recursive_models.taking_turns,
}


def kernel(model: Recursive, bounds: Bounds | None = None) -> Joined:
    """The model, all of whose control flow is one kernel."""
    joined, left = in_kernels(model.mod, SMALL, bounds or Bounds(1000, 32))
    assert not left, left
    assert len(joined.made) == 1
    return joined


def compare(model: Recursive, run: Emulation, count: int = 6) -> None:
    """Several calls, each in another order of events, beside float64."""
    for number in range(count):
        own = model.inputs(number)
        (found,) = run(*own, seed=number)
        np.testing.assert_allclose(found, model.expected(*own), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_recursions_are_right(name: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    compare(model, Emulation(kernel(model), tmp_path))


@pytest.mark.parametrize("name", MODELS)
def test_no_order_of_a_queue_hides_a_wait(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_flow, "coschedule", scattered)
    model = MODELS[name]()
    compare(model, Emulation(kernel(model), tmp_path))
