"""Loops inside persistent kernels: run from their CUDA text, all blocks at once, in many orders."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import tvm
from loop_runs import looping, scattered, weights_stay
from persistent_runs import Emulation
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils import _pytree as pytree
from torch_control_cases import CASES, Linear, exported, in_float64

import tvm_tile
from bench.suites.networks.blockdrop import BlockDrop
from bench.suites.networks.looped import looped
from bench.suites.networks.skipnet import SkipNet
from tvm_tile.device import find_device
from tvm_tile.errors import BoundError, OptionError
from tvm_tile.passes.flow import plan as plan_flow
from tvm_tile.plan.program_records import COUNTER_WORDS, NEXT, WAIT_COUNT
from tvm_tile.plan.records import SIGNAL
from tvm_tile.plan.rprogram import Bounds, Control
from tvm_tile.stages.forced import Forced

pytestmark = pytest.mark.bank(10)

RUNS = 12  # on a GPU
_WORDS = 64  # of a record of the model below
SMALL = replace(find_device("nvidia/h200"), multi_processor_count=3)


class Stack(Linear):
    """A recurrence of two layers over rows, of any number of iterations."""

    def forward(self, h: Tensor, g: Tensor, xs: Tensor) -> Any:
        def step(state: Any, x: Tensor) -> Any:
            h, g = state
            h = torch.tanh(self.one(h) + x)
            g = torch.tanh(self.other(g) + h)
            return (h, g), g + 0

        return scan(step, (h, g), xs)


class Wide(nn.Module):
    """A loop whose kernels have several blocks each, over rows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = nn.Linear(48, 48), nn.Linear(48, 48)

    def forward(self, h: Tensor, xs: Tensor) -> Any:
        def step(h: Tensor, x: Tensor) -> Any:
            g = torch.relu(self.one(h) - x)
            return torch.tanh(self.other(g)) + h * 0.5, (g * 2).exp()

        return scan(step, h, xs)


class Fibonacci(nn.Module):
    """Values that change places, until one of them is large."""

    def forward(self, limit: Tensor, a: Tensor) -> Any:
        def body(a: Tensor, b: Tensor) -> Any:
            return b.clone(), a + b

        return while_loop(lambda a, b: b.sum() < limit, body, (a, a + 1))


class Nested(nn.Module):
    """A loop of loops."""

    def forward(self, n: Tensor, x: Tensor) -> Any:
        def outer(i: Tensor, x: Tensor) -> Any:
            def inner(j: Tensor, x: Tensor) -> Any:
                return j + 1, x * 1.5 + 1

            _, x = while_loop(lambda j, x: j < n, inner, (torch.zeros_like(n), x))
            return i + 1, x

        return while_loop(lambda i, x: i < n, outer, (torch.zeros_like(n), x))[1]


def _compare(
    make: Callable[[], nn.Module], inputs: Callable[[int], tuple[Any, ...]], folder: Path
) -> int:
    """Run a module's kernels on several inputs; how many they are."""
    module = make().eval()
    model = looping(module, inputs(1), SMALL)
    assert model.made
    run = Emulation(model, folder)
    for number in range(4):
        own = inputs(number)
        found = run(*(value.numpy() for value in own), seed=number)
        for one, other in zip(found, in_float64(module, own), strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-5)
    return len(model.made)


@pytest.mark.parametrize(
    "name",
    [
        "while",
        "scans",
        "scan along another axis",
        "nested whiles",
        "branch in while",
        "scan of loops",
        "maps",
        "nested branches",
        "branches of weights",
    ],
)
def test_loops_of_pytorch(name: str, tmp_path: Path) -> None:
    _compare(*CASES[name], tmp_path)


