"""Write one kernel: rules that turn a fused function into scheduled TensorIR."""

from __future__ import annotations

from tvm_tile.schedule.contraction import schedule_contraction
from tvm_tile.schedule.elementwise import schedule_elementwise
from tvm_tile.schedule.reduction import schedule_reduction
from tvm_tile.schedule.rows import schedule_rows
from tvm_tile.schedule.rule import Rule, Scheduled, Task
from tvm_tile.schedule.window import schedule_window

# The first rule that does not answer None takes the function.
RULES: tuple[Rule, ...] = (
    schedule_rows,
    schedule_contraction,
    schedule_window,
    schedule_reduction,
    schedule_elementwise,
)

__all__ = ["RULES", "Rule", "Scheduled", "Task"]
