"""Schedule every TensorIR function of a module by tiles.

What no rule takes goes to dlight; what dlight does not take, statement by statement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, replace

import tvm
from tvm import relax, tirx
from tvm.relax.transform import NormalizeGlobalVar

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.functions import calls_in
from tvm_tile.passes.ir.count_calls import count_calls
from tvm_tile.passes.lower.exact_loops import has_exact_loops
from tvm_tile.passes.scheduling.measure_candidates import candidate_name
from tvm_tile.passes.scheduling.plan_function import (
    DLIGHT,
    GIVEN,
    Plan,
    PlanFunction,
    Remembered,
    Request,
)
from tvm_tile.report.compiled import KernelReport

PREDICTED = "tvm_tile.predicted"
"""Attribute of a scheduled PrimFunc, a map: ``rule``, ``tile``, ``grid`` (blocks), ``block``
(threads), ``seconds`` with a cold cache, ``flops``, and ``traffic`` (bytes)."""

_NOT_OPENED = "TVM cannot lower dlight's schedule of it with its numbers as they are written"


@tvm.transform.module_pass(opt_level=0, name="ScheduleTiles")
@dataclass(frozen=True, slots=True)
class ScheduleTiles:
    """``dl.ApplyDefaultSchedule``'s place in a pipeline, with tiles chosen for one device.

    before: fused, unscheduled PrimFuncs   after: PrimFuncs with blockIdx and threadIdx bound

    Kernels for tensor cores are of TVM's thread-level dialect (TIRx), which the TIR pipeline
    ``"tvm_tile"`` takes, and TVM's default one does not. By default there are none, but blocks of
    TensorIR for CUDA cores, which both take.

    Each function that a rule of ours took has what was predicted for it as its attribute
    :data:`PREDICTED`, for passes behind this one.

    Args:
        device: the record of the GPU to schedule for, from :func:`tvm_tile.find_device`.
        tensor_cores: whether kernels may be for these.
    """

    device: Device
    tensor_cores: bool = False

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        """Called by TVM's pass infrastructure."""
        device = self.device if self.tensor_cores else with_blocks_only(self.device)
        plan = Remembered(PlanFunction(device))
        scheduled, reports = schedule_module(mod, device, plan=plan)
        names = [report.name for report in reports if report.rule == DLIGHT]
        beyond = {name: _NOT_OPENED for name in names if not has_exact_loops(scheduled[name])}
        if beyond:
            scheduled, reports = schedule_module(
                mod, device, refused=beyond, beyond_dlight=beyond, plan=plan
            )
        for report in reports:
            graph = None if report.fallback else extract(mod[report.name])
            if graph is not None:
                scheduled[report.name] = scheduled[report.name].with_attr(
                    PREDICTED,
                    {
                        "rule": report.rule,
                        "tile": report.tile,
                        "grid": report.grid,
                        "block": report.block,
                        "seconds": report.seconds,
                        "flops": float(graph.flops),
                        "traffic": float(graph.traffic),
                    },
                )
        return scheduled


def with_blocks_only(device: Device) -> Device:
    """A device as schedules for TVM's own build see it: without its matrix units."""
    return replace(device, matrix_instructions=())


def schedule_module(
    mod: tvm.IRModule,
    device: Device,
    *,
    refused: dict[str, str] | None = None,
    beyond_dlight: Collection[str] = (),
    plan: Plan | None = None,
) -> tuple[tvm.IRModule, tuple[KernelReport, ...]]:
    """Schedule each PrimFunc that has no schedule yet; equal functions are scheduled once.

    Args:
        mod: a module after FuseTIR.
        device: the GPU to schedule for.
        refused: name of a PrimFunc -> why tvm_tile must not schedule it (its kernel did not
            build, say); these go to dlight.
        beyond_dlight: functions of ``refused`` that dlight must not schedule either; each of their
            statements becomes a kernel.
        plan: function that schedules one function; by default the model's first choice.

    Returns:
        A new module, and a report for each PrimFunc, in the order of their names. Where another
        than the model's first choice was taken, the function is renamed by
        :func:`~tvm_tile.passes.scheduling.measure_candidates.candidate_name`.
    """
    plan = plan or Remembered(PlanFunction(device))
    calls = count_calls(mod)
    result = mod.clone()
    reports = []
    functions = sorted(mod.functions.items(), key=lambda item: str(item[0].name_hint))
    for var, func in functions:
        if not isinstance(func, tirx.PrimFunc):
            continue
        name = str(var.name_hint)
        if "tirx.is_scheduled" in (func.attrs or {}):
            if calls[name]:
                reports.append(_given(name, calls[name]))
            continue
        planned = plan(
            Request(
                name,
                func.without_attr("global_symbol"),
                (refused or {}).get(name),
                name in beyond_dlight,
            )
        )
        chosen = candidate_name(name, planned.report.rank)
        attrs: dict[str, bool | str] = {"tirx.is_scheduled": True}
        if "global_symbol" in (func.attrs or {}) or chosen != name:
            attrs["global_symbol"] = chosen
        # Rules give what they write a symbol, which a private function must not have.
        result[var] = planned.func.without_attr("global_symbol").with_attrs(attrs)
        reports.append(replace(planned.report, name=chosen, calls=calls[name]))
    if any(report.rank for report in reports):
        result = NormalizeGlobalVar()(result)
    return result, tuple(reports)


def _given(name: str, calls: int) -> KernelReport:
    """The report of a function that had a schedule when it came."""
    reason = "it came with a schedule, which is taken as it is"
    return KernelReport(name, "", GIVEN, 0, 0, "", 0.0, 0.0, reason, calls=calls)


def foreign_calls(mod: tvm.IRModule) -> tuple[str, ...]:
    """Notes on calls of functions that are none of the module's, but of TVM or its user.

    They are no kernels of the build, so that no report knows what they launch. The virtual
    machine's own, which allocate and reshape, are left out.
    """
    named = (own for call in calls_in(mod) for own in (call.op, *call.args[:1]))
    counts = Counter(str(own.global_symbol) for own in named if isinstance(own, relax.ExternFunc))
    others = {name: n for name, n in counts.items() if not name.startswith("vm.builtin.")}
    return tuple(
        f"calls {name} {n} x, which is a function outside of this build: what it launches is not "
        "counted"
        for name, n in sorted(others.items())
    )
