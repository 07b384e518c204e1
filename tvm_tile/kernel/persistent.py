"""From an execution plan to the persistent kernel and the tables that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx

from tvm_tile.device.device import Device
from tvm_tile.errors import BuildError
from tvm_tile.kernel.assemble import assemble
from tvm_tile.kernel.body import Body, lower_body
from tvm_tile.kernel.dispatch import CopiedBody, FlowSizes, KernelSizes, Parameter
from tvm_tile.plan import program_records
from tvm_tile.plan.calls import Frames
from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.program_records import make_program_table
from tvm_tile.plan.records import ARGUMENTS, RecordTable, TaskKind, make_table
from tvm_tile.plan.rprogram import RProgram

_LEAST_SHARED = 16  # bytes: a pool is never empty


@dataclass(frozen=True, slots=True)
class TaskBodies:
    """Statements that the rTasks of a rOperator run.

    Attributes:
        body: body of a rTask.
        load: body that fills its resident part, where it has one.
        load_arguments: positions, among its arguments, of those that ``load`` is given.
        run_arguments: the positions of those that ``body`` is given.
    """

    body: Body
    run_arguments: tuple[int, ...]
    load: Body | None = None
    load_arguments: tuple[int, ...] = ()


class Lowering:
    """A way to run a function's kernel, lowered when it is asked for.

    Args:
        device: the device that is lowered for.
        run: body of a rTask.
        given: positions, among the function's arguments, of those that ``run`` is given.
        load: body that fills its resident part, where it has one.
        kept: the positions of those that ``load`` is given.
    """

    def __init__(
        self,
        device: Device,
        run: tirx.PrimFunc,
        given: tuple[int, ...],
        load: tirx.PrimFunc | None = None,
        kept: tuple[int, ...] = (),
    ) -> None:
        self._device = device
        self._run = run
        self._load = load
        self._given = given
        self.kept = kept
        self._kernel: TaskBodies | None = None

    def lowered(self) -> TaskBodies:
        """The kernel's bodies as statements.

        Raises:
            BuildError: the kernel cannot be part of a persistent kernel.
        """
        if self._kernel is None:
            load = None if self._load is None else lower_body(self._load, self._device)
            body = lower_body(self._run, self._device)
            self._kernel = TaskBodies(body, self._given, load, self.kept)
        return self._kernel


@dataclass(frozen=True, slots=True)
class Bound:
    """A rOperator with its arguments.

    Attributes:
        ways: one for each of its choices.
        arguments: each as (tensor of the persistent kernel, bytes from its start).
        constants: positions of the arguments that are its operator's ``constants``.
    """

    ways: tuple[Lowering, ...]
    arguments: tuple[tuple[int, int], ...]
    constants: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Counters:
    """This kernel's counters among those of all persistent kernels, which lie in one tensor.

    Attributes:
        first: first of this kernel's counters.
        total: number of counters of all kernels.
    """

    first: int
    total: int


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """Control flow of a persistent kernel.

    Attributes:
        program: program of its rOperators.
        conditions: for each decision, the condition that it reads, as (tensor of the kernel, bytes
            from its start).
        frames: frames of its calls, if it has any: see
            :attr:`~tvm_tile.kernel.dispatch.FlowSizes.frames`.
    """

    program: RProgram
    conditions: tuple[tuple[int, int], ...] = ()
    frames: Frames | None = None


@dataclass(frozen=True, slots=True)
class Persistent:
    """A persistent kernel.

    Attributes:
        func: the kernel's function; its parameters are those of
            :func:`~tvm_tile.kernel.assemble.assemble`.
        table: its records and queues.
    """

    func: tirx.PrimFunc
    table: RecordTable


def make_persistent(
    name: str,
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    bound: Sequence[Bound],
    inputs: tuple[Parameter, ...],
    outputs: tuple[Parameter, ...],
    counters: Counters,
    control: ControlFlow | None = None,
) -> Persistent:
    """Write the kernel of a plan.

    Args:
        name: name of the function.
        operators: the operators that were planned.
        plan: their plan.
        bound: kernels and arguments of each operator.
        inputs: tensors that the kernel reads; arguments count them first.
        outputs: tensors that it writes, the workspace last, behind :attr:`FlowSizes.stops`'s word.
        counters: counters that it uses.
        control: control flow of its operators, where that is no straight line.
    """
    parts: list[CopiedBody] = []
    numbers: dict[tuple[int, int, int, bool], int] = {}

    def number(operator: int, *, loads: bool) -> int:
        choice, copies = plan.chosen[operator], plan.copies[operator]
        key = (operators[operator].body, choice, copies, loads)
        if key not in numbers:
            kernel = bound[operator].ways[choice].lowered()
            body = kernel.load if loads else kernel.body
            assert body is not None
            _check_shared(body, operators[operator], choice)
            numbers[key] = len(parts)
            parts.append(CopiedBody(body, copies))
        return numbers[key]

    tasks = []
    for operator, own in enumerate(bound):
        kernel = own.ways[plan.chosen[operator]].lowered()
        stays = plan.residents[operator]
        run, load = number(operator, loads=False), number(operator, loads=True) if stays else None
        given = kernel.run_arguments, kernel.load_arguments if stays else (), own.constants
        tasks.append(TaskKind(run, load, *(tuple(own.arguments[n] for n in ns) for ns in given)))
    table, asks, arguments, flow = _table(operators, plan, tasks, counters.first, control)
    layout = KernelSizes(
        plan.num_veus,
        plan.block_size,
        plan.veus_per_processor,
        inputs,
        outputs,
        table.words.shape[1],
        table.words.shape[0],
        counters.total,
        max(_LEAST_SHARED, plan.shared_bytes),
        asks,
        arguments,
        flow,
    )
    return Persistent(assemble(name, parts, layout), table)


def _table(
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    tasks: Sequence[TaskKind],
    counter: int,
    control: ControlFlow | None,
) -> tuple[RecordTable, bool, int, FlowSizes | None]:
    """The records; whether they ask ahead, where their arguments begin, and their control flow."""
    if control is None:
        table = make_table(operators, plan, tasks, counter)
        return table, any(plan.ahead), ARGUMENTS, None
    program = control.program
    table = make_program_table(operators, program, plan, tasks, control.conditions, counter)
    flow = FlowSizes(program.count_regions, program.may_stop, control.frames)
    return table, False, program_records.ARGUMENTS, flow


def _check_shared(body: Body, operator: ROperator, choice: int) -> None:
    """Check that a body needs no more shared memory than was planned for it.

    Raises:
        BuildError: the body needs more than was planned for.
    """
    planned = operator.choices[choice]
    if body.scratch_bytes > planned.shared_bytes or body.resident_bytes > planned.resident_bytes:
        raise BuildError(
            f"{operator.name} was planned with {planned.shared_bytes} bytes of shared memory, and "
            f"{planned.resident_bytes} that stay",
            f"{body.scratch_bytes} and {body.resident_bytes} bytes",
            "report it: its rule predicts too little",
        )
