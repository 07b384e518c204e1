"""CUDA graphs that read weights, on a GPU: they compute what PyTorch does, whatever was changed."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import tvm
from torch import Tensor, nn
from weight_changes import UNUSUAL_WEIGHTS, WEIGHT_CHANGES, linear_of

from tvm_tile.torch import GraphReport
from tvm_tile.torch.backend import compiled
from tvm_tile.torch.options import BackendOptions

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(
        not (tvm.cuda(0).exist and torch.cuda.is_available()),
        reason="needs an NVIDIA GPU, and a PyTorch that is built for it",
    ),
]

WIDTH = 64


@pytest.fixture(autouse=True)
def compiled_anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Deep(nn.Module):
    """Enough kernels in a row for a graph, a buffer that is written, and a tied weight."""

    def __init__(self, linear: Callable[[], nn.Module] = lambda: nn.Linear(WIDTH, WIDTH)) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.linear = linear()
        self.register_buffer("state", torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.softmax(self.first(x) + self.state, -1)
        x = torch.softmax(self.linear(x), -1) @ self.first.weight
        self.state.mul_(0.5).add_(x.detach().mean(0))
        return self.last(torch.relu(x)) * 2


def backend(reports: list[GraphReport]) -> Callable[..., Any]:
    options = BackendOptions.of({"cache": False})
    return lambda graph, inputs: compiled(graph, inputs, options, reports.append)


def assert_same_call(run: Any, ours: nn.Module, theirs: nn.Module) -> None:
    x = torch.randn(8, WIDTH, device="cuda", dtype=theirs.first.weight.dtype)
    tolerance = 1e-2 if x.dtype == torch.float16 else 1e-4
    for own, wanted in ((run(x), theirs(x)), (ours.state, theirs.state)):
        # PyTorch rounds each step to half precision, whose error is one of the largest elements.
        room = tolerance * max(1.0, float(wanted.abs().max()))
        torch.testing.assert_close(own, wanted, rtol=tolerance, atol=room)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_between_50_calls(seed: int, dtype: torch.dtype) -> None:
    rng = random.Random(seed)
    torch.backends.cuda.matmul.allow_tf32 = False
    reports: list[GraphReport] = []
    ours = [Deep().to("cuda", dtype)]
    theirs = [copy.deepcopy(ours[0])]
    runs = [torch.compile(ours[0], backend=backend(reports))]
    changes = list(WEIGHT_CHANGES.values())
    for number in range(50):
        at = rng.randrange(len(runs))
        with torch.no_grad():
            for _ in range(rng.choice((1, 1, 2))):
                assert_same_call(runs[at], ours[at], theirs[at])
        if rng.random() < 0.7:
            change = rng.choice(changes)
            for model in (ours[at], theirs[at]):
                change(model)
                model.to(dtype)  # after a conversion to double precision and back
                for parameter in model.parameters():
                    parameter.data.clamp_(-1, 1)
            spoiled = torch.full((1 << 20,), torch.nan, device="cuda")  # of what was given back
            del spoiled
        if number % 20 == 10:
            runs.append(copy.deepcopy(runs[at]))
            ours.append(runs[-1]._orig_mod)
            theirs.append(copy.deepcopy(theirs[at]))
    assert all(report.parts for report in reports)


@pytest.mark.parametrize("name", UNUSUAL_WEIGHTS)
@torch.no_grad()
def test_weights_that_kernels_cannot_read_where_they_are(name: str) -> None:
    def linear() -> nn.Linear:
        made = linear_of(UNUSUAL_WEIGHTS[name])
        made.weight.data = made.weight.data.cuda()
        return made

    torch.backends.cuda.matmul.allow_tf32 = False
    layers = [nn.Linear(5, 5).cuda(), linear(), nn.Linear(5, 5).cuda()]
    layers[1].bias.data = layers[1].bias.data.cuda()

    def model(x: Tensor) -> Tensor:
        for layer in layers:
            x = torch.softmax(layer(x), -1)
        return x

    run = torch.compile(model, backend=backend([]))
    for _ in range(4):
        x = torch.randn(4, 5, device="cuda")
        torch.testing.assert_close(run(x), model(x))
        layers[1].weight.data.mul_(1.5)


def test_training_reads_the_weights_of_each_step() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False
    reports: list[GraphReport] = []
    ours = Deep().cuda()
    theirs = copy.deepcopy(ours)
    run = torch.compile(ours, backend=backend(reports))
    for step in range(10):
        x = torch.randn(8, WIDTH, device="cuda")
        for model, call in ((theirs, theirs), (ours, run)):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            call(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 4:
                WEIGHT_CHANGES["loaded by assignment"](model)
    for one, other in zip(ours.state_dict().values(), theirs.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_memory_of_weights_is_given_back() -> None:
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4))).cuda()
    run = torch.compile(model, backend=backend([]))
    x = torch.randn(8, 2048, device="cuda")
    run(x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    model.cpu()
    assert torch.cuda.memory_allocated() <= before - 4 * 2048 * 2048 * 4
