"""Which vEUs run the rOperators of control flow inside a persistent kernel, and what that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.passes.coschedule.coschedule_tasks import TaskFunctions
from tvm_tile.passes.flow.program import FlowProgram
from tvm_tile.passes.flow.read import UnfitFlowError
from tvm_tile.plan.coschedule import coschedule, kernel_seconds
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.idle_veus import with_idle_veus
from tvm_tile.plan.instructions import in_order
from tvm_tile.plan.path import check_program
from tvm_tile.plan.unrolled import Durations, Unrolled, fold, seconds_of, unroll


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """Control flow with a plan.

    Attributes:
        flow: itself, its rOperators in the plan's order.
        operators: operators of the plan.
        plan: plan of the operators; its seconds are those of a run, of as many iterations as are
            planned where nobody knows how many there are.
        apart_seconds: predicted, of the same on the host.
    """

    flow: FlowProgram
    operators: tuple[ROperator, ...]
    plan: ExecutionPlan
    apart_seconds: float


def plan_flow(flow: FlowProgram, functions: TaskFunctions, device: Device) -> PlannedFlow:
    """How control flow runs inside a kernel.

    Raises:
        UnfitFlowError: a kernel cannot be part of a persistent one, or all cannot be in one.
    """
    unrolled = unroll(flow.program)
    line = _line(flow, unrolled.operators, functions)
    plan = coschedule(line, device)
    if plan is None:
        raise UnfitFlowError("no shape of the persistent kernel suits all of its kernels")
    operators = tuple(line[position] for position in unrolled.kept)
    seconds = _seconds_inside(flow, unrolled, operators, plan, device)
    apart = _seconds_apart(flow, unrolled, operators, device)
    folded = with_idle_veus(fold(plan, unrolled), operators, flow.program, device)
    folded = replace(folded, uses_flags=True, seconds=seconds)
    flow = replace(flow, program=in_order(flow.program, folded))
    check_program(flow.program)
    return PlannedFlow(flow, operators, folded, apart)


def _seconds_inside(
    flow: FlowProgram,
    unrolled: Unrolled,
    operators: Sequence[ROperator],
    plan: ExecutionPlan,
    device: Device,
) -> float:
    """Seconds of the kernel: the plan's share of what runs, and what all vEUs need to decide."""
    times = device.times.persistent
    decision = (times.flag_cycles + 2 * times.rtask_cycles) / device.clock
    alone = [operator.alone_seconds for operator in operators]
    begin = kernel_seconds(device)
    runs = seconds_of(flow.program, unrolled, Durations(alone))
    planned = sum(alone[number] for number in unrolled.operators)
    decided = seconds_of(flow.program, unrolled, Durations([0.0] * len(operators), decision))
    return begin + (plan.seconds - begin) * runs / planned + decided


def _seconds_apart(
    flow: FlowProgram, unrolled: Unrolled, operators: Sequence[ROperator], device: Device
) -> float:
    """Seconds if the host launches each kernel by itself, and copies nothing."""
    host = device.times.host_flow
    alone = [
        max(operator.alone_seconds, host.launch_seconds) if node.binding is not None else 0.0
        for node, operator in zip(flow.nodes, operators, strict=True)
    ]
    costs = Durations(alone, host.decision_seconds, host.turn_seconds)
    return seconds_of(flow.program, unrolled, costs)


def _line(
    flow: FlowProgram, numbers: tuple[int, ...], functions: TaskFunctions
) -> tuple[ROperator, ...]:
    """The straight line that is planned: each memory is a new value when it is written.

    Raises:
        UnfitFlowError: a kernel cannot be part of a persistent one.
    """
    current: dict[int, int] = {}  # by memory
    readers: dict[int, list[int]] = {}  # of its value: what they make
    count = 0
    operators = []
    for number in numbers:
        node = flow.nodes[number]
        home = flow.memories.home
        read = tuple(map(home, node.reads))
        reads = [current.setdefault(memory, -1 - memory) for memory in read]
        written = tuple(map(home, (*node.outputs, *node.changes)))
        # Who writes a memory comes behind those who read what it held.
        behind = [value for memory in written for value in readers.get(memory, ())]
        made = tuple(range(count, count + len(written)))
        count += len(written)
        for memory in read:
            readers.setdefault(memory, []).extend(made[:1])
        for memory, value in zip(written, made, strict=True):
            current[memory], readers[memory] = value, []
        own = replace(node, reads=tuple(dict.fromkeys((*reads, *behind))), outputs=made)
        operator = functions.operator(own)
        if not operator.choices:
            raise UnfitFlowError(f"{node.function} cannot be part of a persistent kernel")
        operators.append(operator)
    return tuple(operators)
