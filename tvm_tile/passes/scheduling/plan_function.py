"""One function: by which of our schedules, or by TVM's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm_ffi import StructuralKey

from tvm_tile import compat
from tvm_tile.device.device import Device
from tvm_tile.graph.extract import blocks_in, extract
from tvm_tile.graph.functions import is_tensor
from tvm_tile.graph.tile_graph import TileGraph
from tvm_tile.passes.ir.rewriter import size_of
from tvm_tile.passes.scheduling.dlight import apply_dlight
from tvm_tile.passes.scheduling.first_choices import FirstChoices
from tvm_tile.passes.scheduling.plan_open import planned_open
from tvm_tile.report.compiled import KernelReport
from tvm_tile.report.limits import arithmetic_seconds
from tvm_tile.schedule import Scheduled, Task, candidates
from tvm_tile.schedule.listed import left_out
from tvm_tile.schedule.open_copy import schedule_open_copy
from tvm_tile.schedule.open_outputs import OpenFunction
from tvm_tile.schedule.rowwise import find_rowwise, schedule_rowwise
from tvm_tile.schedule.statements import find_obstacle, schedule_statements
from tvm_tile.tile.cover import MAX_LOSS
from tvm_tile.tile.rules import WGMMA

DLIGHT = "dlight"
STATEMENTS = "statements"
GIVEN = "given"
"""Scheduled before it came: whoever gave the model, or TVM, has written its kernels."""
LAST = (STATEMENTS, GIVEN)
"""What has no other schedule to fall back to."""
_DLIGHT_ERRORS: tuple[type[Exception], ...] = (*compat.TVM_ERRORS, AssertionError)


@dataclass(frozen=True, slots=True)
class Request:
    """A function to schedule.

    Attributes:
        name: its symbol.
        func: an unscheduled function, without its symbol.
        refused: why no rule of ours may schedule it (its kernel did not build, say); it goes to
            dlight then.
        beyond_dlight: dlight must not either; each of its statements becomes a kernel.
    """

    name: str
    func: tirx.PrimFunc
    refused: str | None = None
    beyond_dlight: bool = False


@dataclass(frozen=True, slots=True)
class Planned:
    """A function with its schedule.

    Attributes:
        func: a scheduled function, without a symbol.
        report: report of its kernel, without a name.
        lasting: whether the answer is the same next time; not where no candidate ran.
    """

    func: tirx.PrimFunc
    report: KernelReport
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class Selection:
    """The candidate that was chosen.

    Attributes:
        scheduled: itself.
        rank: its place in the model's order; 0 is the first.
        measured: number of candidates that ran.
        seconds: its measured time; 0 where nothing was measured.
        lasting: whether it may be stored, as in :class:`Planned`.
    """

    scheduled: Scheduled
    rank: int = 0
    measured: int = 0
    seconds: float = 0.0
    lasting: bool = True


Plan = Callable[[Request], Planned]
"""Schedules one function; always answers."""

Choose = Callable[[Request, tuple[Scheduled, ...]], "Selection | None"]
"""One of a function's candidates, one or more, best first; ``None`` where none builds."""


def take_first(_: Request, found: tuple[Scheduled, ...]) -> Selection:
    """The model's first choice, unmeasured."""
    return Selection(found[0])


