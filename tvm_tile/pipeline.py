"""The stages from a model in Relax to kernels that build and calls of them, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from tvm_tile import compat
from tvm_tile.build import Builder
from tvm_tile.device import Device
from tvm_tile.errors import TileError, VerificationError
from tvm_tile.files.store import Store
from tvm_tile.graph.open_extents import Symbol
from tvm_tile.graph.user_names import handed_on
from tvm_tile.options import Options
from tvm_tile.passes import (
    DLIGHT,
    LAST,
    FirstChoices,
    MeasureCandidates,
    Plan,
    PlanFunction,
    Remembered,
    StoredPlans,
    content_of,
    given_name,
    is_joined,
    schedule_module,
)
from tvm_tile.passes.sequence import (
    Refused,
    lowering_passes,
    preparing_passes,
    run_passes,
)
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.stopwatch import Stopwatch
from tvm_tile.stages.coscheduling import Coscheduling, coschedule_what_builds
from tvm_tile.stages.fusing import Fused, fuse
from tvm_tile.stages.opening import Opening
from tvm_tile.stages.reporting import Lowered, captures
from tvm_tile.verify import Kernels


def lower(
    mod: tvm.IRModule,
    record: Device,
    options: Options,
    builder: Builder,
    store: Store | None = None,
    watch: Stopwatch | None = None,
    passing: Sequence[tvm.transform.Pass] = (),
    state: int = 0,
    *,
    as_stored: bool = False,
    opening: Opening | None = None,
    first: FirstChoices | None = None,
) -> Lowered:
    """Every stage from operators to kernels that build, and to calls of them.

    Args:
        mod: a model in Relax, prepared as front doors do.
        record: the device that it is compiled for.
        options: how.
        builder: builder for this device; asked which kernels do not build.
        store: store of plans, for reading and writing.
        watch: called when the operators are fused.
        passing: passes behind which ``main`` is called in another way; see :func:`lowering_passes`.
        state: state of the model; see :func:`~tvm_tile.stages.fusing.fuse`.
        as_stored: whether weights are read as they are stored, since others read them, too.
        opening: the model at any of its extents, if these are open; ``mod`` is it at the greatest.
        first: schedules that are known of other models, to which this one's are added.

    Raises:
        DynamicShapeError: the model is not the same at all extents.
        BuildError: a kernel builds neither with our schedule nor with TVM's, or a stage fails.
        UnsupportedOperatorError: TVM cannot write an operator's loops.
        VerificationError: with ``verify``: no schedule of a function is right.
    """
    first = first or FirstChoices(record)
    fusing = partial(fuse_model, state=state, as_stored=as_stored, opening=opening)
    fused_without = partial(fusing, mod, record, options, first)
    fused = fused_without({})
    if watch is not None:
        watch.lap("fuse")
    measure = MeasureCandidates(record, builder, options.exclusive)
    plan = _plan(record, options, measure, store, first)
    symbols = () if opening is None else opening.symbols
    building = record, builder, plan, options, symbols
    fused, scheduled, kernels = _schedule_what_builds(fused, fused_without, *building)
    parts = fused.mod, scheduled, kernels
    done = Coscheduling(scheduled, kernels)
    if options.coschedule and opening is None:
        done = coschedule_what_builds(*parts, record, builder, options.control, options.bounds)
    lowered = _lower(done.mod, record, options, passing)
    return Lowered(lowered, fused, parts, done, measure)


def fuse_model(
    mod: tvm.IRModule,
    device: Device,
    options: Options,
    first: FirstChoices,
    refused: Refused,
    *,
    state: int = 0,
    as_stored: bool = False,
    opening: Opening | None = None,
) -> Fused:
    """A model fused as its options say, at any of its extents where these are open.

    Args and errors are those of :func:`lower` and of :func:`~tvm_tile.stages.fusing.fuse`.
    """
    # Inputs and outputs of open extents are copied anyway.
    graphs = captures(device, options) and opening is None

    def once(mod: tvm.IRModule, first: FirstChoices, refused: Refused) -> Fused:
        how: dict[str, Any] = {"weld": options.weld, "graphs": graphs, "as_stored": as_stored}
        how |= {"low_bit": options.low_bit, "zeros": options.zeros, "is_open": opening is not None}
        return fuse(mod, device, first, refused, state=state, **how)

    if opening is None:
        return once(mod, first, refused)
    return opening.fused(device, once, first, refused)


def _plan(
    device: Device,
    options: Options,
    measure: MeasureCandidates,
    store: Store | None,
    first: FirstChoices,
) -> Plan:
    """How to schedule one function."""
    loss = options.max_loss
    plan: Plan = PlanFunction(device, first=first, max_loss=loss)
    if options.topk > 1:
        plan = PlanFunction(device, options.topk, measure, max_loss=loss)
    if store is not None:
        plan = StoredPlans(plan, store, device, options.topk, loss)
    return Remembered(plan)


def _schedule_what_builds(
    fused: Fused,
    fused_without: Callable[[Refused], Fused],
    device: Device,
    builder: Builder,
    plan: Plan,
    options: Options,
    symbols: tuple[Symbol, ...] = (),
) -> tuple[Fused, tvm.IRModule, tuple[KernelReport, ...]]:
    """Schedule; what does not build, or is wrong, is made of fewer functions, if it was joined,
    else scheduled by dlight instead, then by statements."""
    refused: Refused = {}
    beyond_dlight: set[Any] = set()
    known: dict[Any, VerificationError | None] = {}
    early = options.dependent_launches if captures(device, options) else False
    while True:
        contents = _contents(fused.mod)
        reasons = {name: refused[key] for name, key in contents.items() if key in refused}
        beyond = {name for name, key in contents.items() if key in beyond_dlight}
        scheduled, kernels = schedule_module(
            fused.mod, device, refused=reasons, beyond_dlight=beyond, plan=plan
        )
        # Before anything is built, so that nothing is built twice.
        seconds = {kernel.name: kernel.seconds for kernel in kernels}
        scheduled = handed_on(scheduled, preparing_passes(device, early, seconds)(scheduled))
        failures: dict[str, TileError] = {**builder.find_failures(scheduled)}
        if options.verify and not failures:
            parts = fused.mod, scheduled, kernels
            failures |= Kernels.of(*parts, device, builder, symbols).wrong(known)
        found = {kernel: given_name(kernel.name, kernel.rank) for kernel in kernels}
        # What fails without a schedule of ours, or with the last one, fails the build.
        failed = {k: n for k, n in found.items() if k.name in failures and k.rule not in LAST}
        # Of these no candidate builds.
        unwritten = {
            k: n for k, n in found.items() if is_joined(n) and k.fallback and n not in reasons
        }
        if not failed and not unwritten:
            return fused, scheduled, kernels
        beyond_dlight |= {
            contents[name] for kernel, name in failed.items() if kernel.rule == DLIGHT
        }
        for kernel, name in unwritten.items():
            refused[contents[name]] = kernel.fallback
        for kernel, name in failed.items():
            failure = failures[kernel.name]
            how = "was wrong" if isinstance(failure, VerificationError) else "did not build"
            refused.setdefault(contents[name], f"its kernel {how}: {failure.current}")
        if any(is_joined(name) and name not in reasons for name in (failed | unwritten).values()):
            fused = fused_without(refused)


def _contents(mod: tvm.IRModule) -> dict[str, Any]:
    """Keys by which the functions of a module are known when it is fused again and names change."""
    return {
        str(var.name_hint): content_of(func)
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def _lower(
    mod: tvm.IRModule,
    device: Device,
    options: Options,
    passing: Sequence[tvm.transform.Pass] = (),
) -> tvm.IRModule:
    """The module in terms of the virtual machine, with CUDA graphs where they are wanted."""
    config = {"relax.backend.use_cuda_graph": captures(device, options)}
    with compat.make_target(device), tvm.transform.PassContext(config=config):
        return run_passes(lowering_passes(device, passing), mod)
