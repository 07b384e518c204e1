"""Write one kernel: rules that turn a fused function into scheduled TensorIR."""

from __future__ import annotations

from tvm_tile.schedule.ranking import RULES, candidates, candidates_at
from tvm_tile.schedule.rule import Rule, Scheduled, Task

__all__ = ["RULES", "Rule", "Scheduled", "Task", "candidates", "candidates_at"]
