"""Attention: two products and a softmax between them, as one kernel."""

from __future__ import annotations

from tvm_tile.schedule.attention.rule import schedule_attention

__all__ = ["schedule_attention"]
