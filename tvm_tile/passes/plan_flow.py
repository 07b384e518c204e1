"""Which vEUs run the rOperators of control flow inside a persistent kernel, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_tile.device.device import Device
from tvm_tile.passes.coschedule_tasks import TaskFunctions
from tvm_tile.passes.flow_program import FlowProgram
from tvm_tile.passes.read_flow import UnfitFlowError
from tvm_tile.plan.coschedule import coschedule, kernel_seconds
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.instructions import in_order
from tvm_tile.plan.path import check_program
from tvm_tile.plan.unrolled import fold, turns, unroll


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """Control flow with a plan.

    Attributes:
        flow: itself, its rOperators in the plan's order.
        operators: of the plan.
        plan: for them; its seconds are those of a run, of as many iterations as are planned where
            nobody knows how many there are.
        apart_seconds: predicted, of its kernels as launches of their own, as often as they run.
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
    begin = kernel_seconds(device)
    operators = tuple(line[position] for position in unrolled.kept)
    alone = [operator.alone_seconds for operator in operators]
    times = turns(flow.program, unrolled, alone)
    seconds = begin + (plan.seconds - begin) * times
    apart = times * sum(operator.alone_seconds for operator in line)
    folded = replace(fold(plan, unrolled), uses_flags=True, seconds=seconds)
    flow = replace(flow, program=in_order(flow.program, folded))
    check_program(flow.program)
    return PlannedFlow(flow, operators, folded, apart)


def _line(
    flow: FlowProgram, numbers: tuple[int, ...], functions: TaskFunctions
) -> tuple[ROperator, ...]:
    """What is planned: in a straight line, each memory a new value when it is written.

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
