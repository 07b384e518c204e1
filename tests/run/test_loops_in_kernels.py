"""Loops inside persistent kernels: run from their CUDA text, all blocks at once, in many orders."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loop_runs import looping
from persistent_runs import Emulation
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch_control_cases import CASES, Linear

from tvm_tile.device import find_device

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


class Fibonacci(nn.Module):
    """Values that change places, until one of them is large."""

    def forward(self, limit: Tensor, a: Tensor) -> Any:
        def body(a: Tensor, b: Tensor) -> Any:
            return b.clone(), a + b

        return while_loop(lambda a, b: b.sum() < limit, body, (a, a + 1))


def _float64(module: nn.Module, inputs: tuple[Any, ...]) -> list[np.ndarray]:
    def wide(value: Any) -> Any:
        return value.double() if value.is_floating_point() else value

    result = module.double()(*map(wide, inputs))
    module.float()
    flat, _ = torch.utils._pytree.tree_flatten(result)
    return [value.numpy() for value in flat]


def _compare(
    make: Callable[[], nn.Module], inputs: Callable[[int], tuple[Any, ...]], folder: Path
) -> None:
    module = make().eval()
    model = looping(module, inputs(1), SMALL)
    assert model.made
    run = Emulation(model, folder)
    with torch.no_grad():
        for number in range(4):
            own = inputs(number)
            expected = _float64(module, own)
            found = run(*(value.numpy() for value in own), seed=number)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


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


def test_values_that_change_places(tmp_path: Path) -> None:
    _compare(Fibonacci, lambda number: (torch.tensor(10.0**number), torch.ones(5)), tmp_path)
