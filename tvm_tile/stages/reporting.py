"""The report of a model behind all stages: decisions, what kernels take, notes for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tvm

from tvm_tile.build import Builder
from tvm_tile.build.constants import TakenConstants, inline_bytes
from tvm_tile.device import Device
from tvm_tile.frontend import Imported
from tvm_tile.frontend.loops import wants_kernel
from tvm_tile.graph.open_extents import Symbol
from tvm_tile.graph.user_names import names_by_function
from tvm_tile.options import Options
from tvm_tile.passes import MeasureCandidates, conditional_calls, foreign_calls, has_open_loops
from tvm_tile.passes.lower.count_launches import count_launches
from tvm_tile.passes.lower.planned_memory import planned_bytes
from tvm_tile.passes.lower.read_kernel_graph import read_kernel_graphs
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.machine_code import with_launches, with_resources
from tvm_tile.report.shown import Report
from tvm_tile.report.stopwatch import Stopwatch
from tvm_tile.stages.coscheduling import Coscheduling
from tvm_tile.stages.fusing import Fused
from tvm_tile.stages.opened_store import origin_of


@dataclass(frozen=True, slots=True)
class Lowered:
    """A module behind all stages of Relax.

    Attributes:
        mod: module whose functions are scheduled, and whose calls and memory are those of TVM's
            virtual machine.
        fused: the model as it was fused the last time, and what was decided then.
        parts: the module before and after it was scheduled, and the reports of its kernels.
        done: results of co-scheduling, the persistent kernels of the module.
        measure: the pass that has measured candidates, if the options ask for that.
    """

    mod: tvm.IRModule
    fused: Fused
    parts: tuple[tvm.IRModule, tvm.IRModule, tuple[KernelReport, ...]]
    done: Coscheduling
    measure: MeasureCandidates


@dataclass(frozen=True, slots=True)
class Behind:
    """A model behind all stages of Relax, and what it came from.

    Attributes:
        imported: the model.
        lowered: its kernels, scheduled, and calls of them.
        builder: builder that knows which of the kernels build, and what these take.
        taken: constants that were taken out of it.
        symbols: extents that it leaves open.
        notes: lines for people about what had to be imported otherwise.
    """

    imported: Imported
    lowered: Lowered
    builder: Builder
    taken: TakenConstants
    symbols: tuple[Symbol, ...]
    notes: tuple[str, ...]

    def report(self, record: Device, options: Options, watch: Stopwatch) -> Report:
        """The report of the model, compiled so for a device."""
        lowered, imported = self.lowered, self.imported
        done = _known(lowered, record, self.builder, options)
        notes = *imported.notes, *self.notes, *options.notes(record), *_notes(lowered)
        notes = *notes, *imported.effects.describe(), *_open_notes(self.symbols, options)
        if imported.without_values:
            notes = *notes, "weights without values stay as given: products of one input apart"
        constants = sum(len(constant.data) for constant in set(self.taken.constants))
        constants += imported.bytes_without_values
        known = Report(
            *(record.name, (), notes, watch.stages, lowered.fused.decisions),
            is_estimated=record.is_estimated,
            turned=lowered.fused.turned,
            zeros=lowered.fused.zeros,
            coded=(*lowered.fused.coded, *imported.weights),
            symbols=self.symbols,
            weights=constants + inline_bytes(lowered.mod),
            origin=origin_of(options),
            has_open_loops=has_open_loops(done.mod),
        )
        return done.report(known, record)


def captures(device: Device, options: Options) -> bool:
    """Whether launches are captured as graphs."""
    return options.cuda_graph and device.supports_graphs


def left_for_kernels(done: Coscheduling) -> tuple[str, ...]:
    """A line for people about each loop on the host that had better been written out."""
    loops = {str(var.name_hint) for var, f in done.mod.functions_items() if wants_kernel(f)}
    return tuple(
        f"{name} is written out: as a loop {left.reason}"
        for left in done.left_apart
        for name in left.functions
        if name.rpartition("_")[0] in loops or name in loops
    )


def _notes(lowered: Lowered) -> Iterator[str]:
    """Lines for people about what was measured, and what is not computed by kernels of ours."""
    yield from lowered.measure.notes
    yield from foreign_calls(lowered.fused.mod)
    yield from conditional_calls(lowered.done.mod)


def _open_notes(symbols: Sequence[Symbol], options: Options) -> Iterator[str]:
    """Lines for people about open extents, none where there are none."""
    for symbol in symbols:
        yield f"open extent {symbol}"
    if symbols and options.topk > 1:
        yield "not measured: kernels that depend on open extents are the model's first choices"


def _known(lowered: Lowered, device: Device, builder: Builder, options: Options) -> Coscheduling:
    """Facts known at the end: names of kernels' values, kernels' resources, launches of a run."""
    done = lowered.done
    known = with_resources(done.kernels, builder.resources(done.mod), device)
    names = names_by_function(done.mod)
    known = tuple(replace(kernel, names=names.get(kernel.name, ())) for kernel in known)
    counts, early = builder.kernel_counts(done.mod), builder.dependent_counts(done.mod)
    launches = count_launches(lowered.mod, counts, early) if captures(device, options) else None
    graphs, planned = read_kernel_graphs(done.mod), planned_bytes(lowered.mod)
    known = with_launches(known, counts)
    return replace(done, kernels=known, launches=launches, graphs=graphs, planned=planned)
