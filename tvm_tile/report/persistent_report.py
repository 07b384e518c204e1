"""Outcome of co-scheduling, as data: persistent kernels, and calls launched by themselves."""

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
        operators: operators that run in it, each with the one choice that is taken; all that
            :func:`~tvm_tile.report.screen.gantt.gantt` needs beside ``plan``.
        plan: places and order of their runs.
        apart_seconds: predicted for them as launches of their own, amid the model.
        proof: proof that all of its blocks are resident at once.
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
        functions: names of the functions that they call, each once.
        calls: number of calls.
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
        name: name of the kernel.
        operators: operators as they were planned.
        plan: their plan.
        apart_seconds: seconds of the operators as launches of their own.
        proof: proof of the built kernel.
        program: program that they are in, unless it is a straight line.
    """
    taken = tuple(
        replace(operator, choices=(plan.choice(operators, number),))
        for number, operator in enumerate(operators)
    )
    plan = replace(plan, chosen=(0,) * len(taken))
    return PersistentReport(name, taken, plan, apart_seconds, proof, program)
