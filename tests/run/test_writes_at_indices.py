"""PyTorch's writes at indices are kernels of ours, and compute what PyTorch does."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from cuda_on_cpu import compile_for_cuda
from precompiled import COMPILER
from torch import Tensor, nn

import tvm_tile


class Writes(nn.Module):
    """Extremes and means of updates with and without what was there, copies, and state."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(64, 32, dtype=dtype))

    def forward(self, x: Tensor, at: Tensor, updates: Tensor, rows: Tensor) -> list[Tensor]:
        how = [(name, own) for name in ("amax", "amin", "mean", "prod") for own in (True, False)]
        joined = [x.scatter_reduce(0, at, updates, name, include_self=own) for name, own in how]
        self.kept.index_copy_(0, rows, updates[:64])
        copied = x.index_copy(0, rows, updates[:64])
        chosen = torch.where(rows[:, None] > 30, updates[:64], -updates[:64])
        return [*joined, copied, self.kept * 2, chosen]


def inputs(dtype: torch.dtype) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    x, updates = (torch.randn(n, 32, generator=generator).to(dtype) for n in (100, 80))
    at = torch.randint(0, 100, (80, 32), generator=generator)
    updates[3, :8], x[at[4, 9], 9], updates[5, 0] = torch.nan, torch.nan, torch.inf
    updates[6], x[10:20, :5] = -0.0, -0.0
    return x, at, updates, torch.randperm(64, generator=generator)


@pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
@torch.no_grad()
def test_values() -> None:
    given = inputs(torch.float32)
    module = Writes(torch.float32)
    model = tvm_tile.compile(module, "emulated", example_inputs=given)
    assert model.report.fallbacks == ()
    wide = (value.double() if value.is_floating_point() else value for value in given)
    for found, expected in zip(model(*given), module.double()(*wide), strict=True):
        result = torch.as_tensor(found).double()
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5, equal_nan=True)


class Means(nn.Module):
    def forward(self, x: Tensor, at: Tensor, updates: Tensor) -> list[Tensor]:
        how = {"dim": 0, "index": at, "src": updates, "reduce": "mean"}
        return [x.scatter_reduce(**how, include_self=own) for own in (True, False)]


@pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32], ids=str)
def test_sums_of_means_wrap(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
    x, updates = (
        torch.randint(least, most, (n, 6), generator=generator, dtype=dtype) for n in (4, 20)
    )
    given = x, torch.randint(0, 4, (20, 6), generator=generator), updates
    model = tvm_tile.compile(Means(), "emulated", example_inputs=given)
    for found, expected in zip(model(*given), Means()(*given), strict=True):
        assert torch.equal(torch.as_tensor(found), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_kernels(dtype: torch.dtype) -> None:
    model = tvm_tile.compile(Writes(dtype), "nvidia/a100", example_inputs=inputs(dtype))
    assert model.report.fallbacks == ()


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_truths_in_the_text_for_cuda(tmp_path: Path) -> None:
    """Blocks bring truths to shared memory: of vectors of them TVM would write two bytes each."""

    class Truths(nn.Module):
        def forward(self, x: Tensor, at: Tensor, updates: Tensor) -> Tensor:
            return x.scatter_add(0, at, updates)

    generator = torch.Generator().manual_seed(0)
    x, updates = (torch.rand(10, n, generator=generator) < 0.2 for n in (5, 2))
    at = torch.randint(0, 10, (10, 2), generator=generator)
    given = x, at, updates
    model = compile_for_cuda(torch.export.export(Truths(), given), "nvidia/h200", tmp_path)
    assert torch.equal(torch.as_tensor(model(*given)), Truths()(*given))
