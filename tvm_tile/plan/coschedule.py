"""Put many kernels into one persistent kernel (Rammer, OSDI 2020, section 4).

For every shape of the vEUs, the steps and the ways to run the operators are chosen by an estimate
of each step (:mod:`tvm_tile.plan.fit`); the best few are placed, with barriers and with flags, and
of all the one that takes the least predicted time is the plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator, dependences
from tvm_tile.plan.fit import Fits, Ints, fits
from tvm_tile.plan.place import Placed, Placer, homes
from tvm_tile.plan.waves import form_steps, levels, step_points
from tvm_tile.plan.ways import Kinds, Shape, Way, shapes, ways

# What a cooperative launch takes longer than another one.
COOPERATIVE_SECONDS = 2e-6
# Different (body, choice, copies) whose code one kernel holds.
MOST_BODIES = 24
_PLACED = 3  # estimates, best first, that are placed


@dataclass(frozen=True, slots=True)
class Estimate:
    """A shape of vEUs, and how long operators take on it by topological levels.

    Attributes:
        shape: of a vEU.
        ways: of each kind of operator, how it may be run.
        fits: what these take.
        seconds: of all levels, without what the kernel costs by itself.
    """

    shape: Shape
    ways: tuple[tuple[Way, ...], ...]
    fits: Fits
    seconds: float


def kernel_seconds(device: Device) -> float:
    """What a persistent kernel costs beside its steps: launch, and the barrier behind zeroing.

    Args:
        device: one with a barrier of the whole grid.
    """
    return device.launch_latency + COOPERATIVE_SECONDS + (device.grid_barrier_latency or 0.0)


def coschedule(operators: tuple[ROperator, ...], device: Device) -> ExecutionPlan | None:
    """The best persistent kernel for ``operators``, each of them in it.

    Args:
        operators: in a topological order.
        device: where they run.

    Returns:
        The plan; None where the device has no barrier of the whole grid, or where no shape of the
        vEUs suits every operator.
    """
    if not operators or device.grid_barrier_latency is None:
        return None
    kinds = Kinds.count(operators)
    before = dependences(operators)
    of = np.array(kinds.of)
    estimates = sorted(
        estimated(kinds, of, levels(before), device), key=lambda estimate: estimate.seconds
    )
    tried = (_plans(operators, of, before, estimate, device) for estimate in estimates)
    # Those without plans, as the weights that should stay are too many, do not count.
    placed = islice((plans for plans in tried if plans), _PLACED)
    plans = (plan for several in placed for plan in several)
    return min(plans, key=lambda plan: plan.seconds, default=None)


def estimated(
    kinds: Kinds, of: Ints, steps: Ints, device: Device, *, partly: bool = False
) -> Iterator[Estimate]:
    """Estimates for each shape of vEUs on which all operators can run.

    Args:
        kinds: the kinds of operators.
        of: the kind of each, shape (operators,).
        steps: of each, shape (operators,).
        device: where they run.
        partly: whether shapes count on which only some can run; those that cannot have no ways.
    """
    for shape in shapes(kinds, device):
        possible = tuple(ways(kinds, k, shape, device) for k in range(len(kinds.samples)))
        if not any(possible) or not (partly or all(possible)):
            continue
        for pinned in (
            _pinned(possible, of, steps, shape, device) if shape.residents else [possible]
        ):
            yield _estimate(shape, pinned, of, steps, device)


def _estimate(
    shape: Shape, possible: tuple[tuple[Way, ...], ...], of: Ints, steps: Ints, device: Device
) -> Estimate:
    table = fits(
        possible, np.bincount(of, minlength=len(possible)).tolist(), shape.num_veus(device)
    )
    taken = table.grid[step_points(table, of, steps)]
    barriers = (device.grid_barrier_latency or 0.0) * len(taken)
    return Estimate(shape, possible, table, float(taken.sum()) + barriers)


def _pinned(
    possible: tuple[tuple[Way, ...], ...], of: Ints, steps: Ints, shape: Shape, device: Device
) -> Iterator[tuple[tuple[Way, ...], ...]]:
    """Kinds with resident weights have one way, the same in all steps: its best at some time."""
    held = [number for number, several in enumerate(possible) if several[0].resident_bytes]
    table = fits(
        possible, np.bincount(of, minlength=len(possible)).tolist(), shape.num_veus(device)
    )
    for best in np.unique(table.best[held], axis=1).T.tolist():
        pins = dict(zip(held, best, strict=True))
        yield tuple(
            (several[pins[number]],) if number in pins else several
            for number, several in enumerate(possible)
        )


def _plans(
    operators: tuple[ROperator, ...],
    of: Ints,
    before: Sequence[tuple[int, ...]],
    estimate: Estimate,
    device: Device,
) -> tuple[ExecutionPlan, ...]:
    """The plans for a shape: with barriers and with flags; none where weights do not fit."""
    barrier = device.grid_barrier_latency or 0.0
    steps = form_steps(estimate.fits, of, before, barrier)
    chosen = _chosen(of, steps, estimate)
    num_veus = estimate.shape.num_veus(device)
    scratch = max(way.scratch_bytes for way in chosen)
    room = estimate.shape.shared_bytes(device) - scratch
    kept = homes(operators, chosen, steps, num_veus, room)
    if kept is None:
        return ()
    placer = Placer(operators, chosen, before, kept, num_veus)
    members: list[list[int]] = [[] for _ in range(int(steps.max()) + 1)]
    for number, step in enumerate(steps.tolist()):
        members[step].append(number)
    sizes = _resident_sizes(operators, chosen, kept, num_veus)
    # All load at once, and those that load most end last.
    load = sizes.max() * num_veus / device.read_bandwidth
    begin = kernel_seconds(device) + float(load)
    veus = num_veus, scratch + int(sizes.max())
    both = placer.with_barriers(members, barrier), placer.with_flags(members)
    return tuple(_plan(placed, begin, chosen, estimate.shape, veus) for placed in both)


def _plan(
    placed: Placed, begin: float, chosen: Sequence[Way], shape: Shape, veus: tuple[int, int]
) -> ExecutionPlan:
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


def _chosen(of: Ints, steps: Ints, estimate: Estimate) -> tuple[Way, ...]:
    """How each operator is run: the best for its step, as far as the code does not grow too large.

    Where it does, each kind keeps the way that most of its operators want, and the kernel those
    of the others that are wanted most.
    """
    wanted = Counter(zip(of.tolist(), _best(estimate.fits, of, steps), strict=True))
    first = dict(reversed([pair for pair, _ in wanted.most_common()]))
    kept = set(first.items())
    others = (pair for pair, _ in wanted.most_common() if pair not in kept)
    kept |= set(islice(others, max(0, MOST_BODIES - len(kept))))
    ways = tuple(
        tuple(way for number, way in enumerate(several) if (kind, number) in kept)
        for kind, several in enumerate(estimate.ways)
    )
    table = fits(ways, np.bincount(of).tolist(), estimate.fits.num_veus)
    best = _best(table, of, steps)
    return tuple(ways[kind][way] for kind, way in zip(of.tolist(), best, strict=True))


def _best(table: Fits, of: Ints, steps: Ints) -> list[int]:
    """The number of the way in which each operator takes the fewest vEUs of its step."""
    points = step_points(table, of, steps)[steps]
    return list(table.best[of, points].tolist())


def _resident_sizes(
    operators: tuple[ROperator, ...], chosen: Sequence[Way], kept: dict[int, Ints], num_veus: int
) -> Ints:
    """Bytes that stay on each vEU."""
    sizes = np.zeros(num_veus, np.int64)
    ways = {o.weights: way for o, way in zip(operators, chosen, strict=True)}
    for weights, counts in kept.items():
        sizes += counts * ways[weights].resident_bytes
    return sizes
