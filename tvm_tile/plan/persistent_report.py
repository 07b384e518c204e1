"""What became of co-scheduling, as data: persistent kernels, and what is launched by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.flow_text import summary
from tvm_tile.plan.proof import Residency
from tvm_tile.plan.rprogram import RProgram

_NAMED = 3  # kernels of a line


@dataclass(frozen=True, slots=True)
class PersistentReport:
    """A persistent kernel of a model: many kernels' work in one cooperative launch.

    Attributes:
        name: its symbol.
        operators: what runs in it, each with the one choice that is taken; all that
            :func:`~tvm_tile.plan.gantt.gantt` needs beside ``plan``.
        plan: where and when they run.
        apart_seconds: predicted for them as launches of their own, amid the model.
        proof: that all of its blocks are resident at once.
        program: loops, branches and calls that they are in; with ``operators`` and ``plan`` all
            that :func:`~tvm_tile.plan.flow_drawing.draw_veu` needs. None of a straight line.
    """

    name: str
    operators: tuple[ROperator, ...]
    plan: ExecutionPlan
    apart_seconds: float
    proof: Residency
    program: RProgram | None = None

    @property
    def resident_bytes(self) -> int:
        """Bytes of shared memory of a vEU where weights stay."""
        return self.plan.shared_bytes - self.plan.scratch_bytes(self.operators)

    def describe(self) -> str:
        """How much runs in it, and how it waits."""
        operators = _count(len(self.operators), "operator")
        waits = "flags" if self.plan.uses_flags else "barriers"
        return f"{operators} in {_count(len(self.plan.steps), 'step')} with {waits}"


@dataclass(frozen=True, slots=True)
class LeftApart:
    """Calls that stay launches of their own, and why.

    Attributes:
        reason: why.
        functions: that they call, by name, each once.
        calls: how many there are.
    """

    reason: str
    functions: tuple[str, ...]
    calls: int


def report_persistent(
    name: str,
    operators: tuple[ROperator, ...],
    plan: ExecutionPlan,
    apart_seconds: float,
    proof: Residency,
    program: RProgram | None = None,
) -> PersistentReport:
    """A report without the choices that were not taken.

    Args:
        name: of the kernel.
        operators: as they were planned.
        plan: for them.
        apart_seconds: of them as launches of their own.
        proof: of the built kernel.
        program: that they are in, unless it is a straight line.
    """
    taken = tuple(
        replace(operator, choices=(plan.choice(operators, number),))
        for number, operator in enumerate(operators)
    )
    plan = replace(plan, chosen=(0,) * len(taken))
    return PersistentReport(name, taken, plan, apart_seconds, proof, program)


def render_plans(
    plans: tuple[PersistentReport, ...], left_apart: tuple[LeftApart, ...]
) -> Iterator[str]:
    """Lines for people; none where co-scheduling had nothing to decide."""
    if plans or left_apart:
        yield "co-scheduled:"
    for report in plans:
        yield from _lines(report)
    for left in left_apart:
        names = ", ".join(left.functions[:_NAMED])
        more = len(left.functions) - _NAMED
        others = f" and {more} more" if more > 0 else ""
        yield f"  left apart, {_count(left.calls, 'call')}: {left.reason}: {names}{others}"


def _lines(report: PersistentReport) -> Iterator[str]:
    plan, proof = report.plan, report.proof
    times = f"{plan.seconds * 1e6:.1f} us as one, {report.apart_seconds * 1e6:.1f} us apart"
    yield f"  {report.name}: {report.describe()}, {times}"
    resident = report.resident_bytes
    stays = f", {resident / 1024:.1f} KiB of them weights that stay" if resident else ""
    size = f"{plan.num_veus} vEUs x {plan.block_size} threads, {proof.registers} registers a thread"
    yield f"      {size}, {proof.shared_bytes / 1024:.1f} KiB of shared memory a vEU{stays}"
    yield f"      {proof.describe()}"
    if report.program is not None:
        yield f"      follows {summary(report.program)}"
    for name, count in Counter(operator.name for operator in report.operators).items():
        yield f"      {count} x {name}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
