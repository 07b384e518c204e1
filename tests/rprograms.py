"""Random programs of loops and branches, and plans that place their operators anyhow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.plan.execution_plan import (
    ExecutionPlan,
    Placement,
    RKernel,
    ROperator,
    RTasks,
    Step,
)
from tvm_tile.plan.path import Says
from tvm_tile.plan.rprogram import Access, Bounds, Branch, Item, Repeat, RProgram, Run, While

_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """A program, its operators, a plan, and what decisions say."""

    operators: tuple[ROperator, ...]
    program: RProgram
    plan: ExecutionPlan
    says: Says


class _Writer:
    def __init__(self, rng: random.Random, memories: int) -> None:
        self._rng, self._memories = rng, memories
        self.accesses: list[Access] = []
        self.decisions: list[int] = []
        self._regions = 0

    def items(self, depth: int) -> tuple[Item, ...]:
        return tuple(self._item(depth) for _ in range(self._rng.randint(1, 3)))

    def _item(self, depth: int) -> Item:
        kind = self._rng.choice(("run", "run", "repeat", "while", "branch"))
        if depth == _DEEPEST or kind == "run":
            first = len(self.accesses)
            self.accesses += [self._access() for _ in range(self._rng.randint(1, 3))]
            return Run(tuple(range(first, len(self.accesses))))
        if kind == "repeat":
            return Repeat(self._region(), self._rng.randint(1, 3), self.items(depth + 1))
        if kind == "while":
            decision = self._decision()
            head, region, body = self._region(), self._region(), self.items(depth + 1)
            if depth + 1 < _DEEPEST and self._rng.random() < 0.3:
                body = *body, self._branch(depth + 1, head)  # another iteration, at its end
            return While(head, region, decision, body)
        return self._branch(depth)

    def _branch(self, depth: int, turn_of: int | None = None) -> Branch:
        decision = self._decision()
        then, other = self._region(), self._region()
        sides = self.items(depth + 1), self.items(depth + 1) if self._rng.random() < 0.5 else ()
        return Branch(decision, then, sides[0], other, sides[1], turn_of)

    def _decision(self) -> int:
        self.decisions.append(self._rng.randrange(self._memories))
        return len(self.decisions) - 1

    def _region(self) -> int:
        self._regions += 1
        return self._regions

    def _access(self) -> Access:
        def some(most: int) -> frozenset[int]:
            count = self._rng.randint(0, most)
            return frozenset(self._rng.choices(range(self._memories), k=count))

        writes = some(2) or frozenset((self._rng.randrange(self._memories),))
        return Access(some(3), writes)


def random_program(rng: random.Random, veus: int = 3) -> RandomProgram:
    """A program of which each operator reads and writes any of a few memories."""
    writer = _Writer(rng, rng.randint(2, 6))
    items = writer.items(0)
    bounds = Bounds(rng.choice((1, 2, 1000)))
    program = RProgram(items, tuple(writer.accesses), tuple(writer.decisions), bounds)
    operators, plan = placed(program, [rng.randint(1, 4) for _ in program.accesses], veus, rng)
    salt = rng.randrange(1 << 30)

    def says(decision: int, turn: int) -> bool:
        return random.Random(f"{salt}, {decision}, {turn}").random() < 0.55

    return RandomProgram(operators, program, plan, says)


def placed(
    program: RProgram, blocks: Sequence[int], veus: int, rng: random.Random
) -> tuple[tuple[ROperator, ...], ExecutionPlan]:
    """Operators of so many rTasks each, and a plan that places them anyhow."""
    operators, steps = [], []
    for number, count in enumerate(blocks):
        kernel = RKernel(count, 32, 0, 32, 1e-6, 1e-7)
        operators.append(ROperator(f"o{number}", (kernel,), (), (), 1e-6, body=number))
        tasks = RTasks(number, 0, count)
        spread = Placement(tasks, 0, veus), Placement(tasks, rng.randrange(veus), 1)
        steps.append(Step((rng.choice(spread),)))
    zeros = (0,) * len(blocks)
    ones, stays = (1,) * len(blocks), (False,) * len(blocks)
    plan = ExecutionPlan(veus, 1, 32, 16, zeros, ones, tuple(steps), True, stays, 1e-6)
    return tuple(operators), plan
