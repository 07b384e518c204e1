"""Persistent kernels that tell when each rTask ran: all have marks, copies take the time there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import tvm
from torch import nn

import tvm_tile
from bench.suites.networks.lstm import LastState, StackedLSTM
from tvm_tile import CompiledModel, Options, ProfileError
from tvm_tile.build.cuda import compile_cuda
from tvm_tile.build.marks import BEGIN, END, is_marked, stamping
from tvm_tile.plan.records import recorded_tasks

GPU = tvm.cuda(0).exist
NO_CACHE = Options(cache=False)


def recurrent(device: str, width: int, steps: int) -> CompiledModel:
    torch.manual_seed(0)
    module = LastState(StackedLSTM(2, width, width)).eval()
    example = (torch.zeros(steps, 1, width),)
    return tvm_tile.compile(module, device, example_inputs=example, options=NO_CACHE)


def test_marks_leave_nothing_in_machine_code_and_copies_build() -> None:
    model = recurrent("nvidia/h200", 64, 12)
    (kernel,) = (kernel for kernel in model.program.kernels if is_marked(kernel.source))
    (plan,) = model.report.plans
    assert kernel.name.startswith(plan.name)
    calls = [f"  tile_{what}(" for what in ("begin", "end")]
    lines = kernel.source.replace(BEGIN.strip(), "").replace(END.strip(), "").splitlines()
    bare = [line for line in lines if not line.lstrip().startswith(tuple(map(str.strip, calls)))]
    assert len(lines) - len(bare) == 2
    assert compile_cuda("\n".join(bare), model.program.arch) == kernel.binary
    copied = compile_cuda(stamping(kernel.source, 1 << 40), model.program.arch)
    assert copied != kernel.binary


def test_where_there_are_no_veus_a_time_line_of_them_is_refused() -> None:
    model = tvm_tile.compile(
        nn.ReLU(), "emulated", example_inputs=(torch.ones(4),), options=NO_CACHE
    )
    with pytest.raises(ProfileError, match="the model has none"):
        model.profile(np.ones(4, "float32"), veus=True)


@pytest.mark.cuda
@pytest.mark.skipif(not GPU, reason="needs an NVIDIA GPU")
def test_on_a_gpu_each_rtask_has_its_time_within_the_kernels() -> None:
    pytest.importorskip("cupti")
    model = recurrent("auto", 256, 24)
    x = tvm.runtime.tensor(np.ones((24, 1, 256), "float32"), tvm.cuda(0))
    expected = model(x).numpy()
    found = model.profile(x, runs=5, veus=True)
    np.testing.assert_array_equal(model(x).numpy(), expected)
    (times,) = found.veus
    (plan,) = model.report.plans
    tasks = [task for own in recorded_tasks(plan.operators, plan.plan) for task in own if task]
    assert len(times.tasks) == len(tasks)
    until = [0.0] * times.num_veus
    for task in times.tasks:
        assert until[task.veu] <= task.begin < task.end
        until[task.veu] = task.end
    (row,) = (kernel for kernel in found.kernels if kernel.name == plan.name)
    assert times.seconds == pytest.approx(row.seconds, rel=0.3)
    assert 0 < times.busy < 1
