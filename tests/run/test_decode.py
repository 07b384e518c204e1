"""Attention of few queries on the emulated device: next to TVM's CPU build, and as PyTorch has it
in float64, with caches that are written in place."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from decode_cases import DECODE_CASES
from joined import joined_function
from kernels import written_errors

import tvm_tile
from tvm_tile.device.detect import resolve_device
from tvm_tile.graph.extract import extract
from tvm_tile.schedule import Task
from tvm_tile.schedule.decode import schedule_decode

pytestmark = pytest.mark.bank(6)

GPU = tvm.cuda(0).exist
cuda = [pytest.mark.cuda, pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")]
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")
HALVES = "float16"  # which PoCL has not
# Launches take so long on it that the fewest kernels are the best, which is those of attention.
FEW_LAUNCHES = replace(resolve_device("emulated"), launch_latency=1e-3)
LIMITS = {"float32": 1e-4, "float16": 8e-3, "bfloat16": 3e-2}
RUNS = [
    pytest.param(number, device, marks=marks, id=f"{case.name} {device}")
    for number, case in enumerate(DECODE_CASES)
    for device, marks in (("emulated", emulated), ("auto", cuda))
    if device == "auto" or case.inputs[0].dtype != HALVES
]


@pytest.mark.parametrize(("number", "device"), RUNS)
def test_tiles_compute_what_the_cpu_does(number: int, device: str) -> None:
    """The best tile, the last one, and one in between; on the CPU one of the three."""
    case, target = DECODE_CASES[number], resolve_device(device)
    func = joined_function(case, target, schedule_decode)
    graph = extract(func)
    assert graph is not None
    choices = schedule_decode(Task(func, graph, target), 1000)
    places = [*{0, len(choices) // 2, len(choices) - 1}]
    some = [choices[place] for place in places]
    if device == "emulated":
        some = [some[number % len(some)]]
    written = [item for item in (choice() for choice in some) if item is not None]
    assert len(written) == len(some)
    errors = written_errors(func, written, target)
    limit = LIMITS[case.inputs[0].dtype]
    named = zip(written, errors, strict=True)
    assert [(item.tile, error) for item, error in named if not error <= limit] == []


class _Masked(torch.nn.Module):
    """Softmax, or PyTorch's that gives rows without a key zeros, over keys of shared heads."""

    def __init__(self, *, is_safe: bool) -> None:
        super().__init__()
        self.is_safe = is_safe

    def forward(self, q: Any, k: Any, v: Any, keep: Any) -> Any:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        if self.is_safe:
            scaled = torch.nn.functional.scaled_dot_product_attention
            return scaled(q, k, v, attn_mask=keep)
        scores = (q @ k.transpose(2, 3)).masked_fill(~keep, -math.inf)
        return torch.softmax(scores, -1) @ v


@emulated
@pytest.mark.parametrize("is_safe", [True, False])
def test_rows_without_a_key_are_as_in_pytorch(is_safe: bool) -> None:
    """Zeros, or no numbers; some rows of a group have keys, others have none, or only others'."""
    rng = torch.Generator().manual_seed(1)
    shapes = ((2, 4, 3, 16), (2, 2, 70, 16), (2, 2, 70, 16))
    q, k, v = (torch.randn(shape, generator=rng) for shape in shapes)
    keep = torch.rand((2, 1, 3, 70), generator=rng) > 0.5
    keep[0, :, 1], keep[1, :, 0], keep[1, :, 1, 3:] = False, False, False
    model = _Masked(is_safe=is_safe)
    compiled = tvm_tile.compile(torch.export.export(model, (q, k, v, keep)), device=FEW_LAUNCHES)
    (kernel,) = compiled.report.kernels
    assert kernel.rule in ("decode", "attention")  # both read keys that heads share
    got = compiled(*(x.numpy() for x in (q, k, v, keep)))
    wanted = model(q.double(), k.double(), v.double(), keep)
    np.testing.assert_allclose(got, wanted.numpy(), rtol=2e-5, atol=2e-6)


class _Sunk(torch.nn.Module):
    """Attention with sinks as GPT-OSS has it; its reference has them as they are defined."""

    def forward(self, q: Any, k: Any, v: Any, mask: Any, sinks: Any) -> Any:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q @ k.transpose(2, 3) * 0.3 + mask
        spread = sinks.reshape(1, -1, 1, 1).expand(len(q), -1, q.shape[2], -1)
        both = torch.cat([scores, spread], -1)
        both = both - both.max(-1, keepdim=True).values
        return torch.softmax(both, -1)[..., :-1] @ v

    @staticmethod
    def wanted(q: Any, k: Any, v: Any, mask: Any, sinks: Any) -> Any:
        q, k, v, mask, sinks = (np.asarray(x, "float64") for x in (q, k, v, mask, sinks))
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = np.einsum("bhid,bhkd->bhik", q, k) * 0.3 + mask
        sinks = sinks.reshape(1, -1, 1, 1)
        most = np.maximum(scores.max(-1, keepdims=True), sinks)
        weights = np.exp(scores - most)
        total = weights.sum(-1, keepdims=True) + np.exp(sinks - most)
        return np.einsum("bhik,bhkn->bhin", weights / total, v)


