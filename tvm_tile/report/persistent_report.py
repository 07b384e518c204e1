"""What became of co-scheduling, as data: persistent kernels, and what is launched by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tvm_tile.plan.execution_plan import ExecutionPlan, ROperator
from tvm_tile.plan.proof import Residency
from tvm_tile.plan.rprogram import RProgram


@dataclass(frozen=True, slots=True)
class PersistentReport:
    """A persistent kernel of a model: many kernels' work in one cooperative launch.

    Attributes:
        name: its symbol.
        operators: what runs in it, each with the one choice that is taken; all that
            :func:`~tvm_tile.report.screen.gantt.gantt` needs beside ``plan``.
        plan: where and when they run.
        apart_seconds: predicted for them as launches of their own, amid the model.
        proof: that all of its blocks are resident at once.
        program: loops, branches and calls that they are in, None of a straight line; with
            ``operators`` and ``plan`` all that
            :func:`~tvm_tile.report.screen.flow_drawing.draw_veu` needs.
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
