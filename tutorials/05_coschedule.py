"""Lesson 5: kernels too small for the device, side by side in one persistent kernel.

Run it with `python tutorials/05_coschedule.py`. It compiles for an H200 and needs no GPU; with an
H200 it also runs and times what it has compiled. All other times are predictions. With a folder as
its argument it writes its drawings there.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tvm_tile
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import ExecutionPlan, RKernel, ROperator
from tvm_tile.report.screen.gantt import gantt
from tvm_tile.stages.forced import Forced

DEVICE = tvm_tile.find_device("nvidia/h200")
HIDDEN, LAYERS, STEPS = 256, 3, 8

# 1. Rammer's words (Ma et al., OSDI 2020). A vEU, a virtual execution unit, is a thread block that
#    stays on its multiprocessor while the persistent kernel runs. An rOperator is a kernel as it
#    would be launched, a grid of blocks. An rTask is a few of these blocks, which one vEU runs. A
#    plan says which vEU runs which rTasks, in which step. Plans are data: let us make some.
#
#    A kernel of 16 blocks fills 16 of 132 multiprocessors, and its launch in a graph takes half a
#    microsecond besides. Four branches of three kernels each, then one that joins them:


def small(name: str, reads: tuple[int, ...], writes: int) -> ROperator:
    """16 blocks of 128 threads, 3 us each."""
    choice = RKernel(16, 128, 8192, 64, 3e-6, 1e-6)
    return ROperator(name, (choice,), reads, (writes,), 3e-6 + DEVICE.launch_latency)


branches = [
    small(f"branch {b}, {i}", (10 * b + i if i else 0,), 10 * b + i + 1)
    for b in range(4)
    for i in range(3)
]
block = (*branches, small("join", tuple(10 * b + 3 for b in range(4)), 100))
plan = coschedule(block, DEVICE)
assert plan is not None

apart = sum(operator.alone_seconds for operator in block)
print(f"Four branches, one by one: {apart * 1e6:.1f} us. In one kernel of {plan.num_veus} vEUs and")
print(f"{len(plan.steps)} steps: {plan.seconds * 1e6:.1f} us.")
for number, step in enumerate(plan.steps):
    names = sorted({block[placement.tasks.operator].name for placement in step.placements})
    print(f"  step {number}: {', '.join(names)}")
assert len(plan.steps) == 4  # as many as the longest branch and the join
assert plan.seconds < apart

# 2. Where do they run? Of each step, the first and the last vEU of each operator. Branches have
#    vEUs of their own, so that they run at the same time.


def places(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> None:
    """The first two steps of a plan."""
    for number, step in enumerate(plan.steps[:2]):
        for placement in step.placements:
            first, last = placement.first_veu, placement.first_veu + placement.num_veus - 1
            name = operators[placement.tasks.operator].name
            print(f"  step {number}: {name[:48]:48s} vEUs {first:3d} to {last:3d}")


places(block, plan)
first_step = [set(range(p.first_veu, p.first_veu + p.num_veus)) for p in plan.steps[0].placements]
assert len(set.union(*first_step)) == sum(map(len, first_step))

# 3. The kernels of real models. `compile` finds them, plans them and writes the persistent kernel.
#    One model here is an LSTM at batch 1, whose cells are kernels of three microseconds; cells of
#    different layers and steps, on a diagonal, do not depend on one another. The other is a block
#    as of Inception: nine branches, then one tensor of all their channels.


class Cell(nn.Module):
    """x, h and c, each (1, HIDDEN), to the new h and c."""

    def __init__(self) -> None:
        super().__init__()
        self.input, self.state = (nn.Linear(HIDDEN, 4 * HIDDEN) for _ in range(2))

    def forward(
        self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The gates are those of `torch.nn.LSTM`, in its order."""
        enter, keep, new, leave = (self.input(x) + self.state(h)).chunk(4, dim=-1)
        c = torch.sigmoid(keep) * c + torch.sigmoid(enter) * torch.tanh(new)
        return torch.sigmoid(leave) * torch.tanh(c), c


class LSTM(nn.Module):
    """(STEPS, 1, HIDDEN) to the last layer's h behind the last step, (1, HIDDEN)."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.ModuleList(Cell() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Unrolled: each step through all layers."""
        zero = x.new_zeros(1, HIDDEN)
        states = [(zero, zero)] * LAYERS
        h = zero
        for h in x.unbind(0):
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(h, *states[layer])
                h = states[layer][0]
        return h


