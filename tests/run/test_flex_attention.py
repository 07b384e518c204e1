"""PyTorch's FlexAttention, exported and compiled, beside PyTorch's own formula in float64."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import flex_cases
import pytest
import torch
from flex_cases import CASES, Flex, FlexCase
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch_backend_runs import assert_same, backend, leaves
from torch_control_cases import in_float64, wide

import tvm_tile
from tvm_tile.errors import UnsupportedOperatorError
from tvm_tile.torch import GraphReport

pytestmark = [pytest.mark.bank(4), pytest.mark.filterwarnings("ignore")]
emulated = pytest.mark.skipif(not find_spec("pyopencl"), reason="needs pyopencl")


def exported(module: torch.nn.Module, inputs: tuple[Any, ...]) -> torch.export.ExportedProgram:
    with torch.no_grad():
        return torch.export.export(module, inputs)


@emulated
@pytest.mark.parametrize("name", CASES)
def test_as_in_pytorch(name: str) -> None:
    case = CASES[name]
    module, inputs = case.make(), case.inputs()
    found = leaves(tvm_tile.compile(exported(module, inputs), "emulated")(*inputs))
    for one, other in zip(found, in_float64(module, inputs), strict=True):
        torch.testing.assert_close(wide(torch.as_tensor(one)), other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", CASES)
def test_scores_stay_in_the_kernel(name: str) -> None:
    case = CASES[name]
    program = exported(case.make(), case.inputs(torch.float16))
    kernels = tvm_tile.predict(program, "nvidia/h200").kernels
    attention = {"chain", "warp_attention"}
    is_one = len(kernels) == 1 and kernels[0].rule in attention
    assert is_one == case.is_one, [(kernel.name, kernel.rule) for kernel in kernels]


@emulated
def test_tables_alone_are_the_mask() -> None:
    """PyTorch's formula for the CPU ignores them, its kernels for GPUs do not."""
    mask = flex_cases.tables([1, 0], [[1, 0], [0, 1]])
    case = FlexCase(lambda: Flex(mask=mask))
    module, (q, k, v) = case.make(), case.inputs()
    found = tvm_tile.compile(exported(module, (q, k, v)), "emulated")(q, k, v)
    kept = scaled_dot_product_attention(q[:, :, :128], k[:, :, 128:], v[:, :, 128:])
    torch.testing.assert_close(torch.as_tensor(found)[:, :, :128], kept)
    assert not torch.as_tensor(found)[:, :, 128:].any()


@emulated
@pytest.mark.parametrize("name", ["documents", "alibi in groups", "biased", "logarithms"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_leaves_nothing_to_pytorch(name: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    reports: list[GraphReport] = []
    module, (q, k, v) = CASES[name].make(), CASES[name].inputs()
    q = q.transpose(1, 2).contiguous().transpose(1, 2)  # whose strides the result has
    run = torch.compile(module, backend=backend(reports.append), dynamic=dynamic)
    with torch.no_grad():
        assert_same(leaves(run(q, k, v)), leaves(module(q, k, v)))
    assert sum(report.compiled_operators for report in reports) > 0
    assert not any(report.eager for report in reports), reports


def test_within_a_branch_it_is_refused_by_name() -> None:
    class Branches(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            return torch.cond(q.sum() > 0, flex_attention, lambda q, k, v: q + v, (q, k, v))

    inputs = CASES["plain"].inputs()
    with pytest.raises(UnsupportedOperatorError, match="flex_attention within a branch"):
        tvm_tile.compile(exported(Branches(), inputs), "emulated")
