"""The stages from a model in Relax to kernels that build and calls of them, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import tirx

from tvm_tile import compat
from tvm_tile.build import Builder, rename_by_content
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
    GroupGates,
    JoinProducts,
    LayOutWeights,
    MeasureCandidates,
    Plan,
    PlanFunction,
    Record,
    Remembered,
    StoredPlans,
    content_of,
    given_name,
    is_joined,
    schedule_module,
)
from tvm_tile.passes.operators.share_equal_values import ShareEqualValues
from tvm_tile.passes.sequence import (
    Refused,
    fused_cost,
    fusion_passes,
    lowering_passes,
    preparing_passes,
    run_passes,
    stock_fusion,
    welding,
)
from tvm_tile.passes.state.copy_ends import CopyEnds
from tvm_tile.passes.state.write_state import WriteState
from tvm_tile.passes.weld.lay_out_weights import RecordTurned
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.stopwatch import Stopwatch
from tvm_tile.report.turned_weights import TurnedWeights
from tvm_tile.stages.coscheduling import Coscheduling, coschedule_what_builds
from tvm_tile.stages.opening import Opening
from tvm_tile.tile.connect import Decision
from tvm_tile.verify import Kernels


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module behind all stages of Relax.

    Attributes:
        mod: its functions are scheduled, its calls and memory those of TVM's virtual machine.
        parts: the module before and after it was scheduled, and the reports of its kernels.
        done: what co-scheduling has made of these.
        decisions: what became of each group of functions that could be one kernel.
        measure: has measured candidates, if the options ask for that.
        turned: weights that are stored in another layout than the model has them in.
    """

    mod: tvm.IRModule
    parts: tuple[tvm.IRModule, tvm.IRModule, tuple[KernelReport, ...]]
    done: Coscheduling
    decisions: tuple[Decision, ...]
    measure: MeasureCandidates
    turned: tuple[TurnedWeights, ...]


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
) -> Lowered:
    """Every stage from operators to kernels that build, and to calls of them.

    Args:
        mod: a model in Relax, prepared as front doors do.
        record: the device that it is compiled for.
        options: how.
        builder: builds for this device; asked which kernels do not build.
        store: where plans are kept.
        watch: is told when the operators are fused.
        passing: as of :func:`lowering_passes`.
        state: as of :func:`fuse`.
        as_stored: whether weights are read as they are stored, since others read them, too.
        opening: the model at any of its extents, if these are open; ``mod`` is it at the greatest.

    Raises:
        DynamicShapeError: it is not the same model at all of them.
        BuildError: a kernel builds neither with our schedule nor with TVM's, or a stage fails.
        UnsupportedOperatorError: TVM cannot write an operator's loops.
        VerificationError: with ``verify``: no schedule of a function is right.
    """
    first = FirstChoices(record)
    fusing = _Fusing(mod, record, options, first, state, as_stored, opening, [], [])
    fused = fusing.without({})
    if watch is not None:
        watch.lap("fuse")
    measure = MeasureCandidates(record, builder, options.exclusive)
    plan = _plan(record, options, measure, store, first)
    symbols = () if opening is None else opening.symbols
    parts = _schedule_what_builds(fused, fusing.without, record, builder, plan, options, symbols)
    done = Coscheduling(parts[1], parts[2])
    if options.coschedule and opening is None:
        done = coschedule_what_builds(*parts, record, builder, options.control, options.bounds)
    lowered = _lower(done.mod, record, options, passing)
    return Lowered(lowered, parts, done, tuple(fusing.decisions), measure, tuple(fusing.turned))


@dataclass(frozen=True, slots=True)
class _Fusing:
    """Fuses a model, as often as it turns out that a kernel must be made of fewer functions.

    Attributes:
        mod, options, state, as_stored, opening: as of :func:`lower`.
        record: the device.
        first: schedules functions.
        decisions: what became of each group of functions, the last time.
        turned: weights that are stored in another layout, the last time.
    """

    mod: tvm.IRModule
    record: Device
    options: Options
    first: FirstChoices
    state: int
    as_stored: bool
    opening: Opening | None
    decisions: list[Decision]
    turned: list[TurnedWeights]

    def without(self, refused: Refused) -> tvm.IRModule:
        """The fused model without functions that are refused."""
        if self.opening is None:
            return self._fused(self.mod, self.first, refused)
        opened = self.opening.fused(self.record, self._fused, self.first, refused)
        return rename_by_content(opened)

    def _fused(self, mod: tvm.IRModule, first: FirstChoices, refused: Refused) -> tvm.IRModule:
        self.decisions.clear()
        self.turned.clear()
        return fuse(
            mod,
            self.record,
            self.decisions.append,
            first,
            weld=self.options.weld,
            # Inputs and outputs of open extents are copied anyway.
            graphs=captures(self.record, self.options) and self.opening is None,
            refused=refused,
            state=self.state,
            as_stored=self.as_stored,
            record_turned=self.turned.append,
        )


