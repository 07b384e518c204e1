"""The page: every stage from a model to machine code, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import tirx

from tvm_tile import compat
from tvm_tile.arguments import check_examples, checked_sizes
from tvm_tile.build import Builder, rename_by_content
from tvm_tile.coscheduling import Coscheduling, coschedule_what_builds
from tvm_tile.device import Device, with_tf32
from tvm_tile.device.detect import resolve_device
from tvm_tile.errors import DeviceAbsentError, TileError, VerificationError
from tvm_tile.frontend import Imported, Params, import_model, with_weights
from tvm_tile.guarded import Progress, one_compilation, told_apart
from tvm_tile.opened_store import open_store
from tvm_tile.options import Options, checked_options
from tvm_tile.passes import (
    DLIGHT,
    LAST,
    FirstChoices,
    GroupGates,
    JoinProducts,
    LiftWorkspaces,
    MeasureCandidates,
    Plan,
    PlanFunction,
    Record,
    Remembered,
    StoredPlans,
    content_of,
    foreign_calls,
    given_name,
    is_joined,
    schedule_module,
)
from tvm_tile.passes.copy_ends import CopyEnds
from tvm_tile.passes.count_launches import count_launches
from tvm_tile.passes.pass_weights import PassWeights
from tvm_tile.passes.separate_in_place import ShareEqualValues
from tvm_tile.passes.sequence import (
    Refused,
    fused_cost,
    fusion_passes,
    lowering_passes,
    run_passes,
    stock_fusion,
    welding,
)
from tvm_tile.plan.machine_code import with_launches, with_resources
from tvm_tile.plan.report import KernelReport
from tvm_tile.plan.stopwatch import Stopwatch
from tvm_tile.plan.store import Store
from tvm_tile.runtime import CompiledModel
from tvm_tile.tile.connect import Decision
from tvm_tile.verify import Kernels, Verifier

_UNWELDED = "weld is off: kernels are the groups of TVM's own fusion"
_APART = "coschedule is off: each kernel is launched by itself"


def compile(
    model: Any,
    device: str | Device = "auto",
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    example_inputs: Sequence[Any] | None = None,
    params: Params | None = None,
    weights: int = 0,
    options: Options | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compile a model for a GPU, without tuning.

    Args:
        model: path of an ONNX file, of a ``.pt2`` file or of a saved Relay program (text, JSON, or
            an archive in the Model Library Format), ``onnx.ModelProto``,
            ``torch.export.ExportedProgram``, ``torch.nn.Module`` (with ``example_inputs``),
            :class:`tvm_tile.RelayText`, or a Relax ``IRModule``.
        device: ``vendor/model`` as in :func:`tvm_tile.find_device`, a record, or ``"auto"``:
            the GPU that is present, else the emulated one.
        inputs: input name -> shape, for inputs whose extents the model leaves open.
        example_inputs: arguments of ``forward``, for a ``torch.nn.Module``.
        params: values of a Relay program's parameters: the file that ``relay.save_param_dict``
            wrote, its bytes, or a mapping from names to arrays. Parameters without one are inputs.
        weights: how many of its last inputs CUDA graphs read where they lie, if PyTorch's.
        options: see :class:`Options`.
        progress: called after every compiled kernel with (name, done, total).

    Returns:
        The compiled model; its ``explain()`` tells what fell back to TVM's own schedules.

    Raises:
        ModelError: the model cannot be read, or uses an operator that nobody can import or write.
        UnknownDeviceError: no device record has that name.
        DeviceAbsentError: ``topk`` asks for measurements, and there is no GPU to take them on.
        OptionError: ``options`` are none.
        CompilerNotFoundError: no compiler for the device's kernels is installed.
        BuildError: a kernel builds neither with our schedule nor with TVM's, or a stage fails.
        VerificationError: with ``verify``: no schedule of a function is right.
    """
    options = checked_options(options)
    with one_compilation():
        record = with_options(resolve_device(device), options)
        watch = Stopwatch()
        imported = with_weights(_import(model, inputs, example_inputs, params), weights)
        watch.lap("import")
        return _compiled(model, imported, record, options, told_apart(progress), watch)


