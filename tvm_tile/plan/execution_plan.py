"""Places and order of many kernels inside one persistent kernel: Rammer's rProgram as data.

The names are those of Rammer (OSDI 2020), section 3. A vEU is one resident thread block of the
persistent kernel. An rOperator is one scheduled kernel, a grid of blocks; an rTask is a few
neighbouring blocks of it, which run side by side in one vEU. Each vEU has a queue of rTasks, in
the order of steps that all vEUs agree on; an rTask reads only what earlier steps wrote.

Sizes are bytes, times are seconds, and operators are numbered by their position in the tuple that
was planned.
"""

from __future__ import annotations

from dataclasses import dataclass

# Barriers with numbers that one thread block has, less that of __syncthreads: groups of threads
# side by side in a vEU need one each.
MOST_COPIES = 15
# What lies in a vEU's shared memory begins at multiples of so many bytes.
_SHARED_ALIGNMENT = 128


def aligned(size: int) -> int:
    """Bytes of shared memory that ``size`` of them take, so that what follows is aligned."""
    return -(-size // _SHARED_ALIGNMENT) * _SHARED_ALIGNMENT


@dataclass(frozen=True, slots=True)
class RKernel:
    """One of the ways to run a rOperator: Rammer's rKernel.

    One with a resident part has two bodies: the first loads a block's weights into shared memory,
    once a vEU at the start of the kernel, the second finds them there. Times, shared memory and
    registers are of the second.

    Attributes:
        blocks: blocks of its grid.
        threads: threads of a block.
        shared_bytes: bytes of shared memory of a block, without the resident part; rTasks of a vEU
            use the same bytes one after the other.
        registers: registers of a thread.
        block_seconds: one block alone on a multiprocessor, from its first to its last instruction.
        busy_seconds: seconds for which a block would keep its multiprocessor busy, if that did
            nothing else.
        resident_bytes: bytes of a block's weights that stay in shared memory; zero where none do.
        barriers: whether its threads wait for one another.
    """

    blocks: int
    threads: int
    shared_bytes: int
    registers: int
    block_seconds: float
    busy_seconds: float
    resident_bytes: int = 0
    barriers: bool = True


@dataclass(frozen=True, slots=True)
class ROperator:
    """A kernel of the graph, as an operator with several rKernels: Rammer's rOperator.

    Attributes:
        name: name for people.
        choices: the ways to run it, ranked; the first is the fastest alone.
        reads: numbers of the values it reads.
        writes: numbers of the values it writes; each value has one writer at most.
        alone_seconds: seconds as a launch of its own in a graph, launch included.
        weights: equal for operators that read the same constants, so that they can share what is
            resident; None where no choice has a resident part.
        body: equal for operators whose code is the same, choice by choice.
        constants: bytes of each constant that it reads and that is worth asking for ahead.
    """

    name: str
    choices: tuple[RKernel, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    alone_seconds: float
    weights: int | None = None
    body: int = 0
    constants: tuple[int, ...] = ()

    @property
    def constant_bytes(self) -> int:
        """Bytes of all its constants that are worth asking for ahead."""
        return sum(self.constants)


@dataclass(frozen=True, slots=True)
class RTasks:
    """Consecutive rTasks of one operator: ``start`` to ``stop``, without ``stop``."""

    operator: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Placement:
    """rTask ``i`` of ``tasks`` runs on vEU ``first_veu + (i - tasks.start) % num_veus``."""

    tasks: RTasks
    first_veu: int
    num_veus: int

    def veu(self, task: int) -> int:
        """The vEU that rTask ``task`` runs on."""
        return self.first_veu + (task - self.tasks.start) % self.num_veus


@dataclass(frozen=True, slots=True)
class PlanStep:
    """rTasks that do not depend on one another; a vEU runs its own in the order given here."""

    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """Number ``task`` of the rTasks of ``operator``, in step ``step``.

    Its blocks are ``task * copies`` and the next ones, ``copies`` in all or up to the last.
    """

    step: int
    operator: int
    task: int


@dataclass(frozen=True, slots=True)
class ResidentPart:
    """Weights that vEU ``veu`` loads at its start, for rTask ``task`` of each of its operators.

    Attributes:
        operator: the first with these weights; its body loads them, and those after it share them.
        task: number of the rTask; the part holds the weights of each of its blocks, one after
            another.
        veu: the vEU on which they stay.
        offset: place in the vEU's shared memory, in bytes.
        size: bytes, ``copies * resident_bytes``.
    """

    operator: int
    task: int
    veu: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """A persistent kernel: what runs where, and in which order.

    Attributes:
        num_veus: thread blocks, all resident at once.
        veus_per_processor: vEUs on one multiprocessor.
        block_size: threads of each.
        shared_bytes: bytes of shared memory of each vEU: scratch, which is the most that an rTask
            needs (``copies * shared_bytes``), then the resident parts.
        chosen: for each operator, the number of the choice that it is run by.
        copies: for each operator, the blocks side by side in an rTask.
        steps: steps in their order.
        uses_flags: whether an rTask waits just for the operators whose values it reads, instead of
            all vEUs for one another between steps.
        residents: for each operator, whether its weights stay in shared memory; then its choice has
            a resident part.
        seconds: predicted, launch included.
        ahead: for each operator, the bytes of its constants that the vEUs ask for before they wait
            for its other inputs (:mod:`tvm_tile.plan.ahead`); empty where they ask for nothing.
    """

    num_veus: int
    veus_per_processor: int
    block_size: int
    shared_bytes: int
    chosen: tuple[int, ...]
    copies: tuple[int, ...]
    steps: tuple[PlanStep, ...]
    uses_flags: bool
    residents: tuple[bool, ...]
    seconds: float
    ahead: tuple[int, ...] = ()

    def choice(self, operators: tuple[ROperator, ...], operator: int) -> RKernel:
        """The rKernel that ``operator`` is run by."""
        return operators[operator].choices[self.chosen[operator]]

    def tasks(self, operators: tuple[ROperator, ...], operator: int) -> int:
        """How many rTasks ``operator`` has."""
        return -(-self.choice(operators, operator).blocks // self.copies[operator])

    def scratch_bytes(self, operators: tuple[ROperator, ...]) -> int:
        """Shared memory that the rTasks of a vEU use in turns; resident parts begin behind it."""
        most = max(
            self.copies[number] * self.choice(operators, number).shared_bytes
            for number in range(len(operators))
        )
        return aligned(most)

    def queues(self) -> tuple[tuple[QueuedTask, ...], ...]:
        """The queue of each vEU: what it runs, in order."""
        queues: list[list[QueuedTask]] = [[] for _ in range(self.num_veus)]
        for number, step in enumerate(self.steps):
            for placement in step.placements:
                tasks = placement.tasks
                for task in range(tasks.start, tasks.stop):
                    queued = QueuedTask(number, tasks.operator, task)
                    queues[placement.veu(task)].append(queued)
        return tuple(map(tuple, queues))

    def bodies(self, operators: tuple[ROperator, ...]) -> tuple[tuple[int, int, int], ...]:
        """The different (body, choice, copies), whose code the kernel holds once each."""
        triples = zip((o.body for o in operators), self.chosen, self.copies, strict=True)
        return tuple(sorted(set(triples)))

    def resident_parts(self, operators: tuple[ROperator, ...]) -> tuple[ResidentPart, ...]:
        """The weights that each vEU loads at its start, and where to; vEU by vEU."""
        scratch = self.scratch_bytes(operators)
        ends = [scratch] * self.num_veus
        seen: set[tuple[int | None, int]] = set()
        parts = []
        for step in self.steps:
            for placement in step.placements:
                tasks = placement.tasks
                if not self.residents[tasks.operator]:
                    continue
                bytes_of_block = self.choice(operators, tasks.operator).resident_bytes
                size = bytes_of_block * self.copies[tasks.operator]
                for task in range(tasks.start, tasks.stop):
                    key = (operators[tasks.operator].weights, task)
                    if key in seen:
                        continue
                    seen.add(key)
                    veu = placement.veu(task)
                    parts.append(ResidentPart(tasks.operator, task, veu, ends[veu], size))
                    ends[veu] += aligned(size)
        return tuple(sorted(parts, key=lambda part: (part.veu, part.offset)))


@dataclass(frozen=True, slots=True)
class Group:
    """Operators that become one persistent kernel, or one that stays a launch of its own.

    Attributes:
        operators: their numbers, ascending.
        plan: how they run, with operators numbered by their position in ``operators``; None where
            they stay apart.
        apart_seconds: seconds of its operators as launches of their own.
        reason: why they stay apart; empty where there is a plan.
    """

    operators: tuple[int, ...]
    plan: ExecutionPlan | None
    apart_seconds: float
    reason: str = ""


def dependences(operators: tuple[ROperator, ...]) -> tuple[tuple[int, ...], ...]:
    """The operators whose values each one reads, ascending; what none of them writes is there."""
    writers = {value: number for number, o in enumerate(operators) for value in o.writes}
    return tuple(
        tuple(sorted({writers[value] for value in o.reads if value in writers})) for o in operators
    )
