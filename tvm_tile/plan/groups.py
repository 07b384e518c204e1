"""Which operators become one persistent kernel, and which stay launches of their own.

Inside a persistent kernel an operator costs no launch and may run beside others, but it has fewer
threads and registers, and waits at its steps. A shortest path through the order of the operators
finds, for each, whether it is a launch of its own or part of a kernel with vEUs of some shape; to
begin such a kernel costs its launch. So a long operator that runs slower inside cuts a kernel in
two where that loses less.

What remains of a kernel on the way from one such operator to the next becomes one group: operators
that stay apart are moved before it or behind it as far as what they read permits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.plan.coschedule import MOST_BODIES, coschedule, kernel_seconds
from tvm_tile.plan.execution_plan import ExecutionPlan, Group, ROperator, dependences
from tvm_tile.plan.fit import Floats, Ints, fits
from tvm_tile.plan.waves import levels, step_points
from tvm_tile.plan.ways import Kinds, Shape, shapes, ways

# A persistent kernel has to be predicted so much faster than its operators apart: predictions err.
MARGIN = 0.05
_APART = -1  # in place of a shape


def partition(
    operators: tuple[ROperator, ...], device: Device, allowed: tuple[bool, ...]
) -> tuple[Group, ...]:
    """Divide operators into persistent kernels and launches of their own.

    Args:
        operators: operators in a topological order.
        device: the device that they run on.
        allowed: for each operator, whether it may be part of a persistent kernel.

    Returns:
        Groups in an order in which they can run; each operator is in one of them, and no path
        leaves a group and comes back.
    """
    before = dependences(operators)
    forced = [0 if may else _APART for may in allowed]
    if device.grid_barrier_latency is None or not any(allowed):
        chosen = [_APART] * len(operators)
    else:
        order = [n for part in _parts(before, forced) for n in part]
        chosen = _shortest_path(operators, before, device, allowed, order)
    groups: list[Group] = []
    for part in _parts(before, chosen):
        together = chosen[part[0]] != _APART
        for piece in _pieces(operators, before, part) if together else [part]:
            groups += _groups(operators, device, allowed, piece, together)
    return tuple(_merged(groups, operators, device, allowed))


def _parts(before: Sequence[tuple[int, ...]], chosen: Sequence[int]) -> list[tuple[int, ...]]:
    """Operators that are equal in ``chosen``, in an order in which they can run; parts are convex.

    A path that changes between a kernel and what is apart, or between two kernels, comes to a
    later phase, which it never leaves for an earlier one. What is apart runs first in its phase.
    """
    phases: list[int] = []
    for number, earlier in enumerate(before):
        kernel = chosen[number]
        joins = (chosen[n] not in (_APART, kernel) for n in earlier)
        found = [phases[n] + joined for n, joined in zip(earlier, joins, strict=True)]
        phases.append(max(found, default=0))
    parts: dict[tuple[int, int], list[int]] = {}
    for number, (phase, kernel) in enumerate(zip(phases, chosen, strict=True)):
        parts.setdefault((phase, kernel), []).append(number)
    return [tuple(parts[key]) for key in sorted(parts)]


def _shortest_path(
    operators: tuple[ROperator, ...],
    before: Sequence[tuple[int, ...]],
    device: Device,
    allowed: Sequence[bool],
    order: Sequence[int],
) -> list[int]:
    """For each operator, the number of its kernel's shape of vEUs, or that it stays apart."""
    kinds = Kinds.count(operators)
    inside = [
        _shares(kinds, levels(before), shape, device, held=held)
        for shape in shapes(kinds, device)
        for held in {False, any(kinds.weights)}
    ]
    seconds = np.stack([*inside, np.array([o.alone_seconds for o in operators])])
    seconds[:-1, ~np.array(allowed)] = np.inf
    begin = np.full(len(seconds), kernel_seconds(device))
    begin[-1] = 0.0
    cost = np.where(np.arange(len(seconds)) == len(inside), 0.0, np.inf)
    back = np.zeros((len(order), len(seconds)), np.int64)
    for position, number in enumerate(order):
        cheapest = int(np.argmin(cost))
        changes = cost[cheapest] + begin < cost
        back[position] = np.where(changes, cheapest, np.arange(len(seconds)))
        cost = np.where(changes, cost[cheapest] + begin, cost) + seconds[:, number]
    state = int(np.argmin(cost))
    chosen = [_APART] * len(operators)
    for position in reversed(range(len(order))):
        chosen[order[position]] = state if state < len(inside) else _APART
        state = int(back[position, state])
    return chosen


