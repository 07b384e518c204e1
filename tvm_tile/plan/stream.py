"""How long a persistent kernel takes whose operators are bound by reading weights: a stream clock.

All vEUs share the bandwidth of memory, so that weights come as one stream, in the order of steps. A
step can begin when the one before it has ended and is seen to have. What it has asked for ahead is
in the second-level cache by then, as far as memory had time for it: from when it was done with the
weights of the step before. The rest comes as fast as memory gives it::

    step 0   |weights           |ends|
    memory   |step 0            |step 1, ahead|  step 1, the rest  |
    step 1                      |waits   |reads ............. |ends|

Steps without weights take as long as their longest vEU.
"""

from __future__ import annotations

from tvm_tile.device.device import Device
from tvm_tile.device.times import StreamTimes
from tvm_tile.plan.execution_plan import ExecutionPlan, PlanStep, ROperator
from tvm_tile.plan.ways import rtask_seconds


def stream_seconds(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, stream: StreamTimes, device: Device
) -> float:
    """Seconds from the first step's begin to the last one's end.

    Args:
        operators: the operators that were planned.
        plan: their plan.
        stream: parameters for such operators.
        device: the device that they run on.
    """
    rate = device.read_bandwidth * stream.share
    barrier = 0.0 if plan.uses_flags else device.grid_barrier_latency or 0.0
    waiting = stream.step_cycles / device.clock + barrier
    free = end = 0.0  # when memory has nothing to do, and when the last step has ended
    for number, step in enumerate(plan.steps):
        members = sorted({p.tasks.operator for p in step.placements})
        begin = end + waiting if number else 0.0
        size = sum(operators[n].constant_bytes for n in members if not plan.residents[n])
        asked = sum(plan.ahead[n] for n in members) if plan.ahead else 0
        ahead = min(asked, max(0.0, begin - free) * rate)
        free = max(free, begin) + (size - ahead) / rate if size else free
        end = max(free if size else begin, begin + _longest(operators, plan, step, device))
    return end


def _longest(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, step: PlanStep, device: Device
) -> float:
    """Seconds of the vEU that works longest in a step, on what is not bound by weights."""
    taken = [0.0] * plan.num_veus
    for placement in step.placements:
        tasks = placement.tasks
        if operators[tasks.operator].constants and not plan.residents[tasks.operator]:
            continue
        choice = plan.choice(operators, tasks.operator)
        copies, per_processor = plan.copies[tasks.operator], plan.veus_per_processor
        seconds = rtask_seconds(choice, copies, per_processor, device)
        for task in range(tasks.start, tasks.stop):
            taken[placement.veu(task)] += seconds
    return max(taken)
