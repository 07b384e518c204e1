"""Facts about the functions of a scheduled module, for co-scheduling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import tirx

from tvm_tile.device.device import Device
from tvm_tile.graph.extract import extract
from tvm_tile.graph.tile_graph import TileGraph
from tvm_tile.kernel.body import with_numbered_params
from tvm_tile.passes.coschedule.coschedule_tasks import Facts, Variant, is_known_inside
from tvm_tile.passes.coschedule.task_graph import contiguous_parts
from tvm_tile.passes.scheduling.measure_candidates import given_name
from tvm_tile.report.compiled import KernelReport
from tvm_tile.schedule import Scheduled, Task, candidates
from tvm_tile.schedule.rtasks import schedule_rtask
from tvm_tile.schedule.statements import find_obstacle
from tvm_tile.tile.rules import Rule, rule_named

_EXAMINED = 200  # candidates
_SIDE_BY_SIDE = 16  # functions, at most, between which the device is shared out


class KernelFacts:
    """Facts about each function, found when they are first asked for.

    Args:
        device: the device that the module is scheduled for.
        fused: the module before it was scheduled.
        scheduled: the module, with workspaces lifted.
        reports: reports of its kernels.
        registers: name of a function -> registers of a thread, of each of its kernels; ``None``
            where nobody knows. What is not there does not build.
        in_loops: whether kernels are looked for that are slower than the best, where that one
            cannot be part of another.
        are_known: whether only those are whose times inside others are known: not of sums that
            the best kernels divide among blocks.
    """

    def __init__(
        self,
        device: Device,
        fused: tvm.IRModule,
        scheduled: tvm.IRModule,
        reports: Sequence[KernelReport],
        registers: Mapping[str, tuple[int | None, ...]],
        *,
        in_loops: bool = False,
        are_known: bool = False,
    ) -> None:
        self._in_loops, self._are_known = in_loops, are_known
        self._device = device
        self._fused = fused
        self._scheduled = scheduled
        self._reports = {report.name: report for report in reports}
        self._registers = registers
        self._known: dict[str, Facts | None] = {}

    def __call__(self, name: str) -> Facts | None:
        """Facts about a function, by its name; ``None`` where its loops cannot be read."""
        if name not in self._known:
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Facts | None:
        """Facts about a function; ``None`` where its loops are not known."""
        report = self._reports.get(name)
        original = self._fused[given_name(name, report.rank)] if report else None
        graph = None if original is None or find_obstacle(original) else extract(original)
        if report is None or graph is None:
            return None
        slices = _slices(original)
        variants = self._variants(name, original, graph)
        return Facts(variants, graph.flops, graph.traffic, slices, report.seconds)

    def _variants(
        self, name: str, original: tirx.PrimFunc, graph: TileGraph
    ) -> tuple[Variant, ...]:
        """Schedules of a function that are one kernel, with the registers of each."""
        report, registers = self._reports[name], self._registers.get(name, ())
        rule = rule_named(report.rule)
        # Of what no rule of ours wrote, the time is not known.
        if rule is None or report.fallback or report.rank or not registers:
            return ()
        if len(registers) > 1 and self._are_known:
            return ()
        slower = self._slower(original, graph, rule, report.block)
        if len(registers) > 1:
            return slower
        func = self._scheduled[name]
        first = Scheduled(func, rule, report.tile, report.grid, report.block, report.seconds)
        own = Variant(first, report.seconds, registers[0])
        adapts = rule.has_fewer_blocks and is_known_inside(first, self._device)
        return (own, *(self._others(original, graph, rule) if adapts else ()), *slower)

    def _slower(
        self, original: tirx.PrimFunc, graph: TileGraph, rule: Rule, threads: int
    ) -> tuple[Variant, ...]:
        """A kernel that can be part of another where the best one cannot."""
        if not self._in_loops:
            return ()
        task = Task(original.without_attr("global_symbol"), graph, self._device)
        item = schedule_rtask(task, rule, threads)
        if item is None:
            return ()
        return (Variant(item, item.seconds, item.registers, is_for_loops=True),)

    def _others(self, original: tirx.PrimFunc, graph: TileGraph, rule: Rule) -> tuple[Variant, ...]:
        """A rule's schedules with fewer blocks: the fastest for each number of functions side by
        side."""
        task = Task(original.without_attr("global_symbol"), graph, self._device)
        found = candidates(task, _EXAMINED, (rule,))
        blocks = sorted({item.grid for item in found})
        kept = {
            max((n for n in blocks if n <= self._device.multi_processor_count // count), default=0)
            for count in range(1, _SIDE_BY_SIDE + 1)
        }
        fastest: dict[int, Scheduled] = {}
        for item in found:
            if item.grid in kept:
                fastest.setdefault(item.grid, item)
        return tuple(Variant(item, item.seconds, item.registers) for item in fastest.values())


def _slices(func: tirx.PrimFunc) -> tuple[tuple[int, int] | None, ...]:
    """For each output, the contiguous part of an input that it is, where it only copies."""
    numbered = with_numbered_params(func)
    graph = extract(numbered)
    assert graph is not None  # only names differ
    written = {operator.write.tensor.name for operator in graph.operators}
    names = [str(param.name) for param in numbered.params]
    inputs = [name for name in names if name not in written]
    return contiguous_parts(graph, inputs, names[len(inputs) :])
