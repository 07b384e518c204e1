"""Estimates of how long operators take in one persistent kernel, for every shape of its vEUs.

Weights that several operators read may stay in shared memory: then each kind of operator has one
way, the same in all steps, and of its weights as many stay as there is room for. The others'
operators read theirs in each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tvm_tile.device.device import Device
from tvm_tile.plan.execution_plan import ROperator
from tvm_tile.plan.fit import Fits, Ints, fits
from tvm_tile.plan.waves import step_points
from tvm_tile.plan.ways import Kinds, Shape, Way, shapes, ways

_Ways = tuple[Way, ...]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A shape of vEUs, and how long operators take on it by topological levels.

    Attributes:
        shape: shape of a vEU.
        rows: rows of the operators in ``ways`` and ``fits``, shape (operators,).
        ways: how the operators of a row may be run.
        fits: times of the fits.
        seconds: seconds of all levels, and of loading weights that stay.
    """

    shape: Shape
    rows: Ints
    ways: tuple[_Ways, ...]
    fits: Fits
    seconds: float


def estimated(operators: tuple[ROperator, ...], steps: Ints, device: Device) -> Iterator[Estimate]:
    """Estimates for each shape of vEUs on which all operators can run.

    Args:
        operators: all in one kernel.
        steps: steps of each operator, shape (operators,).
        device: the device that they run on.
    """
    kinds = Kinds.count(operators)
    of = np.array(kinds.of)
    for shape in shapes(kinds, device):
        plain = [ways(sample, shape, device) for sample in kinds.samples]
        if all(plain):
            yield _estimate(shape, plain, of, steps, device)
        held = [
            ways(sample, shape, device, resident=True) if weights else ()
            for sample, weights in zip(kinds.samples, kinds.weights, strict=True)
        ]
        if any(held):
            yield from _holding(operators, kinds, shape, (plain, held), steps, device)


def _estimate(
    shape: Shape, possible: Sequence[_Ways], of: Ints, steps: Ints, device: Device
) -> Estimate:
    """The estimate for operators whose kinds are ``of``; only kinds that occur have rows."""
    used, rows = np.unique(of, return_inverse=True)
    several = tuple(possible[kind] for kind in used.tolist())
    table = fits(several, np.bincount(rows).tolist(), shape.num_veus(device))
    taken = table.grid[step_points(table, rows, steps)]
    barriers = (device.grid_barrier_latency or 0.0) * len(taken)
    return Estimate(shape, rows, several, table, float(taken.sum()) + barriers)


def _holding(
    operators: tuple[ROperator, ...],
    kinds: Kinds,
    shape: Shape,
    possible: tuple[list[_Ways], list[_Ways]],
    steps: Ints,
    device: Device,
) -> Iterator[Estimate]:
    """Estimates where weights stay, in the ways that are best for some time of the grid."""
    plain, held = possible
    # Scratch is taken from what may stay: no more than the fastest ways need.
    scratch = max(several[0].scratch_bytes for several in (*plain, *held) if several)
    plain = [tuple(way for way in several if way.scratch_bytes <= scratch) for several in plain]
    holding = [number for number, several in enumerate(held) if several]
    counts = np.bincount(np.array(kinds.of)).tolist()
    table = fits(
        [held[number] for number in holding],
        [counts[number] for number in holding],
        shape.num_veus(device),
    )
    room = shape.shared_bytes(device) - scratch
    for best in np.unique(table.best, axis=1).T.tolist():
        pins = {kind: held[kind][way] for kind, way in zip(holding, best, strict=True)}
        staying = _staying(kinds, pins, shape.num_veus(device), room)
        # Behind the kinds come the same kinds with weights that stay.
        shift = len(plain)
        rows = np.array(
            [
                kind + shift * (operator.weights in staying.get(kind, ()))
                for kind, operator in zip(kinds.of, operators, strict=True)
            ]
        )
        rows_ways = [*plain, *((pins[kind],) if kind in pins else () for kind in range(shift))]
        if not all(rows_ways[row] for row in set(rows.tolist())):
            continue
        loaded = sum(len(s) * pins[k].tasks * pins[k].resident_bytes for k, s in staying.items())
        found = _estimate(shape, rows_ways, rows, steps, device)
        seconds = found.seconds + loaded / device.read_bandwidth
        yield Estimate(found.shape, found.rows, found.ways, found.fits, seconds)


def _staying(
    kinds: Kinds, pins: dict[int, Way], num_veus: int, room: int
) -> dict[int, tuple[int, ...]]:
    """For each kind of operator, the weights that stay: those that fit on vEUs which hold no
    others.
    """
    free = num_veus
    staying = {}
    for kind, way in pins.items():
        slots = room // way.resident_bytes
        names = kinds.weights[kind][: free * slots // way.tasks]
        if names:
            staying[kind] = names
            free -= -(-len(names) * way.tasks // slots)
    return staying
