"""The queues of a persistent kernel as the table of numbers that it reads.

A record is one rTask: 32-bit words, of which the first are named here. What the kernel does with
them is in :mod:`tvm_tile.kernel.assemble`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tvm_tile.errors import BuildError
from tvm_tile.plan.ahead import QueueEntry, entries
from tvm_tile.plan.execution_plan import ExecutionPlan, QueuedTask, ResidentPart, ROperator
from tvm_tile.plan.waits import counter_of, waits

BODY = 0  # number of the body; NOTHING where the record only waits
BLOCK = 1  # the first of its blocks
SIGNAL = 2  # the counter that it counts up; NOTHING for none
RESIDENT_PLACE = 3  # first byte of its resident part in the vEU's shared memory
WAIT_COUNT = 4  # counters that it waits for
WAITS = 5  # each: which one, and how far it must have come
MOST_WAITS = 4
MOST_ASKS = 2
ASKS = WAITS + 2 * MOST_WAITS  # each: which tensor, how many units from its start, lines
ARGUMENTS = ASKS + 3 * MOST_ASKS  # each: which tensor, and how many units from its start
NOTHING = -1
UNIT = 16  # bytes: tensors of more than 2 GiB have places that 32 bits can name

_WARP = 32  # words; a record is a multiple, so that whole warps fetch it
_MOST_UNITS = 2**31 - 1
_IDLE = (NOTHING, 0, NOTHING, 0)  # words of a record that runs nothing
_NO_WORDS = (0,) * (ARGUMENTS - WAIT_COUNT)  # of one that neither waits nor asks


@dataclass(frozen=True, slots=True)
class TaskKind:
    """Facts that all rTasks of an operator share.

    Attributes:
        body: its body's number in the kernel.
        load: the number of the body that loads its resident part; ``None`` without one.
        arguments: arguments of its kernel, each as (tensor, bytes from its start).
        load_arguments: arguments of the body that loads, likewise.
        constants: constants that it asks for ahead, likewise.
    """

    body: int
    load: int | None
    arguments: tuple[tuple[int, int], ...]
    load_arguments: tuple[tuple[int, int], ...] = ()
    constants: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordTable:
    """Table of records that the kernel reads.

    Attributes:
        words: int32, one row a record; the last one, which is none, is read but not run.
        queues: int32, of each vEU its first record and, without control flow, how many it has.
    """

    words: NDArray[np.int32]
    queues: NDArray[np.int32]


def make_table(
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    tasks: Sequence[TaskKind],
    counter: int = 0,
) -> RecordTable:
    """The records of a plan.

    Args:
        operators: the operators that were planned.
        plan: their plan.
        tasks: bodies and arguments of each operator.
        counter: the first that the kernel may use.

    Raises:
        BuildError: an argument begins where no word can say.
    """
    waited = waits(operators, plan)
    width = record_width(ARGUMENTS, tasks)
    loads, places = resident_places(operators, plan)
    rows: list[list[int]] = []
    queues: list[int] = []
    for veu, queue in enumerate(entries(operators, plan, waited)):
        first = len(rows)
        for part in loads.get(veu, ()):
            rows.append(_load(part, plan, tasks[part.operator]))
        for entry in queue:
            *earlier, last = _batches(entry, counter, tasks)
            rows += [[*_IDLE, *words] for words in earlier]
            queued = entry.task
            if queued is None:
                rows.append([*_IDLE, *last])
                continue
            task, copies = tasks[queued.operator], plan.copies[queued.operator]
            place = places.get((operators[queued.operator].weights, queued.task), 0)
            signal = counter + counter_of(plan, queued)
            head = [task.body, queued.task * copies, signal, place]
            rows.append([*head, *last, *argument_words(task.arguments)])
        queues += [first, len(rows) - first]
    rows.append([NOTHING])
    return table_of(rows, width, queues)


def recorded_tasks(
    operators: tuple[ROperator, ...], plan: ExecutionPlan
) -> tuple[tuple[QueuedTask | None, ...], ...]:
    """The rTask of each record of each vEU, in the order of :func:`make_table`.

    It is ``None`` for records that only wait, or load a resident part.
    """
    loads, _ = resident_places(operators, plan)
    found = []
    for veu, queue in enumerate(entries(operators, plan, waits(operators, plan))):
        own: list[QueuedTask | None] = [None for _ in loads.get(veu, ())]
        for entry in queue:
            own += [*[None] * (_batch_count(entry) - 1), entry.task]
        found.append(tuple(own))
    return tuple(found)


def resident_places(
    operators: tuple[ROperator, ...], plan: ExecutionPlan
) -> tuple[dict[int, list[ResidentPart]], dict[tuple[int | None, int], int]]:
    """Weights that each vEU loads at its start; by weights and rTask, where these stay."""
    loads: dict[int, list[ResidentPart]] = {}
    places: dict[tuple[int | None, int], int] = {}
    for part in plan.resident_parts(operators):
        loads.setdefault(part.veu, []).append(part)
        places[operators[part.operator].weights, part.task] = part.offset
    return loads, places


def table_of(rows: Sequence[Sequence[int]], width: int, queues: Sequence[int]) -> RecordTable:
    """Records, each filled up with zeros to ``width`` words, and where vEUs begin."""
    words = np.zeros((len(rows), width), np.int32)
    for number, row in enumerate(rows):
        words[number, : len(row)] = row
    return RecordTable(words, np.array(queues, np.int32))


def _load(part: ResidentPart, plan: ExecutionPlan, task: TaskKind) -> list[int]:
    """The record that fills a resident part; who reads it is behind it in the same queue."""
    assert task.load is not None
    first = part.task * plan.copies[part.operator]
    head = [task.load, first, NOTHING, part.offset]
    return [*head, *_NO_WORDS, *argument_words(task.load_arguments)]


def record_width(first: int, tasks: Sequence[TaskKind]) -> int:
    """Words of a record whose arguments begin at ``first``: whole warps fetch it."""
    longest = max(len(own) for task in tasks for own in (task.arguments, task.load_arguments))
    return -(-(first + 2 * longest) // _WARP) * _WARP


def argument_words(arguments: Sequence[tuple[int, int]]) -> Iterator[int]:
    """The words of arguments, each given as (tensor, bytes from its start).

    Raises:
        BuildError: one does not begin at a multiple of :data:`UNIT`, or too far from the start.
    """
    for tensor, start in arguments:
        unit, rest = divmod(start, UNIT)
        if rest or not 0 <= unit <= _MOST_UNITS:
            raise BuildError(
                f"an argument of a rTask begins at a multiple of {UNIT} bytes, at most "
                f"{_MOST_UNITS * UNIT}, in its tensor",
                f"at byte {start}",
                "launch it by itself",
            )
        yield from (tensor, unit)


def _batches(entry: QueueEntry, counter: int, tasks: Sequence[TaskKind]) -> list[list[int]]:
    """The words of waits and asks, as many as a record holds; at least one, maybe of none.

    All asks come before the last waits. Words are those from :data:`WAIT_COUNT` to
    :data:`ARGUMENTS`.
    """
    count = _batch_count(entry)
    found = []
    for number in range(count):
        # Where a vEU asks more than it waits, it asks first.
        late = number - count + max(1, -(-len(entry.waits) // MOST_WAITS))
        waited = entry.waits[MOST_WAITS * late : MOST_WAITS * (late + 1)] if late >= 0 else ()
        asked = entry.asks[MOST_ASKS * number : MOST_ASKS * (number + 1)]
        words = [len(waited)]
        words += [word for wait in waited for word in (counter + wait.counter, wait.target)]
        words += [0] * (2 * (MOST_WAITS - len(waited)))
        for ask in asked:
            tensor, start = tasks[ask.operator].constants[ask.constant]
            words += [*argument_words([(tensor, start + ask.start)]), ask.lines]
        found.append([*words, *[0] * (3 * (MOST_ASKS - len(asked)))])
    return found


def _batch_count(entry: QueueEntry) -> int:
    """Records that an entry takes for its waits and asks; the last one runs its rTask."""
    return max(1, -(-len(entry.waits) // MOST_WAITS), -(-len(entry.asks) // MOST_ASKS))