class Inception(nn.Module):
    """(1, 128, 14, 14) to (1, 288, 14, 14)."""

    def __init__(self) -> None:
        super().__init__()
        pool = nn.Sequential(nn.AvgPool2d(3, 1, padding=1), nn.Conv2d(128, 32, 1))
        self.branches = nn.ModuleList([*map(self.branch, (0, 1, 2, 3, 0, 1, 2, 3)), pool])

    @staticmethod
    def branch(windows: int) -> nn.Module:
        """A 1x1 convolution, then so many of 3x3."""
        layers = [nn.Conv2d(128, 32, 1), nn.ReLU()]
        for _ in range(windows):
            layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Its branches side by side."""
        return torch.relu(torch.cat([branch(x) for branch in self.branches], 1))


# Nothing asks for co-scheduling. `Forced`, which is for measurements, leaves it out to compare.

torch.manual_seed(0)
CASES: dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]] = {
    "lstm": (LSTM().eval(), (torch.randn(STEPS, 1, HIDDEN),)),
    "inception": (Inception().eval(), (torch.randn(1, 128, 14, 14),)),
}
MODELS = {
    name: tuple(
        tvm_tile.compile(
            module,
            DEVICE,
            example_inputs=inputs,
            options=Forced(coschedule=coscheduled),
        )
        for coscheduled in (False, True)
    )
    for name, (module, inputs) in CASES.items()
}

# 4. What became of them. If a persistent kernel is predicted to take less time, there is a plan,
#    and with it the proof that all vEUs are resident at once, without which they could not wait for
#    one another. `gantt` draws a plan, vEUs down and time across. All other kernels stay launches
#    of their own, and `explain("apart")` says why.

for name, (launched, together) in MODELS.items():
    assert not launched.report.plans
    assert together.report.plans
    before, after = (model.report.predicted_seconds * 1e6 for model in (launched, together))
    print(f"\n{name}: {before:.1f} us launched one by one, {after:.1f} us co-scheduled, predicted")
    assert after < before
    text = together.explain("all")
    print(text[text.index("co-scheduled:") :])
    for number, told in enumerate(together.report.plans):
        assert told.proof.holds
        places(told.operators, told.plan)
        drawing = gantt(told.operators, told.plan, DEVICE)
        assert drawing.startswith("<svg")
        if len(sys.argv) > 1:
            Path(sys.argv[1], f"{name}_{number}.svg").write_text(drawing, encoding="utf-8")

# 5. When does it stop paying? When a kernel fills the device by itself: no other fits beside it,
#    and a persistent kernel has one number of registers a thread for all of its operators. With the
#    kernels of section 1, in numbers:

gains = []
for blocks in (16, 64, 256, 1024):
    wide = tuple(
        ROperator(
            operator.name,
            (RKernel(blocks, 128, 8192, 64, 3e-6, 1e-6),),
            operator.reads,
            operator.writes,
            DEVICE.launch_latency + max(3e-6, blocks / DEVICE.multi_processor_count * 1e-6),
        )
        for operator in block
    )
    found = coschedule(wide, DEVICE)
    assert found is not None
    gains.append(sum(operator.alone_seconds for operator in wide) / found.seconds)
    print(f"{blocks:5d} blocks a kernel: {gains[-1]:.2f} times as fast in one kernel")
assert gains[0] > 2 > 1 > gains[-1]

# 6. Run them, where there is a GPU of that kind.


def microseconds(model: Any, inputs: tuple[torch.Tensor, ...]) -> float:
    """The median of 50 runs, each from an idle device."""
    times = []
    for _ in range(60):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        model(*inputs)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times[10:])


if torch.cuda.is_available() and "H200" in torch.cuda.get_device_name():
    for name, (module, inputs) in CASES.items():
        own = tuple(tensor.cuda() for tensor in inputs)
        with torch.no_grad():
            expected = module.cuda()(*own)
        for model, how in zip(MODELS[name], ("one by one", "co-scheduled"), strict=True):
            torch.testing.assert_close(model(*own), expected, rtol=1e-3, atol=1e-3)
            print(f"{name}, {how}: {microseconds(model, own):.1f} us measured")
else:
    print("\nNo H200 here: compiled, not run.")
