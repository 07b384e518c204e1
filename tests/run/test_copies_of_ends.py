"""Inputs and outputs that CUDA graphs reach through copies: on the CPU, by graphs that replay."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from fake_graphs import emulated_with_graphs, fake_graphs
from torch import Tensor, nn
from torch_backend_cases import drawn
from tvm import relax

import tvm_tile
from tvm_tile.compiling import schedule
from tvm_tile.passes.state import copy_ends
from tvm_tile.runtime import CompiledModel
from tvm_tile.stages.forced import Forced

pytestmark = [
    pytest.mark.bank(4),
    pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl"),
]


@pytest.fixture(autouse=True)
def graphs() -> Iterator[None]:
    with fake_graphs():
        yield


class Function(nn.Module):
    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self.run = run

    def forward(self, *args: Tensor) -> Any:
        return self.run(*args)


def compiled(run: Callable[..., Any], *args: Tensor) -> CompiledModel:
    options = Forced(weld=False, cache=False)
    return tvm_tile.compile(
        Function(run), emulated_with_graphs(), example_inputs=args, options=options
    )


def assert_same(model: CompiledModel, run: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    """Three calls: the first captures, and what it returned must not change afterwards."""
    calls = []
    for seed in range(3):
        args = [drawn(*shape, seed=10 * seed + i) for i, shape in enumerate(shapes)]
        calls.append((args, [t.clone() for t in args], model(*args)))
    for args, given, found in calls:
        torch.testing.assert_close(found, run(*given))
        torch.testing.assert_close(args, given, rtol=0, atol=0)


def copies(model: CompiledModel) -> int:
    return sum(k.calls for k in model.report.kernels if k.name.startswith("copy_of_end"))


def masked(x: Tensor, mask: Tensor) -> Tensor:
    for _ in range(4):
        x = torch.softmax(torch.softmax(x @ x + mask, -1) @ x, -1)
    return x


def kept(x: Tensor) -> tuple[Tensor, ...]:
    found = []
    for _ in range(4):
        x = torch.softmax(torch.softmax(x @ x, -1) @ x, -1)
        found.append(x)
    return tuple(found)


def test_a_mask_of_all_layers_is_read_once() -> None:
    shapes = (8, 8), (8, 8)
    model = compiled(masked, *(drawn(*shape) for shape in shapes))
    assert copies(model) >= 1
    assert model.report.launches is not None
    assert model.report.launches.graphs == 1
    assert "launches outside of CUDA graphs" in model.explain("all")
    assert_same(model, masked, *shapes)


def test_outputs_that_are_read_again_are_copied() -> None:
    model = compiled(kept, drawn(8, 8))
    assert copies(model) >= 3
    assert model.report.launches is not None
    assert model.report.launches.graphs == 1
    assert_same(model, kept, (8, 8))


def test_what_a_model_returns_as_it_got_it_is_left_alone() -> None:
    def run(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        y = masked(x, mask)
        return mask, y, mask.t(), y, x.reshape(4, 16)

    model = compiled(run, drawn(8, 8), drawn(8, 8))
    assert_same(model, run, (8, 8), (8, 8))


def test_without_graphs_nothing_is_copied() -> None:
    options = Forced(weld=False, cache=False, cuda_graph=False)
    args = drawn(8, 8), drawn(8, 8)
    model = tvm_tile.compile(
        Function(masked), emulated_with_graphs(), example_inputs=args, options=options
    )
    assert copies(model) == 0
    assert model.report.launches is None


OPERATORS: tuple[Callable[..., Tensor], ...] = (
    lambda a, b: a @ b,
    lambda a, b: torch.softmax(a + b, -1),
    lambda a, b: torch.relu(a) - b,
    lambda a, _: a.t(),
    lambda a, _: a.reshape(4, 4, 4).sum(1).repeat(2, 2)[:8, :8],
    lambda a, b: torch.softmax(a, 0) @ b.t(),
)


@pytest.mark.parametrize("seed", range(5))
def test_random_models(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    steps = [(rng.randrange(len(OPERATORS)), rng.random(), rng.random()) for _ in range(12)]
    picked = [rng.random() for _ in range(rng.randint(1, 5))]

    def run(*args: Tensor) -> Any:
        values = list(args)
        for operator, one, other in steps:
            a, b = values[int(one * len(values))], values[int(other * len(values))]
            made = OPERATORS[operator](a, b)
            values.append(torch.tanh(made) if operator == 0 else made)
        results = tuple(values[int(where * len(values))] for where in picked)
        return results if len(results) > 1 else results[0]

    if seed % 2:  # all that may be copied, however little it pays
        monkeypatch.setattr(copy_ends, "copied_ends", lambda _, sizes, __: frozenset(sizes))
    shapes = [(8, 8)] * rng.randint(1, 3)
    model = compiled(run, *(drawn(*shape) for shape in shapes))
    assert_same(model, run, *shapes)


def test_a_tuple_that_is_returned_as_it_is_made() -> None:
    builder = relax.BlockBuilder()
    x, mask = (relax.Var(name, relax.TensorType((8, 8), "float32")) for name in ("x", "mask"))
    with builder.function("main", [x, mask]):
        with builder.dataflow():
            y: Any = x
            for _ in range(4):
                z = builder.emit(relax.op.nn.softmax(relax.op.add(relax.op.matmul(y, y), mask)))
                y = builder.emit(relax.op.nn.softmax(relax.op.matmul(z, y)))
            found = builder.emit_output(relax.op.topk(y, k=3, ret_type="both"))
        builder.emit_func_output(found)
    options = Forced(weld=False, cache=False)
    model = tvm_tile.compile(builder.get(), emulated_with_graphs(), options=options)
    assert copies(model) >= 1

    def run(x: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        values, places = torch.topk(masked(x, mask), 3)
        return values, places.int()

    assert_same(model, run, (8, 8), (8, 8))


def test_a_schedule_shows_the_kernels_of_a_compilation() -> None:
    args = (torch.zeros(32, 32), torch.zeros(32, 32))
    options = Forced(cache=False, coschedule=False)
    device = emulated_with_graphs()
    model = tvm_tile.compile(Function(masked), device, example_inputs=args, options=options)
    assert copies(model)
    shown = schedule(Function(masked), device, example_inputs=args)
    assert set(shown) == {kernel.name for kernel in model.report.kernels}