@emulated
@pytest.mark.parametrize("seed", range(12))
def test_sinks_of_all_kinds(seed: int) -> None:
    """High ones, low ones and none; rows without a key, hidden by minus infinity or a number."""
    rng = random.Random(seed)
    rows, keys = (rng.randint(1, 5), rng.randint(2, 200)) if seed % 2 else (rng.randint(30, 70), 90)
    groups, each, size = rng.randint(1, 3), rng.randint(1, 4), 4 * rng.randint(2, 9)
    draw = torch.Generator().manual_seed(seed)
    shapes = ((2, groups * each, rows, size), *[(2, groups, keys, size)] * 2)
    q, k, v = (torch.randn(shape, generator=draw) for shape in shapes)
    seen = torch.rand((2, 1, rows, keys), generator=draw) > 0.5
    seen[0, :, rows // 2] = False
    lowest = rng.choice([-math.inf, torch.finfo(torch.float32).min])
    mask = torch.where(seen, 0.0, lowest)
    kinds = torch.tensor([-math.inf, -90.0, -3.0, 0.0, 2.0, 40.0, 300.0])
    sinks = kinds[torch.randint(0 if math.isfinite(lowest) else 1, 7, (groups * each,))]
    given = q, k, v, mask, sinks
    compiled = tvm_tile.compile(torch.export.export(_Sunk(), given), device=FEW_LAUNCHES)
    (kernel,) = compiled.report.kernels
    assert kernel.rule in ("decode", "attention")
    got = compiled(*(x.numpy() for x in given))
    np.testing.assert_allclose(got, _Sunk.wanted(*given), rtol=2e-5, atol=2e-6)


@emulated
@pytest.mark.parametrize("rows", [2, 40])
def test_sinks_that_are_no_numbers_are_as_in_pytorch(rows: int) -> None:
    """Nor is a row without a key whose sink is none; without one it is as ever."""
    draw = torch.Generator().manual_seed(rows)
    shapes = ((1, 4, rows, 16), (1, 2, 90, 16), (1, 2, 90, 16))
    q, k, v = (torch.randn(shape, generator=draw) for shape in shapes)
    mask = torch.zeros(1, 1, rows, 90)
    mask[:, :, 1] = -math.inf
    sinks = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    given = q, k, v, mask, sinks
    compiled = tvm_tile.compile(torch.export.export(_Sunk(), given), device=FEW_LAUNCHES)
    got = compiled(*(x.numpy() for x in given))
    wanted = _Sunk()(*(x.double() for x in given)).numpy()
    assert np.isnan(wanted).any(axis=(0, 2, 3)).tolist() == [True, True, True, False]
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


class _Step(torch.nn.Module):
    """A decoder's step: rotated queries and keys, a cache written in place, shared heads."""

    def __init__(self, batch: int, capacity: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project = torch.nn.Linear(24, 8 * 16)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(batch, 2, capacity, 16))
        self.register_buffer("places", torch.arange(capacity), persistent=False)

    def forward(self, x: Any, positions: Any) -> Any:
        batch, rows, _ = x.shape
        heads = self.project(x).view(batch, rows, 8, 16).transpose(1, 2)
        q, k, v = heads[:, :4], heads[:, 4:6], heads[:, 6:]
        angles = positions[:, None] * torch.arange(1, 9) * 0.1
        cos, sin = (torch.cat([part, part], -1) for part in (angles.cos(), angles.sin()))
        q, k = (y * cos + torch.cat([-y[..., 8:], y[..., :8]], -1) * sin for y in (q, k))
        self.keys.index_copy_(2, positions, k)
        self.values.index_copy_(2, positions, v)
        shared = [x.repeat_interleave(2, 1) for x in (self.keys, self.values)]
        keep = (self.places <= positions[:, None])[None, None]
        scaled = torch.nn.functional.scaled_dot_product_attention
        out = scaled(q * 0.5, *shared, attn_mask=keep, scale=1.0)
        return out.transpose(1, 2).reshape(batch, rows, 64)


@emulated
@pytest.mark.parametrize(("batch", "rows"), [(1, 1), (2, 1), (1, 3)])
def test_a_cache_at_every_length_up_to_its_end(batch: int, rows: int) -> None:
    """From the first position on; the rotation of queries is within attention's kernel."""
    capacity = 39
    model = _Step(batch, capacity)
    x = torch.randn(batch, rows, 24)
    positions = torch.arange(rows)
    program = torch.export.export(model, (x, positions))
    compiled = tvm_tile.compile(program, device=FEW_LAUNCHES)
    (own,) = [kernel for kernel in compiled.report.kernels if kernel.rule == "decode"]
    assert not [k for k in compiled.report.kernels if k.fallback]
    assert own.name
    exact = _Step(batch, capacity).double()
    exact.load_state_dict(model.state_dict())
    for start in range(0, capacity, rows):
        x = torch.randn(batch, rows, 24)
        positions = torch.arange(start, start + rows)
        got = compiled(x.numpy(), positions.numpy())
        wanted = exact(x.double(), positions).detach().numpy()
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=str(start))


class _QueriesOfTheCache(torch.nn.Module):
    """Queries are made of what the cache was before it is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.randn(1, 2, 50, 16, generator=torch.Generator()))

    def forward(self, x: Any, position: Any) -> Any:
        q = torch.tanh(self.keys[:, :, :1] * 2.0 + 1.0)
        self.keys.index_copy_(2, position, x)
        return torch.softmax(q @ self.keys.transpose(2, 3), -1) @ self.keys


@emulated
def test_what_is_written_over_is_read_before() -> None:
    model, x, position = _QueriesOfTheCache(), torch.randn(1, 2, 1, 16), torch.zeros(1).long()
    compiled = tvm_tile.compile(torch.export.export(model, (x, position)), device=FEW_LAUNCHES)
    assert "decode" in {kernel.rule for kernel in compiled.report.kernels}
    assert compiled.report.kernels
    for _ in range(2):
        got = compiled(x.numpy(), position.numpy())
        np.testing.assert_allclose(got, model(x, position).numpy(), rtol=1e-4, atol=1e-5)
        x = torch.randn(1, 2, 1, 16)
