"""Run an execution plan in a random interleaving, with counters as the kernel has them.

An rTask is two events: it begins, and reads; it ends, what it wrote is there, and it adds to its
counter. Between them any other vEU may do anything.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tvm_tile.plan.ahead import entries
from tvm_tile.plan.check_plan import require
from tvm_tile.plan.execution_plan import ExecutionPlan, QueuedTask, ROperator
from tvm_tile.plan.waits import Wait, Waits, counter_of, waits
from tvm_tile.plan.workspace import Extent


def simulate(
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    extents: Sequence[Extent],
    rng: random.Random,
    waited: Waits | None = None,
) -> None:
    """Run all queues, each event on a vEU picked at random.

    Args:
        operators: the operators that were planned.
        plan: their plan.
        extents: places of values in the workspace; the others have memory of their own.
        rng: picks.
        waited: waits of rTasks, if they are others than those of
            :func:`~tvm_tile.plan.waits.waits`.

    Raises:
        PlanError: an rTask reads a value that is not completely written, or writes over one that
            others have yet to read; or no vEU can go on.
    """
    run = _Run(operators, plan, extents, waited or waits(operators, plan))
    active = list(range(plan.num_veus))
    waiting: list[int] = []
    while active:
        position = rng.randrange(len(active))
        veu = active[position]
        outcome = run.advance(veu)
        if outcome == "goes on":
            continue
        active[position] = active[-1]
        active.pop()
        if outcome == "waits":
            waiting.append(veu)
        if run.counted:
            active += waiting
            waiting, run.counted = [], False
        stuck = f"vEUs {waiting} wait, and nobody runs"
        require(bool(active) or not waiting, "some vEU can go on", stuck)


class _Run:
    """The state of a run: counters, where each vEU is, and what memory holds."""

    def __init__(
        self,
        operators: tuple[ROperator, ...],
        plan: ExecutionPlan,
        extents: Sequence[Extent],
        waited: Waits,
    ) -> None:
        self._plan = plan
        self._targets = frozenset(wait for several in waited for wait in several)
        self._memory = _Memory(operators, plan, extents)
        self._queues = entries(operators, plan, waited)
        self._next = [0] * plan.num_veus  # in its queue
        self._running = [False] * plan.num_veus
        self._counters = [0] * len(waited)
        self.counted = False  # whether a counter reached its target

    def advance(self, veu: int) -> str:
        """Take one event of a vEU; whether it then "goes on", or "waits", or is at its "end"."""
        queue, position = self._queues[veu], self._next[veu]
        if position == len(queue):
            return "end"
        task, waited = queue[position].task, queue[position].waits
        if task is not None and self._running[veu]:
            self._end(veu, task, counter_of(self._plan, task))
        elif not all(self._counters[wait.counter] >= wait.target for wait in waited):
            return "waits"
        elif task is None:
            self._next[veu] += 1
        else:
            self._memory.begin(task)
            self._running[veu] = True
        return "goes on"

    def _end(self, veu: int, task: QueuedTask, counter: int) -> None:
        """End a rTask: count it, and move its vEU on."""
        self._memory.end(task)
        self._running[veu] = False
        self._next[veu] += 1
        self._counters[counter] += 1
        self.counted |= Wait(counter, self._counters[counter]) in self._targets


class _Memory:
    """Keeps which values are there, completely, and who still has to read them."""

    def __init__(
        self, operators: tuple[ROperator, ...], plan: ExecutionPlan, extents: Sequence[Extent]
    ) -> None:
        self._reads = [tuple(set(operator.reads)) for operator in operators]
        self._writes = [operator.writes for operator in operators]
        tasks = [plan.tasks(operators, number) for number in range(len(operators))]
        # rTasks that have yet to write a value, and to read it.
        self._unwritten = {v: tasks[n] for n, writes in enumerate(self._writes) for v in writes}
        self._unread = dict.fromkeys(self._unwritten, 0)
        for number, reads in enumerate(self._reads):
            for value in reads:
                if value in self._unread:
                    self._unread[value] += tasks[number]
        self._is_read = {value for value, count in self._unread.items() if count}
        self._begun: set[int] = set()
        self._beside: dict[int, list[int]] = {extent.value: [] for extent in extents}
        for one in extents:
            self._beside[one.value] += [
                other.value for other in extents if other is not one and other.overlaps(one)
            ]

    def begin(self, task: QueuedTask) -> None:
        """Check that a rTask's inputs are complete, and that it overwrites nothing still in use."""
        for value in self._reads[task.operator]:
            whole = not self._unwritten.get(value, 0)
            require(whole, "an rTask reads values that are there", f"{task} reads value {value}")
        for value in self._writes[task.operator]:
            if value in self._begun:
                continue
            self._begun.add(value)
            for other in self._beside.get(value, ()):
                self._overwrite(other, task)

    def _overwrite(self, value: int, task: QueuedTask) -> None:
        """Check that a value which shares memory with a new one was read by all its readers."""
        if value not in self._begun:
            return
        done = value in self._is_read and not self._unread[value] and not self._unwritten[value]
        require(done, "values are overwritten when all have read them", f"{task} on value {value}")

    def end(self, task: QueuedTask) -> None:
        """Note that a rTask has written its outputs and read its inputs."""
        for value in self._writes[task.operator]:
            self._unwritten[value] -= 1
        for value in self._reads[task.operator]:
            if value in self._unread:
                self._unread[value] -= 1
