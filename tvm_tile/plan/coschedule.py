"""Put many kernels into one persistent kernel (Rammer, OSDI 2020, section 4).

For every shape of the vEUs, the steps and the ways to run the operators are chosen by an estimate
of each step (:mod:`tvm_tile.plan.fit`); the best few are placed, with barriers and with flags, and
of all the one that takes the least predicted time is the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.plan.ahead import ahead_bytes
from tvm_tile.plan.estimate import Estimate, estimated
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator, dependences
from tvm_tile.plan.fit import Fits, Ints, fits
from tvm_tile.plan.place import Placed, Placer, flag_seconds, homes
from tvm_tile.plan.stream import stream_seconds
from tvm_tile.plan.waves import form_steps, levels, step_points
from tvm_tile.plan.ways import Shape, Way

# Different (body, choice, copies) whose code one kernel holds.
MOST_BODIES = 24
_PLACED = 3  # estimates, best first, that are placed
_TRIED = 32  # sets of ways, one a kind, that are tried where the code is too much


def kernel_seconds(device: Device) -> float:
    """Seconds of a persistent kernel beside its steps: a cooperative launch, and its counters.

    Another kernel sets these to zero before it, which takes about as long as a barrier.

    Args:
        device: one with a barrier of the whole grid.
    """
    cooperative = device.times.persistent.cooperative_seconds
    return device.launch_latency + cooperative + (device.grid_barrier_latency or 0.0)


def coschedule(operators: tuple[ROperator, ...], device: Device) -> ExecutionPlan | None:
    """The best persistent kernel for ``operators``, each of them in it.

    Args:
        operators: the operators in a topological order.
        device: the device that they run on.

    Returns:
        The plan; None where the device has no barrier of the whole grid, or where no shape of the
        vEUs suits every operator.
    """
    if not operators or device.grid_barrier_latency is None:
        return None
    before = dependences(operators)
    estimates = sorted(
        estimated(operators, levels(before), device), key=lambda estimate: estimate.seconds
    )
    tried = (_plans(operators, before, estimate, device) for estimate in estimates)
    # Those without plans, as the weights that should stay are too many, do not count.
    placed = islice((plans for plans in tried if plans), _PLACED)
    plans = (plan for several in placed for plan in several)
    return min(plans, key=lambda plan: plan.seconds, default=None)


def _plans(
    operators: tuple[ROperator, ...],
    before: Sequence[tuple[int, ...]],
    estimate: Estimate,
    device: Device,
) -> tuple[ExecutionPlan, ...]:
    """The plans for a shape: with barriers and with flags; none where weights do not fit."""
    barrier = device.grid_barrier_latency or 0.0
    steps = form_steps(estimate.fits, estimate.rows, before, barrier)
    chosen = _chosen(estimate, steps)
    num_veus = estimate.shape.num_veus(device)
    scratch = max(way.scratch_bytes for way in chosen)
    room = estimate.shape.shared_bytes(device) - scratch
    kept = homes(operators, chosen, steps, num_veus, room)
    if kept is None:
        return ()
    placer = Placer(operators, chosen, before, kept, num_veus, flag_seconds(device))
    members: list[list[int]] = [[] for _ in range(int(steps.max()) + 1)]
    for number, step in enumerate(steps.tolist()):
        members[step].append(number)
    sizes = _resident_sizes(operators, chosen, kept, num_veus)
    # All load at once, and those that load most end last.
    load = sizes.max() * num_veus / device.read_bandwidth
    begin = kernel_seconds(device) + float(load)
    veus = num_veus, scratch + int(sizes.max())
    both = placer.with_barriers(members, barrier), placer.with_flags(members)
    plans = (_plan(placed, begin, chosen, estimate.shape, veus) for placed in both)
    return tuple(_streaming(operators, plan, begin, device) for plan in plans)


def _streaming(
    operators: tuple[ROperator, ...], plan: ExecutionPlan, begin: float, device: Device
) -> ExecutionPlan:
    """A plan that asks for weights ahead, where it is known what that is worth."""
    stream = device.times.persistent.stream
    if stream is None or not any(operator.constants for operator in operators):
        return plan
    asking = replace(plan, ahead=ahead_bytes(operators, plan, device))
    seconds = begin + stream_seconds(operators, asking, stream, device)
    return replace(asking, seconds=seconds)


def _plan(
    placed: Placed, begin: float, chosen: Sequence[Way], shape: Shape, veus: tuple[int, int]
) -> ExecutionPlan:
    """The execution plan of placed steps; ``veus`` are their number and bytes of shared memory."""
    num_veus, shared_bytes = veus
    return ExecutionPlan(
        num_veus=num_veus,
        veus_per_processor=shape.per_processor,
        block_size=shape.block_size,
        shared_bytes=shared_bytes,
        chosen=tuple(way.choice for way in chosen),
        copies=tuple(way.copies for way in chosen),
        steps=placed.steps,
        uses_flags=placed.uses_flags,
        residents=tuple(way.resident_bytes > 0 for way in chosen),
        seconds=begin + placed.seconds,
    )


def _chosen(estimate: Estimate, steps: Ints) -> tuple[Way, ...]:
    """The way to run each operator: the best for its step, while the code stays small enough.

    Where it does, each kind has the one way that is best with those of the others, and the kernel
    holds those other ways that most operators want.
    """
    rows = estimate.rows.tolist()
    wanted = Counter(zip(rows, _best(estimate.fits, estimate.rows, steps), strict=True))
    kept = set(wanted)
    if len(kept) > MOST_BODIES:
        kept = set(enumerate(_one_each(estimate, steps)))
        others = (pair for pair, _ in wanted.most_common() if pair not in kept)
        kept |= set(islice(others, max(0, MOST_BODIES - len(kept))))
    ways, table = _restricted(estimate, kept)
    best = _best(table, estimate.rows, steps)
    return tuple(ways[row][way] for row, way in zip(rows, best, strict=True))


def _one_each(estimate: Estimate, steps: Ints) -> list[int]:
    """One way for each kind of operators: those best for one time, whichever suits the steps."""
    best = np.unique(estimate.fits.best, axis=1).T
    tried: list[list[int]] = best[:: -(-len(best) // _TRIED)].tolist()

    def seconds(ways: list[int]) -> float:
        _, table = _restricted(estimate, set(enumerate(ways)))
        return float(table.grid[step_points(table, estimate.rows, steps)].sum())

    return min(tried, key=seconds)


def _restricted(
    estimate: Estimate, kept: set[tuple[int, int]]
) -> tuple[tuple[tuple[Way, ...], ...], Fits]:
    """The ways in ``kept``, pairs of a row and a way, and what they take."""
    ways = tuple(
        tuple(way for number, way in enumerate(several) if (row, number) in kept)
        for row, several in enumerate(estimate.ways)
    )
    return ways, fits(ways, np.bincount(estimate.rows).tolist(), estimate.fits.num_veus)


def _best(table: Fits, rows: Ints, steps: Ints) -> list[int]:
    """The number of the way in which each operator takes the fewest vEUs of its step."""
    points = step_points(table, rows, steps)[steps]
    return list(table.best[rows, points].tolist())


def _resident_sizes(
    operators: tuple[ROperator, ...], chosen: Sequence[Way], kept: dict[int, Ints], num_veus: int
) -> Ints:
    """Bytes that stay on each vEU."""
    sizes = np.zeros(num_veus, np.int64)
    ways = {o.weights: way for o, way in zip(operators, chosen, strict=True)}
    for weights, counts in kept.items():
        sizes += counts * ways[weights].resident_bytes
    return sizes
