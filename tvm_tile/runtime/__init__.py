"""Run, time, save and load compiled models."""

from __future__ import annotations

from tvm_tile.runtime.entries import CompiledEntries, load
from tvm_tile.runtime.held import Held
from tvm_tile.runtime.model import CompiledModel
from tvm_tile.runtime.timing import Timing

__all__ = ["CompiledEntries", "CompiledModel", "Held", "Timing", "load"]
