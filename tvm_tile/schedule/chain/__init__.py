"""Two products as one kernel, the matrix between them in registers: attention, and the like."""

from __future__ import annotations

from tvm_tile.schedule.chain.rule import schedule_chain

__all__ = ["schedule_chain"]