class Remembered:
    """A plan that is asked once for equal functions: in one module, and when it is built again."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._known: dict[Any, Planned] = {}

    def __call__(self, request: Request) -> Planned:
        """The plan for a function, as it was the first time that an equal one was asked for."""
        key = StructuralKey(request.func), request.refused, request.beyond_dlight
        if key not in self._known:
            self._known[key] = self._plan(request)
        return self._known[key]


class PlanFunction:
    """Schedules by a rule of ours where one takes the function, else by dlight, else by statements.

    Args:
        device: the GPU to schedule for.
        topk: number of candidates to write.
        choose: function that chooses among them.
        first: scheduler of functions of which one candidate is asked for.
        max_loss: largest share of time that a function may lose at some open extents; 0.1 is a
            tenth.
    """

    def __init__(
        self,
        device: Device,
        topk: int = 1,
        choose: Choose = take_first,
        first: FirstChoices | None = None,
        max_loss: float = MAX_LOSS,
    ) -> None:
        self._max_loss = max_loss
        self._device = device
        self._topk = topk
        self._choose = choose
        self._first = first or FirstChoices(device)

    def __call__(self, request: Request) -> Planned:
        """The schedule of a function, and a report; there is always one."""
        opened = OpenFunction.of(request.func)
        if not opened.extents:
            return self._planned(request, ())
        lasting: list[bool] = []

        def schedule(one: OpenFunction) -> tuple[tirx.PrimFunc, KernelReport]:
            planned = self._planned(replace(request, func=one.func), one.extents)
            lasting.append(planned.lasting)
            return one.whole(planned.func), planned.report

        func, report = planned_open(opened, schedule, self._device, self._max_loss)
        return Planned(func, report, all(lasting))

    def _planned(self, request: Request, extents: tuple[tuple[Any, ...], ...]) -> Planned:
        """The plan of a function: by a rule, by TVM's schedules, or by its statements."""
        func = request.func
        obstacle = find_obstacle(func)
        graph = None if obstacle else extract(func)
        reason = request.refused or obstacle
        if not reason:
            planned, reason = self._by_definition(func), ""
            if planned is None:
                planned, reason = self._by_tiles(request, graph, extents)
            if planned is not None:
                return planned
        traffic = _traffic(graph) if graph else _bytes_of_parameters(func)
        names, written = _operators(func), _written(graph)
        if not obstacle and not request.beyond_dlight:
            try:
                scheduled = apply_dlight(func, self._device)
                report = KernelReport(
                    "", names, DLIGHT, 0, 0, "", 0.0, traffic, reason, written=written
                )
                return Planned(scheduled, report)
            except _DLIGHT_ERRORS as error:
                reason = f"{reason}; dlight fails: {str(error) or 'it asserts what is not so'}"
        report = KernelReport(
            "", names, STATEMENTS, 0, 0, "", 0.0, traffic, reason, written=written
        )
        return Planned(schedule_statements(func), report)

    def _by_definition(self, func: tirx.PrimFunc) -> Planned | None:
        """The plan of an operator on whole rows; ``None`` of any other function."""
        copied = schedule_open_copy(func, self._device)
        if copied is not None:
            report = KernelReport(
                "", "copy", copied.rule.name, copied.grid, copied.block, copied.tile,
                copied.seconds, 0.0, "",
            )  # fmt: skip
            return Planned(copied.func, report)
        operator = find_rowwise(func)
        own = None if operator is None else schedule_rowwise(operator, self._device)
        if operator is None or own is None:
            return None
        report = KernelReport(
            "", operator.name, own.rule.name, own.grid, own.block, own.tile, own.seconds,
            float(operator.traffic), "", written=float(operator.written),
            shared_bytes=own.shared_bytes,
        )  # fmt: skip
        return Planned(own.func, report)

    def _by_tiles(
        self, request: Request, graph: TileGraph | None, extents: tuple[tuple[Any, ...], ...]
    ) -> tuple[Planned | None, str]:
        """The plan and an empty text, or none and why."""
        if graph is None:
            return None, "its loops are not plain tensor blocks"
        if self._topk > 1 or extents:
            task = Task(request.func, graph, self._device, extents)
            found = candidates(task, self._topk)
        else:
            best = self._first(request.func)
            found = () if best is None else (best,)
        if not found:
            return None, "no rule takes it"
        choice = self._choose(request, found)
        if choice is None:
            return None, f"none of its {len(found)} candidates builds"
        best = choice.scheduled
        flops, size = (0.0, 0.0) if best.rule != WGMMA else left_out(request.func, graph)
        least = arithmetic_seconds(graph, self._device) * (1 - flops / graph.flops)
        report = KernelReport(
            "", _operators(request.func), best.rule.name, best.grid, best.block, best.tile,
            best.seconds, _traffic(graph) - size, "", choice.measured, choice.rank, choice.seconds,
            _written(graph), registers=best.registers, shared_bytes=best.shared_bytes,
            runner_up=best.runner_up, flops=graph.flops - flops,
            arithmetic_seconds=least,
        )  # fmt: skip
        return Planned(best.func, report, choice.lasting), ""


def _bytes_of_parameters(func: tirx.PrimFunc) -> float:
    """Bytes of all tensors of known sizes: what a function moves, if each element once."""
    types = [param.ty for param in func.params if is_tensor(param)]
    known = [ty for ty in types if all(isinstance(extent, tirx.IntImm) for extent in ty.shape)]
    return float(sum(map(size_of, known)))


def _traffic(graph: TileGraph | None) -> float:
    """Bytes that a function moves at least; 0 where its loops are not known."""
    return float(graph.traffic) if graph else 0.0


def _written(graph: TileGraph | None) -> float:
    """Bytes that a function writes at least; 0 where its loops are not known."""
    return float(graph.written) if graph else 0.0


def _operators(func: tirx.PrimFunc) -> str:
    """Names of the blocks, as they came from the legalized operators."""
    return " ".join(str(block.name_hint) for block in blocks_in(func.body))