def _shares(kinds: Kinds, steps: Ints, shape: Shape, device: Device, *, held: bool) -> Floats:
    """Share of each operator in a kernel of all, in vEUs times its step's seconds.

    Args:
        kinds: kinds of the operators.
        steps: step of each operator, shape (operators,).
        shape: shape of the vEUs.
        device: the device that has the vEUs.
        held: whether weights that recur stay, where a choice lets them.

    Returns:
        Shape (operators,); infinite for those that cannot run on such vEUs.
    """
    of = np.array(kinds.of)
    possible = [
        (held and weights and ways(sample, shape, device, resident=True))
        or ways(sample, shape, device)
        for sample, weights in zip(kinds.samples, kinds.weights, strict=True)
    ]
    able = np.array([bool(several) for several in possible])
    seconds = np.full(len(of), np.inf)
    if not able.any():
        return seconds
    # Only kinds that can run have a row in the table.
    rows = np.cumsum(able) - 1
    runs = able[of]
    mine, when = rows[of[runs]], steps[runs]
    counts = np.bincount(mine).tolist()
    table = fits([several for several in possible if several], counts, shape.num_veus(device))
    points = step_points(table, mine, when)
    veus = table.veus[mine, points[when]]
    taken = np.bincount(when, veus)
    step_seconds = table.grid[points] + (device.grid_barrier_latency or 0.0)
    seconds[runs] = step_seconds[when] * veus / taken[when]
    return seconds


def _pieces(
    operators: tuple[ROperator, ...], before: Sequence[tuple[int, ...]], part: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The pieces of a part, cut between levels so that none has too much code for a kernel."""
    kinds = Kinds.count(tuple(operators[number] for number in part)).of
    inside = {number: position for position, number in enumerate(part)}
    edges = [tuple(inside[n] for n in before[number] if n in inside) for number in part]
    members: list[list[int]] = []
    for position, level in enumerate(levels(edges).tolist()):
        members += [[] for _ in range(level + 1 - len(members))]
        members[level].append(position)
    piece: list[int] = []
    for level_members in members:
        for number in _by_kind(level_members, kinds):
            if len({kinds[n] for n in piece} | {kinds[number]}) > MOST_BODIES:
                yield tuple(sorted(part[n] for n in piece))
                piece = []
            piece.append(number)
    yield tuple(sorted(part[n] for n in piece))


def _by_kind(members: Sequence[int], kinds: Sequence[int]) -> list[int]:
    """The operators, equal ones together: a cut through a level leaves few kinds on both sides."""
    return sorted(members, key=lambda number: (kinds[number], number))


def _groups(
    operators: tuple[ROperator, ...],
    device: Device,
    allowed: Sequence[bool],
    numbers: tuple[int, ...],
    together: bool,
) -> Iterator[Group]:
    """The operators as one group if its plan is good enough, else each by itself."""
    reason = "faster as a launch of its own"
    apart = sum(operators[number].alone_seconds for number in numbers)
    if together:
        plan = coschedule(tuple(operators[n] for n in numbers), device) if numbers[1:] else None
        if plan is not None and plan.seconds < (1 - MARGIN) * apart:
            yield Group(numbers, plan, apart)
            return
        reason = _refusal(plan, apart, len(numbers))
    for number in numbers:
        why = reason if allowed[number] else "not one that a persistent kernel can take in"
        yield Group((number,), None, operators[number].alone_seconds, why)


def _merged(
    groups: Sequence[Group],
    operators: tuple[ROperator, ...],
    device: Device,
    allowed: Sequence[bool],
) -> Iterator[Group]:
    """The groups, neighbours made one where that takes less time: a path decides roughly.

    All between two operators that no kernel can take in are tried as one first, then each with the
    one before it. A union of neighbours in an order in which groups can run is convex. Where the
    path has put nothing into a kernel, only what streams is tried: it does not know that clock.
    """
    for may, several in groupby(groups, lambda g: all(allowed[n] for n in g.operators)):
        run = list(several)
        if not may or not (any(group.plan for group in run) or _streams(run, operators, device)):
            yield from run
            continue
        whole = _union(run, operators, device)
        if whole is not None:
            yield whole
            continue
        last = run[0]
        for group in run[1:]:
            both = _union([last, group], operators, device) if last.plan or group.plan else None
            if both is None:
                yield last
                last = group
            else:
                last = both
        yield last


def _streams(groups: Sequence[Group], operators: tuple[ROperator, ...], device: Device) -> bool:
    """Whether plans for these operators are predicted by the stream clock (``plan/stream.py``)."""
    numbers = (number for group in groups for number in group.operators)
    is_measured = device.times.persistent.stream is not None
    return is_measured and any(operators[number].constants for number in numbers)


def _union(
    groups: Sequence[Group], operators: tuple[ROperator, ...], device: Device
) -> Group | None:
    """The plan of several groups as one kernel, if it takes less time than they do."""
    numbers = tuple(sorted(number for group in groups for number in group.operators))
    own = tuple(operators[number] for number in numbers)
    if len(groups) < 2 or len(Kinds.count(own).samples) > MOST_BODIES:
        return None
    plan = coschedule(own, device)
    seconds = sum(g.plan.seconds if g.plan else g.apart_seconds for g in groups)
    most = seconds if any(group.plan for group in groups) else (1 - MARGIN) * seconds
    if plan is None or plan.seconds >= most:
        return None
    return Group(numbers, plan, sum(group.apart_seconds for group in groups))


def _refusal(plan: ExecutionPlan | None, apart: float, count: int) -> str:
    """Words for why a group is not one persistent kernel."""
    if plan is None:
        return "no vEUs suit all of them" if count > 1 else "nothing to run beside"
    together = f"{plan.seconds * 1e6:.1f} us in one kernel of {count}"
    return f"{together}, {apart * 1e6:.1f} us apart"
