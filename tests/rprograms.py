"""Random programs of loops, branches and calls, and plans that place their operators anyhow."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tvm_tile.plan.calls import cut_at_calls
from tvm_tile.plan.execution_plan import (
    ExecutionPlan,
    Placement,
    PlanStep,
    RKernel,
    ROperator,
    RTasks,
)
from tvm_tile.plan.path import Says
from tvm_tile.plan.rprogram import (
    Bounds,
    Branch,
    Footprint,
    Invoke,
    Item,
    Repeat,
    RProgram,
    Series,
    While,
)

_DEEPEST = 3


@dataclass(frozen=True, slots=True)
class RandomProgram:
    """A program, its operators, a plan, and what decisions say."""

    operators: tuple[ROperator, ...]
    program: RProgram
    plan: ExecutionPlan
    says: Says


class _Writer:
    def __init__(self, rng: random.Random, memories: int, functions: int) -> None:
        self._rng, self._memories, self._functions = rng, memories, functions
        self.accesses: list[Footprint] = []
        self.decisions: list[int] = []
        self._regions = 0

    def items(self, depth: int, *, calls: bool, within: bool) -> tuple[Item, ...]:
        """Some items, with ``calls`` or without, of the program or ``within`` a function."""
        count = self._rng.randint(1, 3)
        return tuple(self._item(depth, calls=calls, within=within) for _ in range(count))

    def function(self) -> tuple[Item, ...]:
        """Items that call in some branches, so that calls end."""
        return (*self.items(1, calls=True, within=True), self._calling(1))

    def _item(self, depth: int, *, calls: bool, within: bool) -> Item:
        kind = self._rng.choice(("run", "run", "repeat", "while", "branch", "call"))
        if kind == "call" and calls and self._functions:
            return self._calling(depth) if within else self._call()
        if depth >= _DEEPEST or kind in ("run", "call"):
            first = len(self.accesses)
            self.accesses += [self._access() for _ in range(self._rng.randint(1, 3))]
            return Series(tuple(range(first, len(self.accesses))))
        # Loops count for all calls of a function together.
        inside = {"calls": calls and (not within or kind == "branch"), "within": within}
        if kind == "repeat":
            return Repeat(self._region(), self._rng.randint(1, 3), self.items(depth + 1, **inside))
        if kind == "while":
            decision = self._decision()
            head, region, body = self._region(), self._region(), self.items(depth + 1, **inside)
            if depth + 1 < _DEEPEST and self._rng.random() < 0.3:
                # Another iteration, at its end.
                body = *body, self._branch(depth + 1, head, **inside)
            return While(head, region, decision, body)
        return self._branch(depth, **inside)

    def _branch(
        self, depth: int, turn_of: int | None = None, *, calls: bool, within: bool
    ) -> Branch:
        decision = self._decision()
        then, other = self._region(), self._region()
        inside = {"calls": calls, "within": within}
        first = self.items(depth + 1, **inside)
        second = self.items(depth + 1, **inside) if self._rng.random() < 0.5 else ()
        return Branch(decision, then, first, other, second, turn_of)

    def _calling(self, depth: int) -> Branch:
        """A branch one side of which calls."""
        decision, then, other = self._decision(), self._region(), self._region()
        before, behind = (
            self.items(_DEEPEST, calls=False, within=True) if self._rng.random() < 0.7 else ()
            for _ in range(2)
        )
        calls = tuple(self._call() for _ in range(self._rng.randint(1, 2)))
        otherwise = self.items(depth + 1, calls=False, within=True)
        return Branch(decision, then, (*before, *calls, *behind), other, otherwise)

    def _call(self) -> Invoke:
        return Invoke(self._rng.randrange(self._functions))

    def _decision(self) -> int:
        self.decisions.append(self._rng.randrange(self._memories))
        return len(self.decisions) - 1

    def _region(self) -> int:
        self._regions += 1
        return self._regions

    def _access(self) -> Footprint:
        def some(most: int) -> frozenset[int]:
            count = self._rng.randint(0, most)
            return frozenset(self._rng.choices(range(self._memories), k=count))

        writes = some(2) or frozenset((self._rng.randrange(self._memories),))
        return Footprint(some(3), writes)


def random_program(rng: random.Random, veus: int = 3) -> RandomProgram:
    """A program of which each operator reads and writes any of a few memories."""
    count = rng.choice((0, 0, 1, 2))
    writer = _Writer(rng, rng.randint(2, 6), count)
    items = writer.items(0, calls=True, within=False)
    functions = tuple(writer.function() for _ in range(count))
    bounds = Bounds(rng.choice((1, 2, 1000)), rng.randint(1, 4))
    touched = tuple(writer.accesses), tuple(writer.decisions)
    program = cut_at_calls(RProgram(items, *touched, bounds, functions))
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
        steps.append(PlanStep((rng.choice(spread),)))
    zeros = (0,) * len(blocks)
    ones, stays = (1,) * len(blocks), (False,) * len(blocks)
    plan = ExecutionPlan(veus, 1, 32, 16, zeros, ones, tuple(steps), True, stays, 1e-6)
    return tuple(operators), plan
