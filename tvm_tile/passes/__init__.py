"""Thin Relax passes: read the IR, ask for a decision, rewrite."""

from __future__ import annotations

from tvm_tile.passes.mark_reductions import MarkReductions
from tvm_tile.passes.read_transposed import ReadTransposed
from tvm_tile.passes.schedule_tiles import DLIGHT, STATEMENTS, ScheduleTiles, schedule_module

__all__ = [
    "DLIGHT",
    "STATEMENTS",
    "MarkReductions",
    "ReadTransposed",
    "ScheduleTiles",
    "schedule_module",
]
