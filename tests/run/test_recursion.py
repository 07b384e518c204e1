"""Functions that call themselves inside persistent kernels: run from their CUDA text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import recursive_models
import torch
from loop_runs import in_kernels, scattered
from persistent_runs import Emulation, Joined
from recursive_models import Recursive, depth_of

import tvm_tile
from bench.suites.networks.recursive_autoencoder import RecursiveAutoencoder
from bench.suites.networks.recursive_module import recursive_module
from tvm_tile import Options
from tvm_tile.device import find_device
from tvm_tile.errors import BoundError
from tvm_tile.passes.flow import plan as plan_flow
from tvm_tile.plan.rprogram import Bounds, Control
from tvm_tile.registered import REQUIRE_ENDED
from tvm_tile.stages.forced import Forced

pytestmark = pytest.mark.bank(6)

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


def test_a_recursion_that_goes_too_deep_is_ended(tmp_path: Path) -> None:
    """As many calls within each other as there may be are right, one more is an error, and the
    next call is right."""
    model, most = recursive_models.one_tree(), 6
    run = Emulation(kernel(model, Bounds(1000, most)), tmp_path)
    depths = []
    for number in range(40):
        own = model.inputs(number)
        depths.append(depth_of(*own[1:], len(own[1]) - 1))
        if depths[-1] > most:
            with pytest.raises(BoundError, match=f"{most} calls(.|\n)*Bounds.depth"):
                run(*own, seed=number)
            continue
        (found,) = run(*own, seed=number)
        np.testing.assert_allclose(found, model.expected(*own), rtol=2e-5, atol=2e-5)
    assert {most, most + 1} <= set(depths)


def test_a_function_that_calls_itself_in_a_loop_stays_on_the_host() -> None:
    """A vEU counts the iterations of a loop for all calls together."""
    joined, left = in_kernels(recursive_models.in_a_loop().mod, SMALL)
    assert not joined.made
    assert [apart.reason for apart in left] == [
        "it stays on the host: a function calls itself in a loop"
    ]


def test_a_function_that_ends_with_a_call_of_itself_stays_on_the_host() -> None:
    """It is a loop, which may go on for longer than calls within one another may."""
    joined, left = in_kernels(recursive_models.jumping().mod, SMALL)
    assert not joined.made
    assert [apart.reason for apart in left] == [
        "it stays on the host: it has a loop that is written in another form"
    ]


@pytest.mark.parametrize("name", [*MODELS, "in a loop", "jumping"])
def test_the_host_runs_them_too(name: str) -> None:
    model = {**MODELS, "in a loop": recursive_models.in_a_loop, "jumping": recursive_models.jumping}
    own = model[name]()
    compiled = tvm_tile.compile(own.mod, "emulated", options=Options(cache=False))
    for number in range(3):
        given = own.inputs(number)
        found = compiled(*given)
        np.testing.assert_allclose(found, own.expected(*given), rtol=2e-5, atol=2e-5)


def network(nodes: int, hidden: int) -> RecursiveAutoencoder:
    torch.manual_seed(0)
    return RecursiveAutoencoder(nodes, hidden).eval()


def test_the_recursive_autoencoder_is_one_kernel(tmp_path: Path) -> None:
    """At its full size. Of two children's vectors one is copied, and the root's."""
    module, x = network(127, 512), torch.randn(127, 512)
    joined, left = in_kernels(recursive_module(module), SMALL)
    assert not left
    names = [operator.name for operator in joined.made[0].operators]
    assert sum(name.startswith("carry_1_512") for name in names) == 2
    (found,) = Emulation(joined, tmp_path)(x.numpy())
    with torch.no_grad():
        expected = module.double()(x.double())
    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("control", get_args(Control))
def test_options_say_where_recursion_runs(control: Control) -> None:
    """At its full size."""
    mod = recursive_module(network(127, 512))
    options = Forced(cache=False, control=control)
    model = tvm_tile.compile(mod, "nvidia/h200", options=options)
    names = [plan.name.startswith("encode") for plan in model.report.plans]
    assert names == ([] if control == "host" else [True])
    assert (REQUIRE_ENDED.encode() in model.program.vm) == any(names)
