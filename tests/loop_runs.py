"""Models whose loops are put into persistent kernels, which run on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import tvm
from persistent_runs import Joined, Kernels, keeping_weights
from torch_control_cases import exported
from tvm import relax

from tvm_tile.device import Device
from tvm_tile.frontend import import_model
from tvm_tile.passes.coschedule.coschedule_tasks import Apart, Coscheduled
from tvm_tile.passes.flow.loops_in_kernels import LoopsInKernels
from tvm_tile.plan.coschedule import coschedule
from tvm_tile.plan.execution_plan import ExecutionPlan, PlanStep, ROperator
from tvm_tile.plan.rprogram import Bounds


def scattered(operators: tuple[ROperator, ...], device: Device) -> ExecutionPlan | None:
    """A plan that runs neighbours on different vEUs, so that no order of a queue hides a wait."""
    plan = coschedule(operators, device)
    assert plan is not None
    assert not any(plan.residents)
    veus = range(plan.num_veus)
    steps = [
        PlanStep(
            tuple(
                replace(p, first_veu=p.tasks.operator % len(veus), num_veus=1) for p in s.placements
            )
        )
        for s in plan.steps
    ]
    return replace(plan, steps=tuple(steps))


def weights_stay(operators: tuple[ROperator, ...], device: Device) -> ExecutionPlan | None:
    """A plan in which weights stay in shared memory, whether that pays or not."""
    plan = coschedule(keeping_weights(operators), device)
    assert plan is not None
    assert any(plan.residents)
    return plan


def looping(
    module: torch.nn.Module, inputs: tuple[Any, ...], device: Device, bounds: Bounds | None = None
) -> Joined:
    """A module each of whose loops and branches is a kernel.

    Raises:
        AssertionError: one stays on the host.
    """
    mod = import_model(exported(module, inputs), inputs=None, example_inputs=None).mod
    model, left = in_kernels(mod, device, bounds)
    assert not left, left
    return model


def in_kernels(
    mod: tvm.IRModule, device: Device, bounds: Bounds | None = None
) -> tuple[Joined, list[Apart]]:
    """A Relax module each of whose loops and branches that can be is a kernel, and the others."""
    kernels = Kernels(mod, device)
    made: list[Coscheduled] = []
    left: list[Apart] = []
    told = made.append, {}, left.append
    placing = LoopsInKernels(device, kernels.facts, True, *told, bounds or Bounds())
    result = tvm.transform.Sequential([placing])(kernels.scheduled)
    relax.analysis.well_formed(result)  # or raises
    return Joined(result, tuple(made), device), left
