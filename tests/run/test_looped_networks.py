"""Cocktailer's networks at full size, their loops, branches and recursion in persistent kernels."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

import tvm_tile
from bench.inputs import draw, reference, untouched
from bench.protocol import tensors
from bench.suites import control_flow
from bench.systems.loops import with_loops
from tvm_tile.stages.forced import Forced

RUNS = 1000


@pytest.mark.cuda
@pytest.mark.skipif(not tvm.cuda(0).exist, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", ["lstm", "nasrnn", "attention", "seq2seq", "blockdrop", "rae"])
def test_a_thousand_runs_are_right_and_the_same(name: str) -> None:
    workload = next(w for w in control_flow.workloads() if w.name == name and w.batch in (1, None))
    case = control_flow.case(workload)
    options = Forced(control="kernel", cache=False)
    module = with_loops(case).module
    model = tvm_tile.compile(module, "auto", example_inputs=untouched(case), options=options)
    assert any(plan.program is not None for plan in model.report.plans)
    inputs = draw(case, "cuda", 1)
    wanted, _ = reference(case, inputs)
    first = [value.clone() for value in tensors(model(*inputs))]
    for one, other in zip(first, wanted, strict=True):
        error = (one.double() - other.double()).norm() / other.double().norm()
        assert error.item() < 1e-5
    for _ in range(RUNS):
        for one, other in zip(tensors(model(*inputs)), first, strict=True):
            np.testing.assert_array_equal(one.cpu(), other.cpu())