def _compiled(
    model: Any,
    imported: Imported,
    record: Device,
    options: Options,
    progress: Progress | None,
    watch: Stopwatch,
) -> CompiledModel:
    """The stages behind the import."""
    store = open_store(options)
    builder = Builder(record, workers=options.parallel_builds, on_kernel=progress, store=store)
    passing = [PassWeights(len(imported.effects.state))]
    lowered = lower(imported.mod, record, options, builder, store, watch, passing)
    program = builder.build(lowered.mod)
    watch.lap("schedule and lower", _within(builder, lowered.measure))
    done = _known(lowered, record, builder, options)
    notes = *_switched_off(options), *lowered.measure.notes, *foreign_calls(lowered.parts[0])
    notes = *notes, *imported.effects.describe()
    report = done.report(record, notes, watch.stages, lowered.decisions)
    signature = imported.inputs, imported.outputs
    verifier = Verifier.of(model, Kernels.of(*lowered.parts, record, builder))
    return CompiledModel(program, record.name, *signature, report, verifier, imported.effects)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module behind all stages of Relax.

    Attributes:
        mod: its functions are scheduled, its calls and memory those of TVM's virtual machine.
        parts: the module before and after it was scheduled, and the reports of its kernels.
        done: what co-scheduling has made of these.
        decisions: what became of each group of functions that could be one kernel.
        measure: has measured candidates, if the options ask for that.
    """

    mod: tvm.IRModule
    parts: tuple[tvm.IRModule, tvm.IRModule, tuple[KernelReport, ...]]
    done: Coscheduling
    decisions: tuple[Decision, ...]
    measure: MeasureCandidates


def lower(
    mod: tvm.IRModule,
    record: Device,
    options: Options,
    builder: Builder,
    store: Store | None = None,
    watch: Stopwatch | None = None,
    passing: Sequence[tvm.transform.Pass] = (),
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

    Raises:
        BuildError: a kernel builds neither with our schedule nor with TVM's, or a stage fails.
        UnsupportedOperatorError: TVM cannot write an operator's loops.
        VerificationError: with ``verify``: no schedule of a function is right.
    """
    decisions: list[Decision] = []
    first, weld, graphs = FirstChoices(record), options.weld, _captures(record, options)

    def fuse_without(refused: Refused) -> tvm.IRModule:
        decisions.clear()
        return fuse(mod, record, decisions.append, first, weld=weld, graphs=graphs, refused=refused)

    fused = fuse_without({})
    if watch is not None:
        watch.lap("fuse")
    measure = MeasureCandidates(record, builder, options.exclusive)
    plan = _plan(record, options, measure, store, first)
    parts = _schedule_what_builds(fused, fuse_without, record, builder, plan, options)
    done = Coscheduling(parts[1], parts[2])
    if options.coschedule:
        done = coschedule_what_builds(*parts, record, builder)
    lowered = _lower(done.mod, record, options, passing)
    return Lowered(lowered, parts, done, tuple(decisions), measure)


def schedule(
    model: Any,
    device: str | Device = "auto",
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    example_inputs: Sequence[Any] | None = None,
    params: Params | None = None,
) -> dict[str, str]:
    """The scheduled TensorIR of a model's kernels, as TVMScript by name; builds nothing.

    Args and errors are those of :func:`compile`.
    """
    with one_compilation():
        record = resolve_device(device)
        imported = _import(model, inputs, example_inputs, params)
        first = FirstChoices(record)
        fused = fuse(imported.mod, record, first=first)
        plan = Remembered(PlanFunction(record, first=first))
        scheduled, kernels = schedule_module(fused, record, plan=plan)
        return {kernel.name: scheduled[kernel.name].script() for kernel in kernels}


def with_options(device: Device, options: Options) -> Device:
    """A device's record as the options want it seen.

    Raises:
        DeviceAbsentError: they ask for measurements that the device cannot give.
    """
    if options.topk > 1:
        _check_measurable(device)
    return with_tf32(device) if options.tf32 else device


def _check_measurable(device: Device) -> None:
    if device.is_emulated:
        raise DeviceAbsentError(
            "candidates are measured on a GPU, which must be present",
            f"the device is {device.name}: the CPU's times say nothing about any GPU",
            "compile with Options(topk=1), which measures nothing, or where the GPU is",
        )


