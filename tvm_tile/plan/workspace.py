"""One workspace for the values between the operators of a persistent kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The steps from that which writes ``value`` to the last that reads it, both inclusive."""

    value: int
    born: int
    dies: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes of the workspace where ``value`` lies."""

    value: int
    offset: int
    size: int

    def overlaps(self, other: Extent) -> bool:
        """Whether both have bytes in common."""
        return self.offset < other.offset + other.size and other.offset < self.offset + self.size


def lifetimes(operators: tuple[ROperator, ...], plan: ExecutionPlan) -> tuple[Lifetime, ...]:
    """How long each value that an operator writes is needed, in the order of the operators.

    With flags nothing keeps a later step from running beside an earlier one, so that all values
    live to the end. So do those that nobody reads.

    Args:
        operators: operators of the kernel.
        plan: how they run.
    """
    last = len(plan.steps) - 1
    step_of = {
        placement.tasks.operator: number
        for number, step in enumerate(plan.steps)
        for placement in step.placements
    }
    read: dict[int, int] = {}
    for number, operator in enumerate(operators):
        for value in operator.reads:
            read[value] = max(read.get(value, 0), step_of[number])
    return tuple(
        Lifetime(value, step_of[number], last if plan.uses_flags else read.get(value, last))
        for number, operator in enumerate(operators)
        for value in operator.writes
    )


def allocate(
    sizes: Sequence[int], born: Sequence[int], dies: Sequence[int], alignment: int = 256
) -> tuple[tuple[int, ...], int]:
    """Offsets of values in one workspace: first fit, the largest first.

    Args:
        sizes: bytes of each value.
        born: the step that writes it.
        dies: the last step that needs it; values needed in the same step never overlap.
        alignment: bytes that every offset is a multiple of.

    Returns:
        The offset of each, and the bytes of the workspace.
    """
    aligned = [-(-size // alignment) * alignment for size in sizes]
    order = sorted(range(len(sizes)), key=lambda number: (-aligned[number], born[number]))
    begins, ends = np.array(born), np.array(dies)
    offsets = np.zeros(len(sizes), np.int64)
    lengths = np.array(aligned, np.int64)
    placed = np.zeros(len(sizes), bool)
    for number in order:
        beside = placed & (begins <= dies[number]) & (ends >= born[number])
        taken = sorted(zip(offsets[beside].tolist(), lengths[beside].tolist(), strict=True))
        offsets[number] = _first_gap(taken, aligned[number])
        placed[number] = True
    total = int((offsets + lengths).max()) if len(sizes) else 0
    return tuple(offsets.tolist()), total


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    """The lowest offset with ``size`` bytes that are free; ``taken`` ascends."""
    end = 0
    for offset, length in taken:
        if offset - end >= size:
            break
        end = max(end, offset + length)
    return end
