"""Random programs of loops and branches (bench/random_control.py) in persistent kernels."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from loop_runs import in_kernels, scattered
from persistent_runs import Emulation

from bench.random_control import exported, program, scripted
from tvm_tile.device import find_device
from tvm_tile.frontend import import_model
from tvm_tile.passes.flow import plan as plan_flow

pytestmark = pytest.mark.bank(6)

SMALL = replace(find_device("nvidia/h200"), multi_processor_count=3)
CALLS = 4


@pytest.mark.parametrize("is_scattered", [False, True], ids=["planned", "scattered"])
@pytest.mark.parametrize("seed", [1, 3, 10])
def test_random_programs(
    seed: int, is_scattered: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four calls that go other ways each, their blocks in orders of their own."""
    if is_scattered:
        monkeypatch.setattr(plan_flow, "coschedule", scattered)
    assert run(seed, tmp_path)


def run(seed: int, folder: Path) -> bool:
    """Whether a program has a loop or a branch in a kernel; all of its calls are compared.

    Raises:
        AssertionError: a call differs from TorchScript's.
    """
    lines = program(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script, model = scripted(lines), exported(lines)
    joined, left = in_kernels(import_model(model, inputs=None, example_inputs=None).mod, SMALL)
    if left or not joined.made:
        return False
    names = [value.name for value in model.graph.input]  # an exporter drops what is not read
    emulation = Emulation(joined, folder)
    for call in range(CALLS):
        source = np.random.default_rng([seed, call])
        x, y = (source.standard_normal((4, 3)).astype("float32") for _ in range(2))
        given = {"x": x, "y": y, "n": np.array(call)}
        found = emulation(*(given[name] for name in names), seed=call)
        with torch.no_grad():
            expected = [value.numpy() for value in script(*map(torch.tensor, given.values()))]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-4)
    return True
