"""One call for all: a model, however it is given, becomes a compiled one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, overload

from tvm_tile.build import Builder
from tvm_tile.build.constants import ConstantPool, TakenConstants
from tvm_tile.build.dispatch import script_of
from tvm_tile.device import Device
from tvm_tile.device.detect import resolve_device
from tvm_tile.errors.arguments import check_entries, checked_sizes
from tvm_tile.files.store import Store
from tvm_tile.frontend import (
    Imported,
    Params,
    all_sizes,
    import_model,
    with_weights,
)
from tvm_tile.frontend.asked import Asked
from tvm_tile.frontend.loops import wants_kernel
from tvm_tile.frontend.open_inputs import importing, open_inputs, resized, signatures
from tvm_tile.graph.open_extents import Open, top
from tvm_tile.graph.signature import require_common_state
from tvm_tile.options import Options, checked_options, with_options
from tvm_tile.passes import (
    FirstChoices,
    MeasureCandidates,
    PlanFunction,
    Remembered,
    matrix_dtypes,
    schedule_module,
)
from tvm_tile.passes.state.pass_weights import PassWeights
from tvm_tile.pipeline import fuse_model, lower
from tvm_tile.report.stopwatch import Stopwatch
from tvm_tile.runtime import CompiledEntries, CompiledModel, HeldMemory
from tvm_tile.runtime.entries import models_of, saved_of
from tvm_tile.runtime.manifest import WHOLE
from tvm_tile.stages.guarded import Progress, one_compilation, told_apart
from tvm_tile.stages.known_models import KnownModels
from tvm_tile.stages.opened_store import open_store
from tvm_tile.stages.opening import Opening, near
from tvm_tile.stages.reporting import Behind, left_for_kernels
from tvm_tile.verify import CompiledAgain, Kernels, LateVerifier, Verifier

_KEYWORDS = "device", "inputs", "example_inputs", "params", "weights", "options", "progress"
"""What :func:`compile` takes beside options."""

Importer = Callable[..., tuple[Imported, Opening | None]]
"""Imports a model as :func:`import_asked` does, whose keyword it takes."""


@overload
def compile(
    model: Mapping[str, Any],
    device: Any = ...,
    *,
    options: Options | Mapping[str, Any] | None = ...,
    progress: Progress | None = ...,
    **named: Any,
) -> CompiledEntries: ...


@overload
def compile(
    model: Any,
    device: Any = ...,
    *,
    inputs: Mapping[str, Sequence[int | Open]] | None = ...,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = ...,
    params: Params | None = ...,
    weights: int = ...,
    options: Options | Mapping[str, Any] | None = ...,
    progress: Progress | None = ...,
    **named: Any,
) -> CompiledModel: ...


def compile(
    model: Any,
    device: Any = "auto",
    *,
    inputs: Mapping[str, Sequence[int | Open]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    params: Params | None = None,
    weights: int = 0,
    options: Options | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **named: Any,
) -> CompiledModel | CompiledEntries:
    """Compile a model for a GPU, without tuning.

    Args:
        model: path of an ONNX file, of a ``.pt2`` file or of a saved Relay program (text, JSON, or
            an archive in the Model Library Format), ``onnx.ModelProto``,
            ``torch.export.ExportedProgram``, ``torch.nn.Module`` (with ``example_inputs``),
            :class:`tvm_tile.RelayText`, or a Relax ``IRModule``. Or several entries of one model,
            such as ``{"prefill": program, "decode": other}``, which then have their weights in
            common, and state of the same name.
        device: as of :func:`tvm_tile.find_device`, a record, a ``tvm.target.Target``; for the GPU
            that is present ``"auto"``, the default, ``"cuda"``, ``"rocm"``, a ``torch.device``.
        inputs: input name -> shape, for inputs whose extents the model leaves open. An extent is
            a number, or an :class:`Open` range, any value of which a call may then have; by default
            the model's own range, or a number that its file tells, or 1 for a batch, as noted.
        example_inputs: arguments of ``forward``, in order or by name, for a ``torch.nn.Module``.
        params: values of a Relay program's parameters: the file that ``relay.save_param_dict``
            wrote, its bytes, or a mapping from names to arrays. Parameters without one are inputs.
        weights: number of last inputs that CUDA graphs read in place, if PyTorch's; 0 by default.
        options, named: how to compile, in all and by name (``tf32=True``), which comes first.
        progress: called after every compiled kernel with (name, done, total), if not ``None``.

    Returns:
        The compiled model, or its entries by name; ``explain()`` tells what fell back to TVM's own
        schedules. One that was compiled before comes out of the cache. Weights that kernels read as
        they are, are not copied: until it was called or saved, the model must not change them.

    Raises:
        ModelError: the model cannot be read (ModelFileError), or uses an operator that nobody can
            import or write (UnsupportedOperatorError); ``inputs`` or ``example_inputs`` do not fit
            it; or entries differ in a state that they should have in common.
        DynamicShapeError: an extent has no value and no end, or the model varies with its value.
        DeviceError: no record has that name (UnknownDeviceError), a file holds none
            (DeviceRecordError), or the GPU is older than every record's (DeviceTooSmallError).
        DeviceAbsentError: there is no GPU, and none was named, or ``topk`` is to measure on it.
        OptionError: an option is unknown, or asks for what the device does not have.
        CompilerNotFoundError: no compiler for the device's kernels is installed.
        BuildError: a kernel builds neither with our schedule nor with TVM's, or a stage fails.
        VerificationError: with ``verify``: no schedule of a function is right.
    """
    options = checked_options(options, named, _KEYWORDS)
    with one_compilation():
        record = with_options(resolve_device(device), options)
        asked, held = _asked(model, inputs, example_inputs, params, weights), HeldMemory()
        models = _known_or_compiled(record, options, told_apart(progress), asked, held)
        return models[WHOLE] if WHOLE in models else CompiledEntries(models, held)


def _asked(model: Any, *said: Any) -> dict[str, Asked]:
    """The entries of a model by name, or the model itself with what is said of it."""
    if not isinstance(model, Mapping):
        return {WHOLE: Asked(model, *said)}
    check_entries(model, *said)
    return {name: Asked(one) for name, one in model.items()}


def _known_or_compiled(
    record: Device,
    options: Options,
    progress: Progress | None,
    asked: Mapping[str, Asked],
    held: HeldMemory,
) -> dict[str, CompiledModel]:
    """The models that are asked for, out of the cache if it has them."""
    watch = Stopwatch()
    known = KnownModels.of(record, options)
    key = known.key(asked)
    found = known.find(key)
    if found is None:
        models = Compiler(record, options, progress, ConstantPool(), held).models(asked)
        known.keep(key, asked, saved_of(models))
        return models
    models = models_of(found, held)
    watch.lap("read from the cache")
    again = CompiledAgain(asked, partial(_compiled_again, record, options))
    for name, model in models.items():
        model.report = replace(model.report, stages=watch.stages)
        model.verifier = LateVerifier(name, again)
    return models


def _compiled_again(
    record: Device, options: Options, asked: Mapping[str, Asked]
) -> dict[str, CompiledModel]:
    with one_compilation():
        compiler = Compiler(record, options, None, ConstantPool(), HeldMemory())
        return compiler.models(asked)


@dataclass(frozen=True, slots=True)
class Compiler:
    """Compiles models that have their constants and their state in common.

    Attributes:
        record: the device, as the options want it seen.
        options: how.
        progress: called as that of :func:`compile`.
        pool: constants that the models share.
        held: state and constants that the models will share on the device.
    """

    record: Device
    options: Options
    progress: Progress | None
    pool: ConstantPool
    held: HeldMemory

    def models(self, asked: Mapping[str, Asked]) -> dict[str, CompiledModel]:
        """Compile the entries of a model, or a model."""
        watches = {name: Stopwatch() for name in asked}
        importers = {
            name: partial(import_asked, self.record, one, self.options)
            for name, one in asked.items()
        }
        imported = {}
        for name in asked:
            imported[name] = importers[name]()
            watches[name].lap("import")
        require_common_state({name: one.effects for name, (one, _) in imported.items()})
        as_stored = len(asked) > 1  # so that what entries have in common is stored once
        return {
            name: self.compiled(
                asked[name].model,
                one,
                watches[name],
                importers[name],
                as_stored=as_stored,
                opening=opening,
            )
            for name, (one, opening) in imported.items()
        }

    def compiled(
        self,
        model: Any,
        imported: Imported,
        watch: Stopwatch,
        importer: Importer | None = None,
        *,
        as_stored: bool = False,
        opening: Opening | None = None,
    ) -> CompiledModel:
        """The stages behind the import; weights are kept ``as_stored`` where others read them."""
        record, options = self.record, self.options
        store, workers = open_store(options), options.parallel_builds
        builder = Builder(record, workers=workers, on_kernel=self.progress, store=store)
        behind = self.behind_stages(
            builder, imported, watch, importer, as_stored=as_stored, opening=opening, store=store
        )
        imported, lowered = behind.imported, behind.lowered
        program = replace(builder.build(lowered.mod), constants=behind.taken.constants)
        watch.lap("schedule and lower", _within(builder, lowered.measure))
        report = behind.report(record, options, watch)
        signature = imported.inputs, imported.outputs
        verifier = Verifier.of(model, Kernels.of(*lowered.parts, record, builder, behind.symbols))
        found = program, record.name, *signature, report, verifier
        return CompiledModel(*found, imported.effects, self.held)

    def behind_stages(
        self,
        builder: Builder,
        imported: Imported,
        watch: Stopwatch,
        importer: Importer | None = None,
        *,
        as_stored: bool = False,
        opening: Opening | None = None,
        store: Store | None = None,
        first: FirstChoices | None = None,
        notes: tuple[str, ...] = (),
    ) -> Behind:
        """A model behind all stages that know Relax.

        If loops turn out to fit into no kernel that were made for one, all begins again with the
        model imported without these.
        """
        taken, state = TakenConstants(self.pool), len(imported.effects.state)
        lowered = lower(
            imported.mod,
            self.record,
            self.options,
            builder,
            store,
            watch,
            [PassWeights(state, taken.position)],
            state,
            as_stored=as_stored,
            opening=opening,
            first=first,
        )
        if importer is not None and any(map(wants_kernel, lowered.done.mod.functions.values())):
            watch.lap("loops that no kernel holds")
            plain, _ = importer(in_loops=False)
            left = left_for_kernels(lowered.done)
            how: dict[str, Any] = {"as_stored": as_stored, "store": store, "first": first}
            return self.behind_stages(builder, plain, watch, **how, notes=left)
        symbols = () if opening is None else opening.symbols
        return Behind(imported, lowered, builder, taken, symbols, notes)


def schedule(
    model: Any,
    device: Any = "auto",
    *,
    inputs: Mapping[str, Sequence[int | Open]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    params: Params | None = None,
) -> dict[str, str]:
    """The scheduled TensorIR of a model's kernels, as TVMScript by name; builds nothing.

    Args and errors are those of :func:`compile`.
    """
    with one_compilation():
        record = resolve_device(device)
        first, options = FirstChoices(record), Options()
        asked = Asked(model, inputs, example_inputs, params)
        imported, opening = import_asked(record, asked, options)
        fused = fuse_model(imported.mod, record, options, first, {}, opening=opening).mod
        plan = Remembered(PlanFunction(record, first=first))
        scheduled, kernels = schedule_module(fused, record, plan=plan)
        return {kernel.name: script_of(scheduled[kernel.name]) for kernel in kernels}


def import_asked(
    device: Device,
    asked: Asked,
    options: Options,
    *,
    in_loops: bool = True,
    needs_values: bool = True,
) -> tuple[Imported, Opening | None]:
    """A model, at the greatest values of its open extents, if there are any.

    Returns:
        The model, and it at any of these extents; ``None`` where all are known.
    """
    source = asked.source
    completed = all_sizes(source, asked.sizes)
    sizes = completed.sizes
    opened = open_inputs(sizes)
    for_kernels = options.coschedule and options.control != "host" and device.supports_grid_barrier

    def import_at(sizes: Mapping[str, tuple[int, ...]], examples: Any) -> Imported:
        found = import_model(
            source,
            inputs=sizes or None,
            example_inputs=examples,
            params=asked.params,
            matrix_dtypes=matrix_dtypes(device),
            in_loops=in_loops and for_kernels and opened is None,
            needs_values=needs_values,
        )
        return replace(with_weights(found, asked.weights), notes=completed.notes)

    if opened is None:
        return import_at(checked_sizes(sizes), asked.example_inputs), None
    at = importing(opened, lambda at: import_at(at, resized(source, asked.example_inputs, at)))
    given, returned = signatures(opened, at, near(opened.symbols))
    whole = replace(at(top(opened.symbols)), inputs=given, outputs=returned)
    return whole, Opening(opened.symbols, lambda point: at(point).mod)


def _within(builder: Builder, measure: MeasureCandidates) -> dict[str, float]:
    """Seconds of the stages that take place while kernels are scheduled and lowered."""
    measured = {"measure": measure.seconds} if measure.seconds else {}
    return {"machine code": builder.compiler_seconds, **measured}