@pytest.mark.parametrize("trips", [300, 301])
def test_odd_and_even_numbers_of_iterations(trips: int, tmp_path: Path) -> None:
    def inputs(number: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(number)
        return tuple(
            torch.randn(shape, generator=generator) for shape in ((1, 8), (1, 8), (trips, 1, 8))
        )

    _compare(Stack, inputs, tmp_path)


def test_weights_stay_from_iteration_to_iteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recurrence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.w, self.u = (nn.Parameter(torch.randn(64, 64) * 0.1) for _ in range(2))

        def forward(self, h: Tensor, xs: Tensor) -> Any:
            def step(h: Tensor, x: Tensor) -> Any:
                h = torch.tanh(h @ self.w + x @ self.u)
                return h, h * 2

            return scan(step, h, xs)

    def inputs(number: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(number)
        shapes = (1, 64), (201, 1, 64)
        return tuple(torch.randn(shape, generator=generator) for shape in shapes)

    monkeypatch.setattr(plan_flow, "coschedule", weights_stay)
    _compare(Recurrence, inputs, tmp_path)


def test_a_loop_goes_on_with_what_another_one_made(tmp_path: Path) -> None:
    class Twice(Linear):
        def forward(self, limit: Tensor, x: Tensor) -> Any:
            def once(x: Tensor, limit: Tensor) -> Tensor:
                start = torch.zeros_like(limit)
                _, x = while_loop(
                    lambda i, x: i < limit,
                    lambda i, x: (i + 1, torch.tanh(self.one(x))),
                    (start, x),
                )
                return x

            return once(once(x * 1, limit) + 0, limit + 1)

    _compare(Twice, lambda number: (torch.tensor(number), torch.randn(2, 8)), tmp_path)


def test_values_that_change_places(tmp_path: Path) -> None:
    _compare(Fibonacci, lambda number: (torch.tensor(10.0**number), torch.ones(5)), tmp_path)


@pytest.mark.parametrize("most", [4, 5])
def test_loops_that_go_on_are_ended(most: int, tmp_path: Path) -> None:
    """A loop of the bound's iterations is right, one more is an error, the next call right."""

    class Counts(Linear):
        def forward(self, limit: Tensor, x: Tensor) -> Any:
            def body(i: Tensor, x: Tensor) -> Any:
                return i + 1, torch.tanh(self.one(x))

            start = torch.zeros_like(limit)
            _, first = while_loop(lambda i, x: i < limit, body, (start, x))
            _, second = while_loop(lambda i, x: i < limit - 1, body, (start + 0, first))
            return first, second

    module, x = Counts().eval(), torch.randn(2, 8)
    model = looping(module, (torch.tensor(3), x), SMALL, Bounds(most))
    run = Emulation(model, tmp_path)
    for count in (most, most + 1, most - 1, most + 2, 100, most):
        own = torch.tensor(count), x
        if count > most:
            with pytest.raises(BoundError, match=f"after {most} iterations(.|\n)*Bounds.it"):
                run(*(value.numpy() for value in own), seed=count)
            continue
        found = run(*(value.numpy() for value in own), seed=count)
        for one, other in zip(found, in_float64(module, own), strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=2e-5, atol=2e-5)


def test_a_loop_that_is_entered_again_is_counted_from_its_start(tmp_path: Path) -> None:
    module, x = Nested().eval(), torch.zeros(4)
    run = Emulation(looping(module, (torch.tensor(3), x), SMALL, Bounds(5)), tmp_path)
    (found,) = run(np.array(5), x.numpy())
    np.testing.assert_allclose(found, in_float64(module, (torch.tensor(5), x))[0].numpy())


@pytest.mark.parametrize("name", ["blockdrop", "skipnet"])
def test_a_network_of_branches_is_one_kernel(name: str, tmp_path: Path) -> None:
    """What is between branches, and what is ahead of the first, too, where that is faster."""

    def make() -> nn.Module:
        torch.manual_seed(3)
        if name == "blockdrop":
            network: nn.Module = BlockDrop(4, 1, 5)
        else:
            network = SkipNet(4, (2, 1), 3, 5)
        found = looped(network)
        assert found is not None
        return found

    def images(number: int) -> tuple[Any, ...]:
        return (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(number)),)

    assert _compare(make, images, tmp_path) == 1


def test_waits_that_are_left_out_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the waits of all rTasks of an operator, or of a decision, some order goes wrong."""
    monkeypatch.setattr(plan_flow, "coschedule", scattered)
    module, own = Wide().eval(), (torch.randn(1, 48), torch.randn(70, 1, 48))
    model = looping(module, own, SMALL)
    expected = in_float64(module, own)
    noticed: dict[int, bool] = {}
    for counter, operator in enumerate(model.made[0].operators):
        if operator.name.startswith("carry"):
            continue  # first values are there: their copies wait for nothing

        def without(records: np.ndarray, counter: int = counter) -> None:
            rows = records.reshape(-1, _WORDS)
            assert (rows[:, NEXT] <= len(rows)).all()
            own = rows[:, SIGNAL] == counter * COUNTER_WORDS
            rows[own, WAIT_COUNT] = 0

        run = Emulation(model, tmp_path, without)
        noticed[counter] = any(_goes_wrong(run, own, expected, seed) for seed in range(8))
    assert len(noticed) > 8
    assert sum(noticed.values()) >= 0.75 * len(noticed), noticed


def _goes_wrong(run: Emulation, inputs: tuple[Any, ...], expected: list[Any], seed: int) -> bool:
    """Whether a run is stuck, or wrong, or ends its process: rows may be written anywhere."""

    def check() -> None:
        faulthandler.disable()
        found = run(*(value.numpy() for value in inputs), seed=seed)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), 2e-5, 2e-5)
        os._exit(0)

    child = multiprocessing.get_context("fork").Process(target=check)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the threads that others have started are not used
        child.start()
    child.join(60)
    child.kill()
    return child.exitcode != 0


def test_what_no_persistent_kernel_can_take_in_stays_on_the_host() -> None:
    class Sorts(nn.Module):
        def forward(self, n: Tensor, x: Tensor) -> Any:
            def body(i: Tensor, x: Tensor) -> Any:
                return i + 1, torch.sort(x * 1.5 - i)[0]

            return while_loop(lambda i, x: i < n, body, (torch.zeros_like(n), x))

    inputs = torch.tensor(3), torch.randn(5000)
    model = compile_model(exported(Sorts(), inputs), "nvidia/h200", control="kernel")
    reasons = [left.reason for left in model.report.left_apart]
    assert any("stays on the host" in reason for reason in reasons)
    assert not model.report.plans


@pytest.mark.parametrize("control", get_args(Control))
def test_options_say_where_loops_run(control: Control) -> None:
    def inputs(trips: int) -> tuple[Any, ...]:
        return torch.randn(1, 8), torch.randn(1, 8), torch.randn(trips, 1, 8)

    model = compile_model(exported(Stack(), inputs(200)), "nvidia/h200", control=control)
    names = [plan.name for plan in model.report.plans]
    assert any(name.startswith("scan") for name in names) == (control != "host")


def test_fields_of_tuples_from_outside_are_used_behind_a_kernel_too() -> None:
    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Any:
            values, places = torch.sort(x)  # which no persistent kernel takes in
            made = torch.cond(values.sum() > 0, lambda v: v * 2 + 1, torch.tanh, (values,))
            return made, values, places

    program = exported(Sorted(), (torch.randn(5000),))
    model = compile_model(program, "nvidia/h200", control="kernel")
    assert any(plan.program is not None for plan in model.report.plans)


def test_a_branch_that_makes_a_tuple_is_compiled_for_a_gpu() -> None:
    make, draw = CASES["nested branches"]
    model = compile_model(exported(make().eval(), draw(1)), "nvidia/h200", control="host")
    assert len(model.report.kernels) > 10


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("control", ["host", "kernel"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_on_a_gpu_in_any_number_of_iterations(name: str, control: Control) -> None:
    """More calls than graphs take, and once more the same ones, to the bit."""
    make, draw = CASES[name]
    module = make().eval()
    model = compile_model(exported(module, draw(1)), "auto", control=control)
    for number in range(RUNS):
        given = draw(number % 5)
        found = _tensors(model(*(value.cuda() for value in given)))
        again = _tensors(model(*(value.cuda() for value in given)))
        for one, other, wanted in zip(found, again, in_float64(module, given), strict=True):
            assert torch.equal(one, other)
            torch.testing.assert_close(one.cpu(), wanted, rtol=1e-4, atol=1e-4, check_dtype=False)


def _tensors(found: Any) -> list[Tensor]:
    leaves = pytree.tree_leaves(found)
    return [torch.as_tensor(leaf).clone() for leaf in leaves]


def test_another_place_is_refused() -> None:
    with pytest.raises(OptionError, match="host"):
        Forced(control="device")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="co-scheduled"):
        Forced(control="kernel", coschedule=False)


def test_devices_without_persistent_kernels_say_so() -> None:
    inputs = tuple(torch.randn(shape) for shape in ((1, 8), (1, 8), (200, 1, 8)))
    model = compile_model(exported(Stack(), inputs), "emulated", control="kernel")
    assert "loops stay on the host" in model.explain("all")


def compile_model(model: Any, device: str, **options: Any) -> tvm_tile.CompiledModel:
    return tvm_tile.compile(model, device, options=Forced(cache=False, **options))
