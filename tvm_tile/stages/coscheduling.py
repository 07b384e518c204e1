"""Co-scheduling as a stage of the pipeline: persistent kernels, as far as they build and fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import tirx

from tvm_tile.build import Builder
from tvm_tile.device.device import Device
from tvm_tile.errors import DeviceTooSmallError
from tvm_tile.graph.user_names import handed_on
from tvm_tile.kernel.assemble import ZEROING
from tvm_tile.passes.coschedule.coschedule_tasks import Apart, Coscheduled, CoscheduleTasks
from tvm_tile.passes.coschedule.kernel_facts import KernelFacts
from tvm_tile.passes.coschedule.reorder_calls import is_zeroing
from tvm_tile.passes.flow.loops_in_kernels import LoopsInKernels, copies_for_loops
from tvm_tile.passes.ir.count_calls import count_calls
from tvm_tile.passes.scheduling.schedule_tiles import schedule_module
from tvm_tile.plan.execution_plan import ExecutionPlan
from tvm_tile.plan.proof import require_residency, residency
from tvm_tile.plan.rprogram import Bounds, Control
from tvm_tile.report.compiled import KernelReport, Launches
from tvm_tile.report.kernel_graph import KernelGraph
from tvm_tile.report.limits import limits_of
from tvm_tile.report.persistent_report import LeftApart, PersistentReport, report_persistent
from tvm_tile.report.screen.persistent_text import described
from tvm_tile.report.shown import Report
from tvm_tile.tile.residency import launched_registers
from tvm_tile.tile.time import least_seconds

PERSISTENT = "persistent"


@dataclass(frozen=True, slots=True)
class Coscheduling:
    """A module behind this stage.

    Attributes:
        mod: module whose Relax functions call persistent kernels, where these pay.
        kernels: reports of the functions that it still calls.
        plans: plans of its persistent kernels.
        left_apart: calls that are launched by themselves, and why.
        launches: launches of one run; None where no graphs are captured.
        graphs: graphs of the kernels' calls.
        planned: bytes of memory for that.
    """

    mod: tvm.IRModule
    kernels: tuple[KernelReport, ...]
    plans: tuple[PersistentReport, ...] = ()
    left_apart: tuple[LeftApart, ...] = ()
    launches: Launches | None = None
    graphs: tuple[KernelGraph, ...] = ()
    planned: int = 0

    def report(self, known: Report, device: Device) -> Report:
        """A model's report: what is known of it but for its kernels, and these, for a device."""
        traffic = sum(kernel.calls * kernel.traffic for kernel in self.kernels)
        return replace(
            known,
            kernels=self.kernels,
            plans=self.plans,
            left_apart=self.left_apart,
            launches=self.launches,
            limits=limits_of(device, traffic),
            graphs=self.graphs,
            planned=self.planned,
        )


def coschedule_what_builds(
    fused: tvm.IRModule,
    scheduled: tvm.IRModule,
    kernels: Sequence[KernelReport],
    device: Device,
    builder: Builder,
    control: Control = "auto",
    bounds: Bounds | None = None,
) -> Coscheduling:
    """Join small kernels, and put loops into kernels; what does not build or fit stays apart.

    Args:
        fused: the module before it was scheduled.
        scheduled: the module, workspaces lifted.
        kernels: reports of its functions' kernels.
        device: the device that it is made for.
        builder: builder that has built its functions.
        control: place of loops, as in :class:`~tvm_tile.stages.forced.Forced`.
        bounds: bounds at which kernels with loops give up.
    """
    if not device.supports_grid_barrier:
        return Coscheduling(scheduled, tuple(kernels))
    if control != "host":
        fused, scheduled, kernels = with_copies(fused, scheduled, kernels, device)
    predicted = {kernel.name: kernel.registers for kernel in kernels}
    registers = {
        name: tuple(predicted.get(name) if taken is None else taken for taken in own)
        for name, own in builder.registers(scheduled).items()
    }
    known = device, fused, scheduled, kernels, registers
    facts = KernelFacts(*known)
    in_loops = KernelFacts(*known, in_loops=True, are_known=control == "auto")
    refused: dict[str, str] = {}
    while True:
        made: list[Coscheduled] = []
        apart: list[Apart] = []
        passes: list[tvm.transform.Pass] = []
        told = made.append, refused, apart.append
        if control != "host":
            always = control == "kernel"
            passes.append(LoopsInKernels(device, in_loops, always, *told, bounds or Bounds()))
        passes.append(CoscheduleTasks(device, facts, *told))
        mod = handed_on(scheduled, tvm.transform.Sequential(passes)(scheduled))
        plans, failed = _proved(mod, made, device, builder)
        if not failed:
            break
        refused |= failed
    counts = count_calls(mod)
    for var, func in mod.functions_items():
        if isinstance(func, tirx.PrimFunc) and not counts[str(var.name_hint)]:
            del mod[var]
    names = {each.name for each in made}
    apart = [a for a in apart if a.function not in names and not is_zeroing(a.function)]
    left = [replace(k, calls=counts[k.name]) for k in kernels if counts[k.name]]
    zeroing = [
        _zeroing(mod[name], name, n, device) for name, n in counts.items() if is_zeroing(name)
    ]
    known_kernels = {kernel.name: kernel for kernel in kernels}
    reports = (*left, *(_kernel_report(plan, known_kernels) for plan in plans), *zeroing)
    return Coscheduling(mod, reports, plans, tuple(_by_reason(apart)))


