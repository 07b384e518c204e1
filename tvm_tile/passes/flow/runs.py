"""Which of a function's bindings in a row are to be one kernel with control flow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import relax

from tvm_tile.device.device import Device
from tvm_tile.passes.coschedule.coschedule_tasks import TaskFunctions
from tvm_tile.passes.flow.plan import PlannedFlow, plan_flow
from tvm_tile.passes.flow.program import FlowProgram
from tvm_tile.passes.flow.read import UnfitFlowError


@dataclass(frozen=True, slots=True)
class Bindings:
    """The bindings of a function.

    Attributes:
        bindings: bindings in their order.
        last_uses: position of the last binding that uses a variable, or the number of bindings
            where the function returns it.
    """

    bindings: tuple[Any, ...]
    last_uses: dict[Any, int]


@dataclass(frozen=True, slots=True)
class FlowRun:
    """Bindings in a row.

    Attributes:
        first: position of the first one.
        stop: position behind the last one.
    """

    first: int
    stop: int


def read_line(body: relax.SeqExpr) -> Bindings:
    """The bindings of a function's body."""
    bindings = tuple(binding for block in body.blocks for binding in block.bindings)
    uses: dict[Any, int] = {}
    for number, binding in enumerate(bindings):
        uses |= dict.fromkeys(relax.analysis.free_vars(binding.value), number)
    uses |= dict.fromkeys(relax.analysis.free_vars(body.body), len(bindings))
    return Bindings(bindings, uses)


def wanted(line: Bindings, run: FlowRun) -> list[Any]:
    """The variables that a run computes and that others use."""
    _, own = divided(line, run)
    return [b.var for b in own if line.last_uses.get(b.var, -1) >= run.stop]


def divided(line: Bindings, run: FlowRun) -> tuple[list[Any], list[Any]]:
    """The bindings of a run that only name fields of tuples from outside, and all others."""
    own = line.bindings[run.first : run.stop]
    bound = {binding.var for binding in own}
    ahead = [b for b in own if picks_field(b) and b.value.tuple_value not in bound]
    return ahead, [binding for binding in own if not any(binding is one for one in ahead)]


def picks_field(binding: Any) -> bool:
    """Whether a binding only names a field of a tuple."""
    return isinstance(binding.value, relax.TupleGetItem)


def stretches(fits: Sequence[bool], flows: Collection[int]) -> Iterator[tuple[FlowRun, ...]]:
    """Runs that hold all control flow of a stretch of bindings that fit, for each stretch with any.

    The longest first: the whole stretch; without what is ahead of the first loop or branch; without
    what is behind the last one; without both.
    """
    number = 0
    while number < len(fits):
        stop = number
        while stop < len(fits) and fits[stop]:
            stop += 1
        own = [n for n in range(number, stop) if n in flows]
        if own:
            starts, ends = (number, own[0]), (stop, own[-1] + 1)
            yield tuple(dict.fromkeys(FlowRun(a, b) for b in ends for a in starts))
        number = max(stop, number + 1)


@dataclass(frozen=True, slots=True)
class RunPlans:
    """Plans of a function's runs, each made once.

    Attributes:
        line: the function's bindings.
        read: function that gives the program of a run.
        functions: about the kernels.
        device: the device that they are made for.
        always: whether control flow that can be in a kernel is, even if the host is faster.
    """

    line: Bindings
    read: Callable[[FlowRun], FlowProgram]
    functions: TaskFunctions
    device: Device
    always: bool
    _flows: dict[FlowRun, FlowProgram | UnfitFlowError] = field(default_factory=dict)
    _known: dict[FlowRun, PlannedFlow | UnfitFlowError] = field(default_factory=dict)

    def fits(self, number: int) -> bool:
        """Whether a binding may be part of a kernel."""
        if picks_field(self.line.bindings[number]):
            return True
        try:
            nodes = self._flow(FlowRun(number, number + 1)).nodes
        except UnfitFlowError:
            return False
        return all(self.functions.operator(node).choices for node in nodes)

    def plan(self, run: FlowRun) -> PlannedFlow:
        """The plan of a run.

        Raises:
            UnfitFlowError: the run cannot be a kernel.
        """
        if run not in self._known:
            try:
                self._known[run] = plan_flow(self._flow(run), self.functions, self.device)
            except UnfitFlowError as error:
                self._known[run] = error
        found = self._known[run]
        if isinstance(found, UnfitFlowError):
            raise found
        return found

    def best(self, several: Sequence[FlowRun], flows: Collection[int]) -> tuple[FlowRun, ...]:
        """The runs of a stretch that are to be kernels: one of several, or each flow alone."""
        whole = several[0]
        alone = tuple(FlowRun(n, n + 1) for n in range(whole.first, whole.stop) if n in flows)
        options = [*((run,) for run in several if (run,) != alone), alone]
        return min(options, key=lambda option: self._seconds(whole, option))

    def _seconds(self, whole: FlowRun, option: tuple[FlowRun, ...]) -> float:
        """Seconds of a stretch of which some runs are kernels, and the rest are launches."""
        inside = {number for run in option for number in range(run.first, run.stop)}
        total = 0.0
        for run in option:
            try:
                planned = self.plan(run)
            except UnfitFlowError:
                total += 0.0 if run.stop == run.first + 1 else float("inf")
                continue
            seconds = planned.plan.seconds
            is_choice = run.stop == run.first + 1 and not self.always
            total += min(seconds, planned.apart_seconds) if is_choice else seconds
        outside = (n for n in range(whole.first, whole.stop) if n not in inside)
        return total + sum(self._apart(number) for number in outside)

    def _apart(self, number: int) -> float:
        """Seconds of a binding's kernels as launches of their own."""
        nodes = self._flow(FlowRun(number, number + 1)).nodes
        return sum(self.functions.operator(node).alone_seconds for node in nodes)

    def _flow(self, run: FlowRun) -> FlowProgram:
        """The program of a run, read once; raises where it cannot be a kernel."""
        if run not in self._flows:
            try:
                self._flows[run] = self.read(run)
            except UnfitFlowError as error:
                self._flows[run] = error
        found = self._flows[run]
        if isinstance(found, UnfitFlowError):
            raise found
        return found
