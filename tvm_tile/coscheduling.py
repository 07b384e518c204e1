"""Co-scheduling as a stage of the pipeline: persistent kernels, as far as they build and fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import tvm
from tvm import tirx

from tvm_tile.build import Builder
from tvm_tile.device.device import Device
from tvm_tile.errors import TileError
from tvm_tile.passes.coschedule_tasks import Coscheduled, CoscheduleTasks
from tvm_tile.passes.kernel_facts import KernelFacts
from tvm_tile.passes.schedule_tiles import count_calls
from tvm_tile.plan.proof import require_residency, residency
from tvm_tile.plan.report import KernelReport

PERSISTENT = "persistent"


def coschedule_what_builds(
    fused: tvm.IRModule,
    scheduled: tvm.IRModule,
    kernels: Sequence[KernelReport],
    device: Device,
    builder: Builder,
) -> tuple[tvm.IRModule, tuple[KernelReport, ...]]:
    """Join small kernels; a group whose kernel does not build or does not fit stays apart.

    Args:
        fused: the module before it was scheduled.
        scheduled: the module, workspaces lifted.
        kernels: of its functions.
        device: that it is for.
        builder: that has built its functions.

    Returns:
        The module, and reports of the functions that it still calls.
    """
    if not device.supports_grid_barrier:
        return scheduled, tuple(kernels)
    built = builder.resources(scheduled)
    registers = {name: tuple(r.registers for r in own) for name, own in built.items()}
    facts = KernelFacts(device, fused, scheduled, kernels, registers)
    refused: dict[str, str] = {}
    while True:
        made: list[Coscheduled] = []
        merging = CoscheduleTasks(device, facts, made.append, frozenset(refused))
        result = tvm.transform.Sequential([merging])(scheduled)
        failed = _failed(result, made, device, builder)
        if not failed:
            break
        refused |= failed
    counts = count_calls(result)
    for var, func in result.functions_items():
        if isinstance(func, tirx.PrimFunc) and not counts[str(var.name_hint)]:
            del result[var]
    left = [replace(k, calls=counts[k.name]) for k in kernels if counts[k.name]]
    return result, (*left, *map(_report, made))


def _failed(
    mod: tvm.IRModule, made: Sequence[Coscheduled], device: Device, builder: Builder
) -> dict[str, str]:
    """Persistent kernels that do not build or whose vEUs would not all be resident, and why."""
    own = {each.name for each in made}
    failed = {n: str(error) for n, error in builder.find_failures(mod).items() if n in own}
    built = builder.resources(mod)
    for each in made:
        if each.name not in built:
            continue
        (taken,) = built[each.name]
        shared = taken.shared + each.plan.shared_bytes
        try:
            require_residency(residency(each.plan, taken.registers, shared, device))
        except TileError as error:
            failed[each.name] = str(error)
    return failed


def _report(made: Coscheduled) -> KernelReport:
    plan = made.plan
    waits = "flags" if plan.uses_flags else "barriers"
    tile = f"{len(made.operators)} operators in {len(plan.steps)} steps with {waits}"
    names = " ".join(dict.fromkeys(operator.name for operator in made.operators))
    return KernelReport(
        made.name, names, PERSISTENT, plan.num_veus, plan.block_size, tile, plan.seconds, 0.0, ""
    )
