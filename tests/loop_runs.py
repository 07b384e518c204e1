"""Models whose loops are put into persistent kernels, which run on the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
import tvm
from persistent_runs import REGISTERS, Joined
from tvm import relax

from tvm_tile.coscheduling import with_copies
from tvm_tile.device import Device
from tvm_tile.frontend import import_model
from tvm_tile.passes import LiftWorkspaces, schedule_module
from tvm_tile.passes.coschedule_tasks import Apart, Coscheduled
from tvm_tile.passes.kernel_facts import KernelFacts
from tvm_tile.passes.loops_in_kernels import LoopsInKernels
from tvm_tile.pipeline import fuse


def exported(module: torch.nn.Module, inputs: Sequence[Any]) -> torch.export.ExportedProgram:
    """A module as PyTorch exports it."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(module.eval(), tuple(inputs))


def looping(module: torch.nn.Module, inputs: Sequence[Any], device: Device) -> Joined:
    """A module each of whose loops that can be is a kernel.

    Raises:
        AssertionError: a loop stays on the host.
    """
    mod = import_model(exported(module, inputs), inputs=None, example_inputs=None).mod
    fused = fuse(mod, device)
    scheduled, reports = schedule_module(fused, device)
    scheduled = tvm.transform.Sequential([LiftWorkspaces()])(scheduled)
    fused, scheduled, reports = with_copies(fused, scheduled, reports, device)
    registers = {report.name: (REGISTERS,) for report in reports}
    facts = KernelFacts(device, fused, scheduled, reports, registers)
    made: list[Coscheduled] = []
    left: list[Apart] = []
    placing = LoopsInKernels(device, facts, True, made.append, {}, left.append)
    result = tvm.transform.Sequential([placing])(scheduled)
    relax.analysis.well_formed(result)  # or raises
    assert not left, left
    return Joined(result, tuple(made), device)
