"""Schedule every TensorIR function of a module by tiles.

What no rule takes goes to dlight; what dlight does not take, statement by statement.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock

from tvm_tile import compat
from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.plan.report import KernelReport
from tvm_tile.schedule import Task, candidates
from tvm_tile.schedule.statements import find_obstacle, schedule_statements

DLIGHT = "dlight"
STATEMENTS = "statements"


@tvm.transform.module_pass(opt_level=0, name="ScheduleTiles")
class ScheduleTiles:
    """``dl.ApplyDefaultSchedule``'s place in a pipeline, with tiles chosen for one device.

    before: fused, unscheduled PrimFuncs   after: PrimFuncs with blockIdx and threadIdx bound

    Args:
        device: the record of the GPU to schedule for, from :func:`tvm_tile.find_device`.
    """

    def __init__(self, device: Device) -> None:
        self.device = device

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        return schedule_module(mod, self.device)[0]


def schedule_module(
    mod: tvm.IRModule,
    device: Device,
    *,
    refused: dict[str, str] | None = None,
    beyond_dlight: Collection[str] = (),
) -> tuple[tvm.IRModule, tuple[KernelReport, ...]]:
    """Schedule each PrimFunc that has no schedule yet; equal functions are scheduled once.

    Args:
        mod: a module after FuseTIR.
        device: the GPU to schedule for.
        refused: name of a PrimFunc -> why tvm_tile must not schedule it (its kernel did not
            build, say); these go to dlight.
        beyond_dlight: those of ``refused`` that dlight must not schedule either; each of their
            statements becomes a kernel.

    Returns:
        A new module, and a report for each PrimFunc, in the order of their names.
    """
    done: dict[Any, list[tuple[tirx.PrimFunc, tirx.PrimFunc, KernelReport]]] = {}
    result = mod.clone()
    reports = []
    functions = sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint))
    for var, func in functions:
        if not isinstance(func, tirx.PrimFunc) or "tirx.is_scheduled" in (func.attrs or {}):
            continue
        name = str(var.name_hint)
        verdict = (refused or {}).get(name), name in beyond_dlight
        anonymous = func.without_attr("global_symbol")
        same = done.setdefault((tvm_ffi.structural_hash(anonymous), verdict), [])
        match = next((m for m in same if tvm_ffi.structural_equal(m[0], anonymous)), None)
        if match is None:
            scheduled, report = _schedule(anonymous, device, *verdict)
            same.append((anonymous, scheduled, report))
        else:
            _, scheduled, report = match
        attrs = {"tirx.is_scheduled": True}
        if "global_symbol" in (func.attrs or {}):
            attrs["global_symbol"] = func.attrs["global_symbol"]
        result[var] = scheduled.with_attrs(attrs)
        reports.append(replace(report, name=name))
    return result, tuple(reports)


def _schedule(
    func: tirx.PrimFunc, device: Device, refused: str | None, beyond_dlight: bool
) -> tuple[tirx.PrimFunc, KernelReport]:
    names = _operators(func)
    obstacle = find_obstacle(func)
    graph = None if obstacle else extract(func)
    traffic = float(graph.traffic) if graph else 0.0
    if refused is None and graph is not None:
        for found in candidates(Task(func, graph, device), 1):
            return found.func, KernelReport(
                "", names, found.rule, found.grid, found.block, found.tile,
                found.seconds, traffic, "",
            )  # fmt: skip
    reason = refused or obstacle
    reason = reason or ("no rule takes it" if graph else "its loops are not plain tensor blocks")
    if not obstacle and not beyond_dlight:
        try:
            scheduled = compat.apply_dlight(func, device)
            return scheduled, KernelReport("", names, DLIGHT, 0, 0, "", 0.0, traffic, reason)
        except compat.TVM_ERRORS as error:
            reason = f"{reason}; dlight fails: {error}"
    scheduled = schedule_statements(func)
    return scheduled, KernelReport("", names, STATEMENTS, 0, 0, "", 0.0, traffic, reason)


def _operators(func: tirx.PrimFunc) -> str:
    """Names of the blocks, as they came from the legalized operators."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(func.body, (SBlock, blocks.append), order="pre")
    return " ".join(str(block.name_hint) for block in blocks if block.name_hint != "root")
