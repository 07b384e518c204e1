"""Attention of few queries against many keys, as one kernel."""

from __future__ import annotations

from tvm_tile.schedule.decode.rule import schedule_decode

__all__ = ["schedule_decode"]