def _import(
    model: Any,
    inputs: Mapping[str, Sequence[int]] | None,
    example_inputs: Sequence[Any] | None,
    params: Params | None,
) -> Imported:
    check_examples(example_inputs)
    sizes = checked_sizes(inputs) or None
    return import_model(model, inputs=sizes, example_inputs=example_inputs, params=params)


def _switched_off(options: Options) -> Iterator[str]:
    """Notes on what compiles less well than it could, as asked."""
    if not options.weld:
        yield _UNWELDED
    if not options.coschedule:
        yield _APART


def _within(builder: Builder, measure: MeasureCandidates) -> dict[str, float]:
    """Seconds of the stages that take place while kernels are scheduled and lowered."""
    measured = {"measure": measure.seconds} if measure.seconds else {}
    return {"machine code": builder.compiler_seconds, **measured}


def fuse(
    mod: tvm.IRModule,
    device: Device,
    record: Record | None = None,
    first: FirstChoices | None = None,
    *,
    weld: bool = True,
    graphs: bool = False,
    refused: Refused | None = None,
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

    Raises:
        UnsupportedOperatorError: TVM cannot write an operator's loops.
    """
    first = first or FirstChoices(device)
    fusion = welding(device, record, first, refused) if weld else stock_fusion()

    gates, cost = GroupGates(device, first, refused), fused_cost(device, first, refused)
    grouping = [gates, ShareEqualValues(), JoinProducts(cost, record)] if weld else []
    ends = [CopyEnds(device)] if graphs else []
    passes = [*fusion_passes(device, fusion, grouping), *ends]
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
    plan: Plan = PlanFunction(device, first=first)
    if options.topk > 1:
        plan = PlanFunction(device, options.topk, measure)
    if store is not None:
        plan = StoredPlans(plan, store, device, options.topk)
    return Remembered(plan)


def _schedule_what_builds(
    fused: tvm.IRModule,
    fuse_without: Callable[[Refused], tvm.IRModule],
    device: Device,
    builder: Builder,
    plan: Plan,
    options: Options,
) -> tuple[tvm.IRModule, tvm.IRModule, tuple[KernelReport, ...]]:
    """Schedule; what does not build, or is wrong, is made of fewer functions, if it was joined,
    else scheduled by dlight instead, then by statements."""
    refused: Refused = {}
    beyond_dlight: set[Any] = set()
    known: dict[Any, VerificationError | None] = {}
    while True:
        contents = _contents(fused)
        reasons = {name: refused[key] for name, key in contents.items() if key in refused}
        beyond = {name for name, key in contents.items() if key in beyond_dlight}
        scheduled, kernels = schedule_module(
            fused, device, refused=reasons, beyond_dlight=beyond, plan=plan
        )
        # Before anything is built, so that nothing is built twice.
        scheduled = tvm.transform.Sequential([LiftWorkspaces()])(scheduled)
        failures: dict[str, TileError] = {**builder.find_failures(scheduled)}
        if options.verify and not failures:
            failures |= Kernels.of(fused, scheduled, kernels, device, builder).wrong(known)
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


def _known(lowered: Lowered, device: Device, builder: Builder, options: Options) -> Coscheduling:
    """What machine code tells: what kernels take of a multiprocessor, and launches of a run."""
    done = lowered.done
    known = with_resources(done.kernels, builder.resources(done.mod), device)
    counts = builder.kernel_counts(done.mod)
    launches = count_launches(lowered.mod, counts) if _captures(device, options) else None
    return replace(done, kernels=with_launches(known, counts), launches=launches)


def _contents(mod: tvm.IRModule) -> dict[str, Any]:
    """What the functions of a module are known by when it is fused again and names change."""
    return {
        str(var.name_hint): content_of(func)
        for var, func in mod.functions_items()
        if isinstance(func, tirx.PrimFunc)
    }


def _captures(device: Device, options: Options) -> bool:
    """Whether launches are captured as graphs."""
    return options.cuda_graph and device.supports_graphs


def _lower(
    mod: tvm.IRModule,
    device: Device,
    options: Options,
    passing: Sequence[tvm.transform.Pass] = (),
) -> tvm.IRModule:
    config = {"relax.backend.use_cuda_graph": _captures(device, options)}
    with compat.make_target(device), tvm.transform.PassContext(config=config):
        return run_passes(lowering_passes(device, passing), mod)
