"""The page: every stage from a model to machine code, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.target import Target

from tvm_tile import compat
from tvm_tile.build import Builder, rename_by_content
from tvm_tile.device import Device
from tvm_tile.device.detect import device_for_target, resolve_device
from tvm_tile.frontend import Imported, import_model
from tvm_tile.passes import (
    DLIGHT,
    STATEMENTS,
    MarkReductions,
    ReadTransposed,
    ScheduleTiles,
    schedule_module,
)
from tvm_tile.plan.report import KernelReport, Report, Stage
from tvm_tile.runtime import CompiledModel

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile.

    Attributes:
        cuda_graph: capture launches into CUDA graphs where the device can replay them.
        parallel_builds: kernels compiled at once; one a processor by default.
    """

    cuda_graph: bool = True
    parallel_builds: int | None = None


def compile(
    model: Any,
    device: str | Device = "auto",
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    example_inputs: Sequence[Any] | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compile a model for a GPU, without tuning.

    Args:
        model: path of an ONNX file, ``onnx.ModelProto``, ``torch.export.ExportedProgram``,
            ``torch.nn.Module`` (with ``example_inputs``), or a Relax ``IRModule``.
        device: ``vendor/model`` as in :func:`tvm_tile.find_device`, a record, or ``"auto"``:
            the GPU that is present, else the emulated one.
        inputs: input name -> shape, for inputs whose extents the model leaves open.
        example_inputs: arguments of ``forward``, for a ``torch.nn.Module``.
        options: see :class:`Options`.
        progress: called after every compiled kernel with (name, done, total).

    Returns:
        The compiled model; its ``explain()`` tells what fell back to TVM's own schedules.

    Raises:
        ModelError: the model cannot be read, or uses an operator no importer knows.
        UnknownDeviceError: no device record has that name.
        CompilerNotFoundError: no compiler for the device's kernels is installed.
        BuildError: a kernel builds neither with our schedule nor with TVM's.
    """
    options = options or Options()
    record = resolve_device(device)
    watch = _Stopwatch()
    imported = import_model(model, inputs=inputs, example_inputs=example_inputs)
    watch.lap("import")
    fused = fuse(imported.mod, record)
    watch.lap("fuse")
    builder = Builder(record, workers=options.parallel_builds, on_kernel=progress)
    scheduled, kernels = _schedule_what_builds(fused, record, builder)
    program = builder.build(_lower(scheduled, record, options))
    watch.lap("schedule and lower", "machine code", builder.compiler_seconds)
    report = Report(record.name, kernels, (), tuple(watch.stages))
    return CompiledModel(program, record.name, imported.inputs, imported.outputs, report)


def schedule(
    model: Any,
    device: str | Device = "auto",
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    example_inputs: Sequence[Any] | None = None,
) -> dict[str, str]:
    """The scheduled TensorIR of a model's kernels, as TVMScript by name; builds nothing.

    Args and errors are those of :func:`compile`.
    """
    record = resolve_device(device)
    imported: Imported = import_model(model, inputs=inputs, example_inputs=example_inputs)
    scheduled, kernels = schedule_module(fuse(imported.mod, record), record)
    return {kernel.name: scheduled[kernel.name].script() for kernel in kernels}


def relax_pipeline() -> tvm.transform.Pass:
    """The pipeline behind ``tvm.compile(mod, target, relax_pipeline="tvm_tile")``.

    It schedules for the device that the current target describes.
    """

    @tvm.transform.module_pass(opt_level=0, name="tvm_tile")
    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        device = device_for_target(Target.current())
        stages = [*_fusion_passes(), ScheduleTiles(device), *_lowering_passes(device)]
        return tvm.transform.Sequential(stages)(mod)

    return run


class _Stopwatch:
    """Wall-clock time from lap to lap."""

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._last = time.perf_counter()

    def lap(self, name: str, inner: str = "", inner_seconds: float = 0.0) -> None:
        """A stage ends; ``inner`` is a stage of its own that took place within it."""
        now = time.perf_counter()
        self.stages.append(Stage(name, now - self._last - inner_seconds))
        if inner:
            self.stages.append(Stage(inner, inner_seconds))
        self._last = now


def fuse(mod: tvm.IRModule, device: Device) -> tvm.IRModule:
    """A model's operators as fused, unscheduled loops, each function named by its content."""
    with compat.make_target(device):
        return rename_by_content(tvm.transform.Sequential(_fusion_passes())(mod))


def _schedule_what_builds(
    fused: tvm.IRModule, device: Device, builder: Builder
) -> tuple[tvm.IRModule, tuple[KernelReport, ...]]:
    """Schedule; what does not build is scheduled by dlight instead, then by statements."""
    refused: dict[str, str] = {}
    beyond_dlight: set[str] = set()
    while True:
        scheduled, kernels = schedule_module(
            fused, device, refused=refused, beyond_dlight=beyond_dlight
        )
        failures = builder.find_failures(scheduled)
        rules = {kernel.name: kernel.rule for kernel in kernels}
        # What fails without a schedule of ours, or with the last one, fails the build.
        failures = {n: e for n, e in failures.items() if rules.get(n, STATEMENTS) != STATEMENTS}
        if not failures:
            return scheduled, kernels
        beyond_dlight |= {name for name in failures if rules[name] == DLIGHT}
        for name, error in failures.items():
            refused.setdefault(name, f"its kernel did not build: {error.current}")


def _lower(mod: tvm.IRModule, device: Device, options: Options) -> tvm.IRModule:
    config = {"relax.backend.use_cuda_graph": options.cuda_graph and device.supports_graphs}
    with compat.make_target(device), tvm.transform.PassContext(config=config):
        return tvm.transform.Sequential(_lowering_passes(device))(mod)


def _fusion_passes() -> list[tvm.transform.Pass]:
    """Operators to loops, stock fusion; views instead of copies for plain reshapes."""
    return [
        relax.backend.DispatchSampling(),
        relax.backend.DispatchSortScan(),
        relax.transform.ConvertToDataflow(),
        ReadTransposed(),
        relax.transform.DecomposeOpsForInference(),
        relax.transform.CanonicalizeBindings(),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        # Once more, for what feeds reductions.
        MarkReductions(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
        relax.transform.DeadCodeElimination(),
    ]


def _lowering_passes(device: Device) -> list[tvm.transform.Pass]:
    """Calls and memory to the virtual machine's terms."""
    graph = [relax.transform.RewriteCUDAGraph()] if device.supports_graphs else []
    return [
        relax.transform.ToNonDataflow(),
        relax.transform.RemovePurityChecking(),
        relax.transform.CallTIRRewrite(),
        relax.transform.StaticPlanBlockMemory(),
        *graph,
        relax.transform.LowerAllocTensor(),
        relax.transform.KillAfterLastUse(),
        relax.transform.LowerRuntimeBuiltin(),
        relax.transform.ComputePrimValue(),
        relax.transform.VMShapeLower(),
        relax.transform.AttachGlobalSymbol(),
    ]
