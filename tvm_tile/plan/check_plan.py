"""Check, without running it, that an execution plan can run on a device."""

from __future__ import annotations

from collections.abc import Sequence

from tvm_tile.device.device import Device
from tvm_tile.errors import PlanError
from tvm_tile.plan.execution_plan import (
    MOST_COPIES,
    ExecutionPlan,
    ROperator,
    dependences,
)
from tvm_tile.plan.ways import Shape
from tvm_tile.plan.workspace import Extent, lifetimes

_REMEDY = "this is a bug of the planner: please report the model"


def check(
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    device: Device,
    extents: Sequence[Extent] = (),
) -> None:
    """Check a plan and, where they are given, the values' places in the workspace.

    Args:
        operators: the operators that were planned.
        plan: their plan.
        device: the device that the plan is to run on.
        extents: places of values in the workspace; those that are read after the kernel are not in
            it.

    Raises:
        PlanError: an rTask is missing, twice, or on no vEU; an operator does not come after those
            it reads from; threads, registers or shared memory are exceeded; weights that stay are
            not where they are looked for; more is asked for ahead than an operator's constants
            have, or nothing that it could wait for; or two values that are needed at once overlap.
    """
    _check_tasks(operators, plan)
    _check_order(operators, plan)
    _check_threads(operators, plan, device)
    _check_residents(operators, plan)
    _check_shared(operators, plan, device)
    _check_ahead(operators, plan)
    check_extents(operators, plan, extents)


def require(holds: bool, requirement: str, current: str) -> None:
    """Raise a :class:`PlanError` unless something holds."""
    if not holds:
        raise PlanError(requirement, current, _REMEDY)


def _check_tasks(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> None:
    """Check that each rTask runs once, on vEUs that exist."""
    ranges: list[list[tuple[int, int]]] = [[] for _ in operators]
    for step in plan.steps:
        for placement in step.placements:
            first, count = placement.first_veu, placement.num_veus
            inside = 0 <= first < first + count <= plan.num_veus
            require(inside, f"vEUs are 0 to {plan.num_veus - 1}", str(placement))
            tasks = placement.tasks
            ranges[tasks.operator].append((tasks.start, tasks.stop))
    for number, found in enumerate(ranges):
        found.sort()
        ends = [0, *(stop for _, stop in found)]
        starts = [*(start for start, _ in found), plan.tasks(operators, number)]
        whole = ends == starts and all(start < stop for start, stop in found)
        name = operators[number].name
        count = plan.tasks(operators, number)
        require(whole, f"each of the {count} rTasks of {name} runs once", f"ranges {found}")


def _check_order(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> None:
    """Check that each operator begins in a later step than those end that it depends on."""
    steps: list[list[int]] = [[] for _ in operators]
    for number, step in enumerate(plan.steps):
        for placement in step.placements:
            steps[placement.tasks.operator].append(number)
    for number, before in enumerate(dependences(operators)):
        for earlier in before:
            done, begun = max(steps[earlier]), min(steps[number])
            names = f"{operators[earlier].name} in step {done}, {operators[number].name} in {begun}"
            require(done < begun, "what an operator reads was written in earlier steps", names)


def _check_threads(operators: tuple[ROperator, ...], plan: ExecutionPlan, device: Device) -> None:
    """Check that all vEUs are resident, and that each operator's blocks fit on one."""
    shape = Shape(plan.block_size, plan.veus_per_processor)
    processors = device.multi_processor_count
    together = plan.block_size * plan.veus_per_processor
    threads = f"{plan.veus_per_processor} vEUs of {plan.block_size} threads a multiprocessor"
    fits = together <= device.max_threads_per_multi_processor
    require(fits and plan.block_size <= device.max_threads_per_block, "vEUs are resident", threads)
    all_there = plan.num_veus == processors * plan.veus_per_processor
    require(all_there, f"{threads}, {processors} multiprocessors", f"{plan.num_veus} vEUs")
    for number, copies in enumerate(plan.copies):
        choice = plan.choice(operators, number)
        found = f"{operators[number].name}: {copies} copies of {choice}"
        warps = -(-choice.threads // device.warp_size)
        room = copies * warps * device.warp_size <= plan.block_size
        require(copies >= 1 and room, f"copies fit into {plan.block_size} threads", found)
        barriers = not choice.barriers or copies <= MOST_COPIES
        require(barriers, f"at most {MOST_COPIES} copies have barriers", found)
        most = shape.registers(device)
        require(choice.registers <= most, f"a thread has {most} registers", found)


def _check_residents(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> None:
    """Check that operators of the same weights find them where the first has loaded them."""
    homes: dict[int, tuple[int, int, tuple[tuple[int, int, int, int], ...]]] = {}
    places: list[list[tuple[int, int, int, int]]] = [[] for _ in operators]
    for step in plan.steps:
        for p in step.placements:
            tasks = p.tasks
            places[tasks.operator].append((tasks.start, tasks.stop, p.first_veu, p.num_veus))
    for number, resident in enumerate(plan.residents):
        operator = operators[number]
        stays = plan.choice(operators, number).resident_bytes > 0
        require(resident == stays, "weights stay if the choice has a resident part", operator.name)
        if not resident:
            continue
        if operator.weights is None:
            raise PlanError("who has a resident part has weights", operator.name, _REMEDY)
        here = plan.chosen[number], plan.copies[number], tuple(sorted(places[number]))
        home = homes.setdefault(operator.weights, here)
        require(
            home == here, f"weights {operator.weights} stay at {home}", f"{operator.name} {here}"
        )


def _check_shared(operators: tuple[ROperator, ...], plan: ExecutionPlan, device: Device) -> None:
    """Check that rTasks and resident weights fit into the shared memory of a vEU."""
    shape = Shape(plan.block_size, plan.veus_per_processor)
    most = shape.shared_bytes(device)
    current = f"{plan.shared_bytes} bytes of shared memory a vEU"
    require(plan.shared_bytes <= most, f"a vEU has at most {most} bytes of shared memory", current)
    ends = (part.offset + part.size for part in plan.resident_parts(operators))
    needed = max(plan.scratch_bytes(operators), max(ends, default=0))
    require(needed <= plan.shared_bytes, f"rTasks and weights need {needed} bytes", current)


def _check_ahead(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> None:
    """Check that operators ask ahead for their own constants only, and only where they wait."""
    if not plan.ahead:
        return
    require(len(plan.ahead) == len(operators), "each operator has bytes ahead", str(plan.ahead))
    kept = zip(dependences(operators), plan.residents, strict=True)
    waiting = [bool(before) and not stays for before, stays in kept]
    for operator, waits, size in zip(operators, waiting, plan.ahead, strict=True):
        most = operator.constant_bytes if waits else 0
        found = f"{operator.name}: {size} bytes"
        require(0 <= size <= most, f"at most {most} bytes of constants are asked for ahead", found)


def check_extents(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, extents: Sequence[Extent]
) -> None:
    """Check that no two values needed in the same step overlap in the workspace.

    Raises:
        PlanError: two do.
    """
    lives = {life.value: life for life in lifetimes(operators, plan)}
    ordered = sorted(extents, key=lambda extent: extent.offset)
    open_extents: list[Extent] = []
    for extent in ordered:
        open_extents = [other for other in open_extents if other.overlaps(extent)]
        for other in open_extents:
            one, two = lives[extent.value], lives[other.value]
            apart = one.dies < two.born or two.dies < one.born
            require(
                apart, "values needed in one step have bytes of their own", f"{extent}, {other}"
            )
        open_extents.append(extent)