def fuse(
    mod: tvm.IRModule,
    device: Device,
    record: Record | None = None,
    first: FirstChoices | None = None,
    *,
    weld: bool = True,
    graphs: bool = False,
    refused: Refused | None = None,
    state: int = 0,
    as_stored: bool = False,
    record_turned: RecordTurned | None = None,
) -> tvm.IRModule:
    """A model's operators as fused, unscheduled loops, each function named by its content.

    Args:
        mod: a model in Relax.
        device: that it is compiled for.
        record: is given what became of each group of functions that could be one kernel.
        first: schedules them; shared with whoever schedules the result.
        weld: as in :class:`Options`.
        graphs: whether launches will be captured as graphs.
        refused: why functions must not be made of others, by their contents.
        state: how many parameters and results of ``main``, the last ones, are the model's state.
        as_stored: as of :func:`lower`.
        record_turned: is given each matrix of weights that is stored in another layout.

    Raises:
        UnsupportedOperatorError: TVM cannot write an operator's loops.
    """
    first = first or FirstChoices(device)
    fusion = welding(device, record, first, refused) if weld else stock_fusion()

    gates, cost = GroupGates(device, first, refused), fused_cost(device, first, refused)
    grouping = [gates, ShareEqualValues(), JoinProducts(cost, record)] if weld else []
    layouts = [] if as_stored else [LayOutWeights(device, first, refused, record_turned)]
    ends = [CopyEnds(device)] if graphs else []
    fusing = fusion_passes(device, fusion, grouping, as_stored=as_stored)
    passes = [*fusing, *layouts, WriteState(state), *ends]
    with compat.make_target(device):
        return rename_by_content(run_passes(passes, mod))


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
    fused: tvm.IRModule,
    fuse_without: Callable[[Refused], tvm.IRModule],
    device: Device,
    builder: Builder,
    plan: Plan,
    options: Options,
    symbols: tuple[Symbol, ...] = (),
) -> tuple[tvm.IRModule, tvm.IRModule, tuple[KernelReport, ...]]:
    """Schedule; what does not build, or is wrong, is made of fewer functions, if it was joined,
    else scheduled by dlight instead, then by statements."""
    refused: Refused = {}
    beyond_dlight: set[Any] = set()
    known: dict[Any, VerificationError | None] = {}
    early = options.dependent_launches if captures(device, options) else False
    while True:
        contents = _contents(fused)
        reasons = {name: refused[key] for name, key in contents.items() if key in refused}
        beyond = {name for name, key in contents.items() if key in beyond_dlight}
        scheduled, kernels = schedule_module(
            fused, device, refused=reasons, beyond_dlight=beyond, plan=plan
        )
        # Before anything is built, so that nothing is built twice.
        scheduled = handed_on(scheduled, preparing_passes(device, early)(scheduled))
        failures: dict[str, TileError] = {**builder.find_failures(scheduled)}
        if options.verify and not failures:
            failures |= Kernels.of(fused, scheduled, kernels, device, builder, symbols).wrong(known)
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
            fused = fuse_without(refused)


def _contents(mod: tvm.IRModule) -> dict[str, Any]:
    """What the functions of a module are known by when it is fused again and names change."""
    return {
        str(var.name_hint): content_of(func)
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def captures(device: Device, options: Options) -> bool:
    """Whether launches are captured as graphs."""
    return options.cuda_graph and device.supports_graphs


def _lower(
    mod: tvm.IRModule,
    device: Device,
    options: Options,
    passing: Sequence[tvm.transform.Pass] = (),
) -> tvm.IRModule:
    config = {"relax.backend.use_cuda_graph": captures(device, options)}
    with compat.make_target(device), tvm.transform.PassContext(config=config):
        return run_passes(lowering_passes(device, passing), mod)
