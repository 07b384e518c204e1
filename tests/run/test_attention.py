"""Attention on CUDA cores: tiles against TVM's CPU build, and what is no number against PyTorch."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from attention_cases import FLOATS
from chain_cases import CHAIN_CASES
from joined import joined_function
from kernels import written_errors

import tvm_tile
from tvm_tile.device.detect import resolve_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.attention import schedule_attention

pytestmark = pytest.mark.bank(10)

GPU = tvm.cuda(0).exist
cuda = [pytest.mark.cuda, pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")]
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
DEVICES = [pytest.param("emulated", marks=emulated), pytest.param("auto", marks=cuda)]
# Of halves the reference rounds scores and weights, the kernel neither.
LIMITS = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 3e-2}
HALVES = ("bfloat16", "causal_bfloat16")  # PoCL has no float16
CASES = (*FLOATS, *(entry for entry in CHAIN_CASES if entry.name in HALVES))
NAMES = [f"{entry.name} {entry.inputs[0].dtype}" for entry in CASES]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("number", range(len(CASES)), ids=NAMES)
def test_tiles_compute_what_the_cpu_does(number: int, device: str) -> None:
    """The best tile, and another ninth of all for each case; on the CPU one of the two."""
    entry, target = CASES[number], resolve_device(device)
    func = joined_function(entry, target, schedule_attention)
    graph = extract(func)
    assert graph is not None
    choices = schedule_attention(Task(func, graph, target), 1000)
    some = [choices[0], choices[len(choices) * (number % 8 + 1) // 9]]
    if device == "emulated":
        some = [some[number % 2]]
    written = [item for item in (choice() for choice in some) if item is not None]
    assert len(written) == len(some)
    errors = written_errors(func, written, target)
    limit = LIMITS[entry.inputs[0].dtype]
    named = zip(written, errors, strict=True)
    assert [(item.tile, error) for item, error in named if not error <= limit] == []


def _case_of(kind: str) -> tuple[torch.Tensor, ...]:
    """Queries, keys, values and a mask to add, some of which is no number."""
    rng = torch.Generator().manual_seed(3)
    sizes = ((2, 20, 12), (2, 70, 12), (2, 70, 16), (1, 20, 70))
    q, k, v, mask = (torch.randn(size, generator=rng) for size in sizes)
    mask = torch.where(mask > 0, 0.0, -math.inf)
    if kind == "rows without a key":
        mask[:, 3:6] = -math.inf
    elif kind == "no number in queries":
        q[0, 4] = math.nan
    elif kind == "no number in the last keys":
        k[1, 69, 2] = math.nan
        mask[:, :7] = 0
    elif kind == "infinite scores":
        q[0, 2], k[0, 30] = 1e20, 1e20
        mask[:, :, 30] = 0
    elif kind == "infinite values":
        v[0, 5, 3], v[1, 60, 1] = math.inf, -math.inf
    elif kind == "scores near the largest number":
        q, k = torch.full_like(q, 1.6e18), torch.full_like(k, 1.6e19)
    elif kind == "all at the lowest number":
        mask = torch.full_like(mask, torch.finfo(torch.float32).min)
    return q, k, v, mask


class _Attention(torch.nn.Module):
    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return torch.softmax(q @ k.transpose(1, 2) + mask, -1) @ v


@pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
@pytest.mark.parametrize(
    "kind",
    [
        "rows without a key",
        "no number in queries",
        "no number in the last keys",
        "infinite scores",
        "infinite values",
        "scores near the largest number",
        "all at the lowest number",
    ],
)
def test_what_is_no_number_is_as_in_pytorch(kind: str) -> None:
    given = _case_of(kind)
    model = _Attention()
    compiled = tvm_tile.compile(torch.export.export(model, given), device="emulated")
    assert {kernel.rule for kernel in compiled.report.kernels} == {"attention"}
    got = compiled(*(tensor.numpy() for tensor in given))
    np.testing.assert_allclose(got, model(*given).numpy(), rtol=2e-5, atol=2e-5)
