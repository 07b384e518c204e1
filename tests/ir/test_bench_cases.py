"""The operator suites' cases: what they compute, say of themselves, and that they import."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tvm

from bench.suites import attention, conv, gemm, norm, ops
from bench.workload import Case, Workload
from tests.small_operators import KINDS, SMALL, small_case
from tvm_tile import find_device
from tvm_tile.frontend import import_model
from tvm_tile.graph.signature import Signature
from tvm_tile.stages.fusing import fuse

pytestmark = pytest.mark.bank(8)

torch = pytest.importorskip("torch")
flop_counter = pytest.importorskip("torch.utils.flop_counter")

SUITES = {suite.__name__.rpartition(".")[2]: suite for suite in (ops, gemm, conv, attention, norm)}
WINDOWED = ("conv", "depthwise", "pooling", "nchw", "nhwc")


def on_meta(case: Case) -> tuple[Any, ...]:
    """The case's inputs without memory."""
    return tuple(
        torch.empty(i.shape, dtype=getattr(torch, i.dtype), device="meta") for i in case.inputs
    )


def unread_rows(workload: Workload) -> int:
    """Rows of an image between its windows, where there are any, or below the last."""
    height, window, stride, pad = (workload.size(key) for key in ("H", "KH", "stride", "pad"))
    if stride > window:
        return height - ((height - window) // stride + 1) * window
    return max(0, (height + 2 * pad - window) % stride - pad)


def one_of_each_family() -> list[tuple[str, Workload]]:
    """A real workload of every suite and family, in half precision where it has that."""
    found: dict[tuple[str, str], Workload] = {}
    for name, suite in SUITES.items():
        for workload in suite.workloads():
            if workload.dtype == "float16" or (name, workload.family) not in found:
                found[name, workload.family] = workload
    return [(name, workload) for (name, _), workload in found.items()]


@pytest.mark.parametrize("name", SUITES)
def test_every_case_counts_its_traffic(name: str) -> None:
    for workload in SUITES[name].workloads():
        case = SUITES[name].case(workload)
        inputs = on_meta(case)
        output = case.module(*inputs)
        assert str(output.dtype) == f"torch.{workload.dtype}"
        assert not list(case.module.parameters())
        assert not case.module.training
        total = sum(t.numel() * t.element_size() for t in (*inputs, output))
        unread = unread_rows(workload) if workload.family in WINDOWED else 0
        row = inputs[0].numel() * inputs[0].element_size() // dict(workload.sizes).get("H", 1)
        assert case.bytes == total - unread * row


def test_every_product_counts_its_operations() -> None:
    for name in ("ops", "gemm", "conv", "attention"):
        for workload in SUITES[name].workloads():
            if workload.family in ("elementwise", "pooling", "reduce", "causal"):
                continue
            case = SUITES[name].case(workload)
            with flop_counter.FlopCounterMode(display=False) as counter:
                case.module(*on_meta(case))
            assert case.flops == counter.get_total_flops(), workload


def test_the_others_count_as_they_say() -> None:
    known = {"E0": 227598336, "P1": 86016 * 11 * 11 * 9, "R2": 516096 * 121}
    found = {w.name: ops.case(w).flops for w in ops.workloads() if w.name in known}
    assert found == known
    counts = {"softmax": 5, "rms_norm": 4}
    counts |= dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), 7)
    counts |= dict.fromkeys(("cumsum", "cumsum_of_columns", "argmax", "topk"), 1)
    for workload in norm.workloads():
        elements = workload.size("rows") * workload.size("length")
        assert norm.case(workload).flops == counts[workload.family] * elements
    causal = next(w for w in attention.workloads() if w.name == "causal_4096_64")
    assert attention.case(causal).flops == 4 * (4 * 16) * (4096 * 4097 // 2) * 64


def test_stride_two_with_a_single_element_skips_rows() -> None:
    workload = next(w for w in ops.workloads() if w.name == "P0")
    read, written = 128 * 168 * 42 * 83, 128 * 168 * 42 * 42
    assert ops.case(workload).bytes == 4 * (read + written)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_one_computes_what_numpy_does(kind: str) -> None:
    case = small_case(kind, "float64")
    arrays = [np.random.default_rng(0).standard_normal(i.shape) for i in case.inputs]
    output = case.module(*map(torch.from_numpy, arrays)).numpy()
    assert output.flags.c_contiguous
    np.testing.assert_allclose(output, KINDS[kind](*arrays), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if SMALL[kind][0] is attention])
def test_the_vendors_attention_is_the_plain_one(kind: str) -> None:
    suite, workload = SMALL[kind]
    case = small_case(kind, "float64")
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(i.shape, generator=generator, dtype=torch.float64) for i in case.inputs)
    vendor = suite.vendor_module(workload)
    torch.testing.assert_close(vendor(q, k, v), case.module(q, k, v))


@pytest.mark.parametrize(
    ("name", "workload"), one_of_each_family(), ids=lambda value: str(value).replace(" ", "-")
)
def test_a_real_one_is_imported_and_fused(name: str, workload: Workload) -> None:
    case = SUITES[name].case(workload)
    # Never touched, so these take no memory.
    example = tuple(torch.empty(i.shape, dtype=getattr(torch, i.dtype)) for i in case.inputs)
    imported = import_model(case.module, example_inputs=example)
    assert [(s.shape, s.dtype) for s in imported.inputs] == [
        (i.shape, i.dtype) for i in case.inputs
    ]
    shape = tuple(case.module(*on_meta(case)).shape)
    assert imported.outputs == (Signature("output0", shape, workload.dtype),)
    fused = fuse(imported.mod, find_device("nvidia/h200")).mod
    assert any(isinstance(function, tvm.tirx.PrimFunc) for _, function in fused.functions_items())


def test_sizes_can_be_replaced() -> None:
    workload = next(w for w in ops.workloads() if w.name == "M0")
    smaller = replace(workload, sizes=(("K", 4), ("M", 2), ("N", 3)))
    assert [i.shape for i in ops.case(smaller).inputs] == [(2, 4), (4, 3)]