def with_copies(
    fused: tvm.IRModule,
    scheduled: tvm.IRModule,
    kernels: Sequence[KernelReport],
    device: Device,
) -> tuple[tvm.IRModule, tvm.IRModule, Sequence[KernelReport]]:
    """Modules and reports with the functions that loops in kernels copy by."""
    copies = copies_for_loops(scheduled)
    done, reports = schedule_module(copies, device)
    fused, scheduled = fused.clone(), scheduled.clone()
    fused.update(copies)
    scheduled.update(done)
    return fused, scheduled, (*kernels, *reports)


def _zeroing(func: tirx.PrimFunc, name: str, calls: int, device: Device) -> KernelReport:
    """The kernel that sets the counters of persistent ones to zero."""
    size = int(func.params[0].ty.shape[0])
    blocks = -(-size // ZEROING)
    tile = f"{size} set to zero"
    seconds = least_seconds(device)
    return KernelReport(
        name, "counters", "counters", blocks, ZEROING, tile, seconds, 0.0, "", calls=calls
    )


def _proved(
    mod: tvm.IRModule, made: Sequence[Coscheduled], device: Device, builder: Builder
) -> tuple[tuple[PersistentReport, ...], Mapping[str, str]]:
    """The persistent kernels that build and whose vEUs are all resident, and why others are not."""
    failures = builder.find_failures(mod)
    registers, built = builder.registers(mod), builder.resources(mod)
    proved: list[PersistentReport] = []
    failed: dict[str, str] = {}
    for each in made:
        if each.name in failures:
            reason = failures[each.name].current
            failed[each.name] = f"the persistent kernel did not build: {reason}"
            continue
        (taken,) = registers[each.name]
        if taken is None:  # nothing is built: it will be compiled for as many as it may have
            taken = _most_registers(each.plan, device)
        static = sum(own.shared for own in built.get(each.name, ()))
        proof = residency(each.plan, taken, static + each.plan.shared_bytes, device)
        try:
            require_residency(proof)
        except DeviceTooSmallError as error:
            failed[each.name] = f"{error.requirement}, and are {error.current}"
            continue
        made_of = each.operators, each.plan, each.apart_seconds
        proved.append(report_persistent(each.name, *made_of, proof, each.program))
    return tuple(proved), failed


def _most_registers(plan: ExecutionPlan, device: Device) -> int:
    """Registers of a thread with which all blocks of a persistent kernel are resident."""
    blocks = -(-plan.num_veus // device.multi_processor_count)
    return launched_registers(device, blocks, plan.block_size)


def _by_reason(apart: Sequence[Apart]) -> Iterator[LeftApart]:
    """The commonest reason first; within it, the function that is called most."""
    calls = Counter(apart)
    for reason, count in Counter(each.reason for each in apart).most_common():
        names = (each.function for each, _ in calls.most_common() if each.reason == reason)
        yield LeftApart(reason, tuple(names), count)


def _kernel_report(report: PersistentReport, known: Mapping[str, KernelReport]) -> KernelReport:
    """The report of a persistent kernel as that of any kernel."""
    plan = report.plan
    within = [known[each.name] for each in report.operators if each.name in known]
    names = " ".join(dict.fromkeys(operator.name for operator in report.operators))
    size, tile = (plan.num_veus, plan.block_size), described(report)
    return KernelReport(
        report.name, names, PERSISTENT, *size, tile, plan.seconds,
        sum(kernel.traffic for kernel in within), "",
        written=sum(kernel.written for kernel in within),
        flops=sum(kernel.flops for kernel in within),
        arithmetic_seconds=sum(kernel.arithmetic_seconds for kernel in within),
    )  # fmt: skip
